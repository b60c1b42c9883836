"""From a command line to the runs it asks for, or to every error in it at once. Torch-free.

Hydra stops at the first bad override and, for an unknown key, proposes to add the typo. So the overrides are looked at
here first: their grammar, groups, options, keys, types and ranges one by one, then each distinct combination as a
whole. ``run.py`` and ``experiments.plan`` share this expansion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dsgd.config import identity, schema
from dsgd.config.parts import PARTS, SLOTS
from dsgd.config.schema import Config
from dsgd.config.validation import ConfigErrors, allowed_text, describe, nearest, problems

CONF = Path(__file__).resolve().parents[2] / "conf"

#: Seeds change nothing that validation looks at, so combinations that differ only here are composed once.
SEED_KEYS = ("seed", "seeds.initialization", "seeds.data_order", "seeds.dropout", "seeds.subset")


#: Groups whose ``name`` says which option was chosen, so that it must not be changed alone.
NAMED = ("model", "task", "method", "debug", *SLOTS)


@dataclass(frozen=True)
class Run:
    """One training: its config, and what it is called."""

    config: Config
    label: str

    @property
    def id(self) -> str:
        """See :func:`dsgd.config.identity.run_id`."""
        return identity.run_id(self.config)

    @property
    def cell_id(self) -> str:
        """See :func:`dsgd.config.identity.cell_id`."""
        return identity.cell_id(self.config)


@dataclass(frozen=True)
class Command:
    """A command line, taken apart: Hydra's flags away from the overrides."""

    overrides: tuple[str, ...]
    multirun: bool
    only_shows: bool  # --cfg, --info, --help: nothing will run


def read_command(arguments: Sequence[str]) -> Command:
    """Take ``arguments`` apart as Hydra will; a malformed flag exits with 2, as argparse does."""
    options = get_args_parser().parse_args(list(arguments))
    only_shows = any((options.cfg, options.info, options.help, options.hydra_help, options.shell_completion))
    return Command(tuple(options.overrides), options.multirun, only_shows)


def expand(command: Command) -> list[Run]:
    """The distinct runs that ``command`` asks for, in order; raises as :func:`jobs` does."""
    return distinct(jobs(command))


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Each run once: combinations that differ only in keys that nothing reads are one run."""
    return list({run.id: run for run in runs}.values())


def jobs(command: Command) -> list[Run]:
    """The run of each of Hydra's jobs, in their order.

    Raises:
        ConfigErrors: with every problem found, before anything is trained.
    """
    try:
        return _jobs(command)
    except (HydraException, OmegaConfBaseException) as error:  # what the checks below did not foresee
        raise ConfigErrors([str(error).strip().splitlines()[0]]) from error


def _jobs(command: Command) -> list[Run]:
    with _loader() as loader:
        parsed, found = _parse(command.overrides)
        good, more = _check_each(parsed, loader)
        found += more + _given_twice(good)
        multirun = command.multirun or _asks_to_sweep(good)
        if not multirun:
            found += [f"{text}: several values; add -m to sweep over them" for text in _sweeps(good)]
        combinations = _combinations(good) if multirun else [_first_choices(good)]
        if found:  # the rest of the command line is still looked at, but one combination tells enough
            combinations = combinations[:1]
        runs, more = _compose_all(combinations)
    if found + more:
        raise ConfigErrors(found + more)
    return runs


def is_multirun(command: Command) -> bool:
    """Whether Hydra will sweep: by flag, or because an experiment says so."""
    if command.multirun:
        return True
    with _loader():
        return str(_compose(command.overrides).hydra.mode).endswith("MULTIRUN")


def identify(composed: DictConfig) -> Run:
    """The run of one composed config (with or without Hydra's own node)."""
    return _identify(typed(composed))


def typed(composed: DictConfig) -> Config:
    """The dataclasses of a composed config, interpolations resolved."""
    values = {name: composed[name] for name in Config.__dataclass_fields__}
    return Config(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    return OmegaConf.to_object(value) if isinstance(value, DictConfig) else value


def load(path: Path) -> Config:
    """The config that a run folder keeps (``config.yaml``)."""
    saved = OmegaConf.load(path)
    assert isinstance(saved, DictConfig)
    base = OmegaConf.structured(Config)
    for slot, parts in PARTS.items():
        kinds = {part().name: part for part in parts}
        base[slot] = OmegaConf.structured(kinds[saved[slot].name])
    for group in schema.GROUPS:
        base[group] = OmegaConf.structured(schema.GROUPS[group])
    base["method"] = OmegaConf.structured(schema.Method)
    result = OmegaConf.to_object(OmegaConf.merge(base, saved))
    assert isinstance(result, Config)
    return result


def to_yaml(config: Config) -> str:
    """The text that :func:`load` reads back to an equal config."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


# --- Hydra ----------------------------------------------------------------------------------------------------------


@contextmanager
def _loader() -> Iterator[ConfigLoaderImpl]:
    """Hydra's loader over ``conf/``: the running application's own, else one made for the moment."""
    schema.register()
    if GlobalHydra.instance().is_initialized():
        yield _current_loader()
        return
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield _current_loader()


def _current_loader() -> ConfigLoaderImpl:
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    return loader


def _compose(overrides: Iterable[str]) -> DictConfig:
    """The composed config, Hydra's node included; remembered, so it must not be changed in place."""
    return _remembered(tuple(overrides))


@cache
def _remembered(overrides: tuple[str, ...]) -> DictConfig:
    composed: DictConfig = compose("config", overrides=list(overrides), return_hydra_config=True)
    return composed


@cache
def _baseline(overrides: tuple[str, ...]) -> Config:
    with _loader():
        return typed(_compose(overrides))


def _identify(config: Config) -> Run:
    chosen = _choices(config)
    slots = identity.changed_slots(config, _baseline(chosen))
    usual = _baseline(chosen + tuple(f"{slot}={name}" for slot, name in slots.items()))
    return Run(config, identity.method_label(config, usual, slots))


def _choices(config: Config) -> tuple[str, ...]:
    """What gives the config's preset, with its model and task and nothing else changed."""
    return (
        f"model={config.model.name}",
        f"task={config.task.name}",
        f"method={config.method.name}",
        f"debug={config.debug.name}",
    )


# --- one part a slot ------------------------------------------------------------------------------------------------


def _shared_slots(config: Config) -> list[str]:
    """``method=pcgrad gradient=sam``: Hydra would take SAM alone, and the label would promise both.

    A plain part in the preset's place empties the slot, and a loss may be exchanged: every preset has one, and the
    default preset's must give way to ``loss=focal``.
    """
    preset, method = _baseline(_choices(config)), config.method.name
    found = []
    for slot, name in identity.changed_slots(config, preset).items():
        plain = PARTS[slot][0]().name
        own = getattr(preset, slot).name
        if slot != "loss" and plain not in (own, name):
            reason = f"method={method} fills this slot with {own}, and one part acts at a time"
            found.append(describe(slot, name, f"{reason}; for {name} alone: method=fft {slot}={name}"))
    return found


def _given_twice(overrides: list[Override]) -> list[str]:
    """``gradient=pcgrad gradient=sam``: Hydra would silently take the last. Other keys may be overridden twice."""
    found = []
    for key in ("method", *SLOTS):
        texts = [_texts(override) for override in overrides if override.key_or_group == key]
        found += [
            describe(key, ",".join(later), f"{key}={','.join(texts[0])} is given already, and one acts at a time")
            for later in texts[1:]
            if later != texts[0]
        ]
    return found


# --- the sweep ------------------------------------------------------------------------------------------------------


def _asks_to_sweep(overrides: list[Override]) -> bool:
    """Whether the config itself says so, as an experiment does."""
    return str(_compose(_first_choices(overrides)).hydra.mode).endswith("MULTIRUN")


def _combinations(overrides: list[Override]) -> list[list[str]]:
    """Every combination of a sweep, an experiment's own grid included, as Hydra's sweeper makes them."""
    grid = _compose(_first_choices(overrides)).hydra.sweeper.get("params") or {}
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    own = parser.parse_overrides([f"{key}={value}" for key, value in grid.items()])
    batches: list[list[list[str]]] = BasicSweeper.split_arguments(own + overrides, max_batch_size=None)
    return batches[0]


def _compose_all(combinations: list[list[str]]) -> tuple[list[Run], list[str]]:
    """One run a combination, composing those that differ only in their seeds once."""
    runs: list[Run] = []
    found: list[str] = []
    composed: dict[tuple[str, ...], DictConfig | None] = {}
    for combination in combinations:
        seeds = [text for text in combination if text.split("=", 1)[0] in SEED_KEYS]
        rest = tuple(text for text in combination if text not in seeds)
        if rest not in composed:
            composed[rest], more = _compose_checked(rest)
            found += more
        base = composed[rest]
        if base is not None and not found:
            runs.append(identify(_with(base, seeds)))
    return runs, found


def _compose_checked(overrides: tuple[str, ...]) -> tuple[DictConfig | None, list[str]]:
    try:
        composed = _compose(overrides)
        config = typed(composed)
        return composed, problems(config) + _shared_slots(config)
    except (HydraException, OmegaConfBaseException) as error:
        return None, [f"{' '.join(overrides)}: {str(error).splitlines()[0]}"]


def _with(composed: DictConfig, overrides: list[str]) -> DictConfig:
    changed = composed.copy()
    for override in OverridesParser.create().parse_overrides(overrides):
        OmegaConf.update(changed, override.key_or_group, override.value())
    return changed


def _sweeps(overrides: list[Override]) -> list[str]:
    return [str(override.input_line) for override in overrides if override.is_sweep_override()]


def _first_choices(overrides: list[Override]) -> list[str]:
    return [f"{override.get_key_element()}={_texts(override)[0]}" for override in overrides]


def _texts(override: Override) -> list[str]:
    """Every value of one override as text: one, or all those of its sweep."""
    if override.is_sweep_override() and override.is_discrete_sweep():
        return [str(text) for text in override.sweep_string_iterator()]
    return [override.get_value_element_as_str()]


# --- each override by itself ----------------------------------------------------------------------------------------


def _parse(overrides: Sequence[str]) -> tuple[list[Override], list[str]]:
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


def _check_each(overrides: list[Override], loader: ConfigLoaderImpl) -> tuple[list[Override], list[str]]:
    """The overrides that can be composed, and the problems of the others."""
    groups = _groups(loader)
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
    composed = _compose(_first_choices(good))
    for override in values:
        problem = _value_problem(override, composed, groups)
        found += problem
        good += [] if problem else [override]
    return [override for override in overrides if override in good], found


def _groups(loader: ConfigLoaderImpl) -> dict[str, list[str]]:
    """Every group with its options; an option in a subfolder is ``folder/option``."""
    repository = loader.repository  # its own questions copy the whole repository each time
    groups: dict[str, list[str]] = {}

    def visit(group: str) -> list[str]:
        options = repository.get_group_options(group, ObjectType.CONFIG)
        for folder in repository.get_group_options(group, ObjectType.GROUP):
            options += [f"{folder}/{option}" for option in visit(f"{group}/{folder}")]
        groups[group] = sorted(options)
        return groups[group]

    for group in repository.get_group_options("", ObjectType.GROUP):
        if group != "schema":
            visit(group)
    return groups


def _group_problem(override: Override, options: list[str]) -> list[str]:
    return [
        describe(override.key_or_group, text, "choose one of " + ", ".join(options), options)
        for text in _texts(override)
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
            for text in _texts(override)
        ]
    if isinstance(node._get_node(name), DictConfig):
        keys = [f"{key}.{inner}" for inner in map(str, node[name])]
        return [f"{key}: is a group of keys; set one of {', '.join(keys)}"]
    return [
        describe(key, text, allowed_text(kind, name), _spellings(kind, name))
        for text, value in zip(_texts(override), _values(override), strict=True)
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
