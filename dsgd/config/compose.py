"""From a command line to the runs it asks for, or to every error in it at once. Torch-free.

Hydra stops at the first bad override and, for an unknown key, proposes to add the typo. So the overrides are looked at
here first: their grammar, groups, options, keys, types and ranges one by one, then each distinct combination as a
whole. ``run.py`` and ``experiments.plan`` share this expansion.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import NoneType
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dsgd.config import identity, tree
from dsgd.config.command import Command
from dsgd.config.contents import with_contents
from dsgd.config.files import remembering
from dsgd.config.messages import ConfigErrors, describe
from dsgd.config.overrides import MOST_RUNS, check_each, first_choices, given_twice, number_of_values, parse, sweeps
from dsgd.config.parts import PARTS
from dsgd.config.schema import Config, MultiTask
from dsgd.config.validation import problems

#: Seeds change nothing that validation looks at, so combinations that differ only here are composed once.
SEED_KEYS = ("seed", "seeds.initialization", "seeds.data_order", "seeds.dropout", "seeds.subset")


@dataclass(frozen=True)
class Run:
    """One training: its config, and what it is called."""

    config: Config
    label: str
    overrides: tuple[str, ...] = field(default=(), compare=False)  # the combination of a command line that it is

    @cached_property
    def id(self) -> str:
        """See :func:`dsgd.config.identity.run_id`."""
        return identity.run_id(self.config)

    @cached_property
    def cell_id(self) -> str:
        """See :func:`dsgd.config.identity.cell_id`."""
        return identity.cell_id(self.config)


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
        raise ConfigErrors([_composition_problem(command.overrides, error)]) from error


def _jobs(command: Command) -> list[Run]:
    with tree.loader(command.config_dir) as loader, remembering():
        parsed, found = parse(command.overrides)
        good, more = check_each(parsed, loader)
        found += more + given_twice(good)
        multirun = command.multirun or _asks_to_sweep(good)
        if not multirun:
            found += [f"{text}: several values; add -m to sweep over them" for text in sweeps(good)]
        found += [*_too_many_runs(good), *_no_workers(good)] if multirun else []
        combinations = _combinations(good) if multirun and not found else [first_choices(good)]
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
    with tree.loader(command.config_dir):
        return _asks_to_sweep(parse(command.overrides)[0])


def usual_launcher(command: Command) -> bool:
    """Whether neither the command line nor an experiment names a launcher, so that runs would go one by one."""
    return _launcher(command).endswith(".BasicLauncher")


def launches_here(command: Command) -> bool:
    """Whether all runs train on this machine, by Hydra's own launcher or joblib's."""
    return _launcher(command).endswith((".BasicLauncher", ".JoblibLauncher"))


def _launcher(command: Command) -> str:
    """The name of the class."""
    with tree.loader(command.config_dir):
        parsed, _ = parse(command.overrides)
        return str(tree.compose(first_choices(parsed)).hydra.launcher._target_)


def identify(composed: DictConfig) -> Run:
    """The run of one composed config (with or without Hydra's own node)."""
    return _identify(tree.typed(composed))


@tree.remember
def _baseline(overrides: tuple[str, ...]) -> Config:
    with tree.loader():
        return tree.typed(tree.assemble(overrides))


def _identify(config: Config) -> Run:
    config = _without_a_preset_that_is_gone(with_contents(config))
    chosen = _choices(config)
    slots = identity.changed_slots(config, _baseline(chosen))
    usual = _baseline(chosen + tuple(f"{slot}={name}" for slot, name in slots.items()))
    return Run(config, identity.method_label(config, usual, slots))


def _without_a_preset_that_is_gone(config: Config) -> Config:
    """``method=dsgd loss=focal`` has nothing of DSGD left: it is ``fft+focal``, and says so."""
    preset = _baseline(_choices(config))
    replaced = identity.changed_slots(config, preset)
    if all(getattr(preset, slot).name == PARTS[slot][0]().name for slot in replaced):
        return config
    return replace(config, method=_baseline(("method=fft",)).method)


def _choices(config: Config) -> tuple[str, ...]:
    """What gives the config's preset, with its model and task and nothing else changed."""
    return (
        f"model={config.model.name}",
        f"task={config.task.name}",
        *([f"task.tasks=[{','.join(config.task.tasks)}]"] if isinstance(config.task, MultiTask) else []),
        f"method={config.method.name}",
        *([] if config.debug.name == "none" else [f"debug={config.debug.name}"]),
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


# --- the sweep ------------------------------------------------------------------------------------------------------


def _asks_to_sweep(overrides: list[Override]) -> bool:
    """Whether the config itself says so, as an experiment does."""
    return str(tree.compose(first_choices(overrides)).hydra.mode).endswith("MULTIRUN")


def _combinations(overrides: list[Override]) -> list[list[str]]:
    """Every combination of a sweep, an experiment's own grid included, as Hydra's sweeper makes them."""
    grid = tree.compose(first_choices(overrides)).hydra.sweeper.get("params") or {}
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    own = parser.parse_overrides([f"{key}={value}" for key, value in grid.items()])
    telling = [override for override in overrides if not _is_mere_grid(override)]
    batches: list[list[list[str]]] = BasicSweeper.split_arguments(own + telling, max_batch_size=None)
    return batches[0]


def _too_many_runs(overrides: list[Override]) -> list[str]:
    counts = {override.key_or_group: number_of_values(override) for override in overrides}
    count = math.prod(counts.values())
    if count <= MOST_RUNS:
        return []
    factors = " × ".join(f"{key} ({number:,})" for key, number in counts.items() if number > 1)
    return [f"a sweep over {factors} is {count:,} runs; a sweep takes {MOST_RUNS:,} at most"]


def _no_workers(overrides: list[Override]) -> list[str]:
    jobs = tree.compose(first_choices(overrides)).hydra.launcher.get("n_jobs")
    return (
        [describe("hydra.launcher.n_jobs", jobs, "give 1 or more, or -1 for one run on each core")] if jobs == 0 else []
    )


def _is_mere_grid(override: Override) -> bool:
    """Whether this names an experiment that sets no key by itself, so that its expansion says all."""
    if override.key_or_group != "experiment" or override.is_sweep_override():
        return False
    return tree.assemble(first_choices([override])) == tree.assemble(())


def _compose_all(combinations: list[list[str]]) -> tuple[list[Run], list[str]]:
    """One run a combination, composing those that differ only in their seeds once."""
    runs: list[Run] = []
    found: list[str] = []
    cells: dict[tuple[str, ...], _Cell | None] = {}
    for combination in combinations:
        seeds = [text for text in combination if text.split("=", 1)[0] in SEED_KEYS]
        rest = tuple(text for text in combination if text not in seeds)
        if rest not in cells:
            composed, more = _compose_checked(rest)
            found += more
            cells[rest] = None if composed is None or found else _Cell(composed)
        cell = cells[rest]
        if cell is not None and not found:
            runs.append(replace(cell.run_of(seeds), overrides=tuple(combination)))
    return runs, found


class _Cell:
    """Runs that differ only in their seeds. Composed and labelled once, since a label names no seed."""

    def __init__(self, composed: DictConfig) -> None:
        self.composed = composed
        self.run = identify(composed)
        self.seeds_are_read = "${seed" in OmegaConf.to_yaml(composed)  # by another key's interpolation

    def run_of(self, seeds: list[str]) -> Run:
        values = dict(map(_key_and_value, seeds))
        if self.seeds_are_read or any(type(value) not in (int, NoneType) for value in values.values()):
            return identify(_with(self.composed, values))
        config = self.run.config
        streams = {key.removeprefix("seeds."): value for key, value in values.items() if key != "seed"}
        seeded = replace(config, seed=values.get("seed", config.seed), seeds=replace(config.seeds, **streams))
        return replace(self.run, config=seeded)


@cache
def _key_and_value(override: str) -> tuple[str, Any]:
    (parsed,) = OverridesParser.create().parse_overrides([override])
    return parsed.key_or_group, parsed.value()


def _compose_checked(overrides: tuple[str, ...]) -> tuple[DictConfig | None, list[str]]:
    try:
        composed = tree.assemble(overrides)
        config = tree.typed(composed)
        return composed, problems(config) + _shared_slots(config)
    except (HydraException, OmegaConfBaseException) as error:
        return None, [_composition_problem(overrides, error)]


def _composition_problem(overrides: tuple[str, ...], error: Exception) -> str:
    """What Hydra says, or why a preset's own setting found no key: its part was exchanged for another."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines[0].startswith("In 'method/") and len(lines) > 1:
        method = lines[0].split("'")[1].removeprefix("method/")
        reason = "the preset sets a key of its own part, which this line exchanges for another"
        return f"{' '.join(overrides)}: {lines[1]}; {reason}; add method=fft instead of method={method}"
    return f"{' '.join(overrides)}: {' '.join(lines[:2])}"


def _with(composed: DictConfig, values: dict[str, Any]) -> DictConfig:
    changed = composed.copy()
    for key, value in values.items():
        OmegaConf.update(changed, key, value)
    return changed
