"""Each override of a command line by itself: grammar, group and option, key, type and range. Torch-free."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dsgd.config import tree
from dsgd.config.command import parse_one, quoted
from dsgd.config.messages import choose_one_of, describe, nearest
from dsgd.config.parts import SLOTS
from dsgd.config.validation import allowed_text

#: Groups whose ``name`` says which option was chosen, so that it must not be changed alone.
NAMED = ("model", "task", "method", "debug", *SLOTS)

#: Runs of one sweep; the largest of the paper's has 840.
MOST_RUNS = 20_000

#: Characters of a mistake that a message repeats.
SHOWN = 200


def parse(overrides: Sequence[str]) -> tuple[list[Override], list[str]]:
    """The overrides that Hydra's grammar reads, and the problems of the others."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    parsed, found = [], []
    for text in overrides:
        try:
            parsed += parser.parse_overrides([text])
        except (HydraException, RecursionError, ValueError):  # ValueError: a number too long for Python to read
            found.append(_unreadable(text))
    return parsed, found


def _unreadable(text: str) -> str:
    """Say what to type instead of an override that the grammar cannot read."""
    key, equals, value = text.partition("=")
    shown = f"{text[:SHOWN]}…" if len(text) > SHOWN else text
    if not equals:
        return f"{shown}: cannot be read; write key=value"
    is_list = value.startswith("[") and value.endswith("]")
    inside = ",".join(quoted(entry.strip()) for entry in value[1:-1].split(","))
    with_quotes = f"{key}=[{inside}]" if is_list else f"{key}={quoted(value)}"
    if parse_one(with_quotes) is None or len(text) > SHOWN:
        return f"{shown}: cannot be read; write key=value"
    return f"{shown}: the value has characters that must be quoted; type {shlex.quote(with_quotes)}"


def check_each(overrides: list[Override], loader: ConfigLoaderImpl) -> tuple[list[Override], list[str]]:
    """The overrides that can be composed, and the problems of the others."""
    groups = tree.groups(loader)
    good, values, found = [], [], []
    for override in overrides:
        key = override.key_or_group
        if problem := _sweep_problem(override, groups):
            found += problem
        elif key.startswith("hydra.") or override.is_delete():
            good.append(override)
        elif key in groups:
            problem = _group_problem(override, groups[key])
            found += problem
            good += [] if problem else [override]
        else:
            values.append(override)
    composed = tree.compose(first_choices(good))
    for override in values:
        problem = _value_problem(override, composed, groups)
        found += problem
        good += [] if problem else [override]
    return [override for override in overrides if override in good], found


def _sweep_problem(override: Override, groups: dict[str, list[str]]) -> list[str]:
    """Say what keeps a sweep from giving values: nothing to choose from, or far too many."""
    if not override.is_sweep_override() or not override.is_discrete_sweep():
        return []
    key, text = override.key_or_group, str(override.input_line)
    values = override.value()
    if isinstance(values, Glob):
        if key not in groups:
            return [
                f"{text}: glob(…) chooses among the options of a group, and {key} is a single value; list the values"
            ]
        return [] if values.filter(groups[key]) else [f"{text}: fits no option; {choose_one_of(text, groups[key])}"]
    try:
        count = number_of_values(override)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError) as error:
        return [f"{text}: {error}"]
    if count == 0:
        return [f"{text}: holds no value; range(start, stop, step) leaves stop out"]
    return [f"{text}: {count:,} values; a sweep takes {MOST_RUNS:,} runs at most"] if count > MOST_RUNS else []


def number_of_values(override: Override) -> int:
    """Count the values of an override without listing them; 1 where it is no sweep.

    Raises:
        ValueError: the step of a range is 0.
    """
    values = override.value()
    if isinstance(values, RangeSweep):
        start, stop, step = float(values.start or 0), float(values.stop or 0), float(values.step)
        if step == 0:
            raise ValueError("the step of a range must not be 0")
        return max(0, math.ceil((stop - start) / step))
    if isinstance(values, ChoiceSweep):
        return len(values.list)
    return len(choices(override))


def _group_problem(override: Override, options: list[str]) -> list[str]:
    if override.key_or_group == "experiment" and len(choices(override)) > 1:
        lines = " && ".join(f"python run.py experiment={name}" for name in choices(override)[:8])
        return [f"{override.input_line}: each experiment has a sweep of its own, so give one at a time; type {lines}"]
    return [
        describe(override.key_or_group, text, choose_one_of(text, options), options)
        for text in choices(override)
        if text not in options and (text, override.key_or_group) != ("null", "experiment")
    ]


def _value_problem(override: Override, composed: DictConfig, groups: dict[str, list[str]]) -> list[str]:
    key = override.key_or_group
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(composed, parent) if parent else composed
    kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
    if kind is None or name not in getattr(kind, "__dataclass_fields__", {}):
        return [_unknown_key(key, composed, groups)]
    if override.is_add():
        return [f"+{key}: the key is there already; write {key}=…"]
    if override.is_sweep_override() and not override.is_discrete_sweep():
        return [f"{override.input_line}: a sweep needs single values; list them, or give range(…)"]
    if name == "name" and parent in NAMED:
        return [
            describe(key, text, f"a name is not set by itself; choose {parent}={text}", groups[parent])
            for text in choices(override)
        ]
    if isinstance(node._get_node(name), DictConfig):
        keys = [f"{key}.{inner}" for inner in map(str, node[name])]
        return [f"{key}: is a group of keys; set one of {', '.join(keys)}"]
    alone = OmegaConf.structured(kind)
    return [
        describe(key, text, allowed_text(kind, name), _spellings(kind, name))
        for text, value in zip(choices(override), _values(override), strict=True)
        if not (
            _accepts(composed.copy(), key, value, kind)
            if "${" in str(value)  # what it refers to is found in the whole config alone
            else _accepts(alone, name, value, kind)
        )
    ]


def _accepts(trial: DictConfig, key: str, value: Any, kind: type[Any]) -> bool:
    """Whether ``trial``, which is changed, takes ``value`` under ``key``, a field of ``kind``."""
    try:
        OmegaConf.update(trial, key, value)
        result = OmegaConf.select(trial, key)
    except (OmegaConfBaseException, RecursionError, ValueError):
        return False
    name = key.rpartition(".")[-1]
    allowed = kind.__dataclass_fields__[name].metadata.get("allowed")
    return allowed is None or result is None or bool(allowed.accepts(result))


def _values(override: Override) -> list[Any]:
    if override.is_sweep_override() and override.is_discrete_sweep():
        return list(override.sweep_iterator())
    return [override.value()]


def _unknown_key(key: str, composed: DictConfig, groups: dict[str, list[str]]) -> str:
    known = [*_keys(composed), *groups]
    near = nearest(key, known) or nearest(key.rsplit(".", 1)[-1], [name.rsplit(".", 1)[-1] for name in known])
    if near and near not in known:
        near = min((name for name in known if name.endswith("." + near)), key=lambda name: name.count("."))
    parent = key.rpartition(".")[0]
    siblings = [name for name in known if parent and name.rpartition(".")[0] == parent]
    where = f"keys of {parent}: {', '.join(siblings)}" if siblings else "see `python run.py --cfg job` for all keys"
    return f"{key}: no such key" + (f" (did you mean {near}?)" if near else "") + f"; {where}"


def _keys(composed: DictConfig, prefix: str = "") -> Iterator[str]:
    for name in map(str, composed):
        if not prefix and name == "hydra":
            continue
        node = composed._get_node(name)
        if isinstance(node, DictConfig) and not node._is_none():
            yield from _keys(node, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _spellings(kind: type[Any], name: str) -> list[str]:
    text = allowed_text(kind, name)
    return text.removeprefix("give one of ").split(", ") if text.startswith("give one of ") else []


def given_twice(overrides: list[Override]) -> list[str]:
    """``gradient=pcgrad gradient=sam``: Hydra would silently take the last. Other keys may be overridden twice."""
    found = []
    for key in ("method", *SLOTS):
        texts = [choices(override) for override in overrides if override.key_or_group == key]
        found += [
            describe(key, ",".join(later), f"{key}={','.join(texts[0])} is given already, and one acts at a time")
            for later in texts[1:]
            if later != texts[0]
        ]
    return found


def sweeps(overrides: list[Override]) -> list[str]:
    """Those that name several values, as they were written."""
    return [str(override.input_line) for override in overrides if override.is_sweep_override()]


def first_choices(overrides: list[Override]) -> list[str]:
    """The same overrides with the first value of each."""
    return [f"{override.get_key_element()}={choices(override)[0]}" for override in overrides]


def choices(override: Override) -> list[str]:
    """Every value of one override as text: one, or all those of its sweep."""
    if override.is_sweep_override() and override.is_discrete_sweep():
        return [str(text) for text in override.sweep_string_iterator()]
    return [override.get_value_element_as_str()]
