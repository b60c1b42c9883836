"""Each override of a command line by itself: grammar, group and option, key, type and range. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dsgd.config import tree
from dsgd.config.messages import describe, nearest
from dsgd.config.parts import SLOTS
from dsgd.config.validation import allowed_text

#: Groups whose ``name`` says which option was chosen, so that it must not be changed alone.
NAMED = ("model", "task", "method", "debug", *SLOTS)


def parse(overrides: Sequence[str]) -> tuple[list[Override], list[str]]:
    """The overrides that Hydra's grammar reads, and the problems of the others."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    parsed, found = [], []
    for text in overrides:
        try:
            parsed += parser.parse_overrides([text])
        except HydraException:
            found.append(
                f"{text}: cannot be read; write key=value, and quote values with spaces or commas: 'key=\"a, b\"'"
            )
    return parsed, found


def check_each(overrides: list[Override], loader: ConfigLoaderImpl) -> tuple[list[Override], list[str]]:
    """The overrides that can be composed, and the problems of the others."""
    groups = tree.groups(loader)
    good, values, found = [], [], []
    for override in overrides:
        key = override.key_or_group
        if key.startswith("hydra.") or override.is_delete():
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


def _group_problem(override: Override, options: list[str]) -> list[str]:
    return [
        describe(override.key_or_group, text, "choose one of " + ", ".join(options), options)
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
    return [
        describe(key, text, allowed_text(kind, name), _spellings(kind, name))
        for text, value in zip(choices(override), _values(override), strict=True)
        if not _accepts(composed, key, value, kind, name)
    ]


def _accepts(composed: DictConfig, key: str, value: Any, kind: type[Any], name: str) -> bool:
    trial = composed.copy()
    try:
        OmegaConf.update(trial, key, value)
        result = OmegaConf.select(trial, key)
    except OmegaConfBaseException:
        return False
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
