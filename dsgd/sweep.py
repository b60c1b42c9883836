"""The jobs of one command: which of its runs are left to train, and what the launcher is told of them. Torch-free.

Hydra composes the config of every job anew, which takes longer than to see that a run is finished. So finished runs
never reach it, and of the others it is given one job each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback

from dsgd import sharing
from dsgd.config import tree
from dsgd.config.command import Command
from dsgd.config.compose import SEED_KEYS, Run, distinct, is_multirun, jobs
from dsgd.config.overrides import parse
from dsgd.config.remembered import recall, remember
from dsgd.execution import is_done


@dataclass
class Plan:
    """What every job must know; it travels to the launcher's workers."""

    runs: list[Run] = field(default_factory=list)  # in the order of the jobs
    report: Path | None = None  # where the jobs tell their outcomes
    supervisor: int = 0  # process that started the launcher


class Asked(NamedTuple):
    """What a command asks for."""

    sweeps: bool
    runs: list[Run]  # each once
    left: list[Run]  # of a sweep, those that are still to be trained


def asked_by(command: Command) -> Asked:
    """Compose what ``command`` asks for, unless it is a sweep whose runs are known and all finished.

    Raises:
        ConfigErrors: with every problem found.
    """
    known = recall(command)
    if known is not None and not unfinished(known):
        return Asked(True, known, [])
    runs = distinct(jobs(command))
    if not is_multirun(command):
        return Asked(False, runs, runs)
    remember(command, runs)
    return Asked(True, runs, sharing.resolve(unfinished(runs)))


def unfinished(runs: Sequence[Run]) -> list[Run]:
    """The runs that a launcher must be asked for; all of them where several processes train one together.

    The processes of such a launch would each look for themselves, and must not come to different lists.
    """
    if any(run.config.trainer.processes > 1 for run in runs):
        return list(runs)
    return [run for run in runs if not is_done(run)]


def arguments(command: Command, left: Sequence[Run]) -> list[str]:
    """Overrides that make Hydra sweep over as many jobs as there are runs in ``left``.

    A job takes its run from the plan by its number. What Hydra composes for it only has to be valid: the first run's
    config with a counted seed.
    """
    with tree.loader(command.config_dir):
        given, _ = parse(command.overrides)
    kept = {each.key_or_group: str(each.input_line) for each in given if not each.is_sweep_override()}
    of_first = {text.split("=", 1)[0].lstrip("+~"): text for text in left[0].overrides}
    chosen = {key: text for key, text in {**of_first, **kept}.items() if key not in SEED_KEYS}
    counted = f"seed={','.join(map(str, range(len(left))))}"
    return [*chosen.values(), "hydra.sweeper.params=null", counted]


class Forget(Callback):  # type: ignore[misc]
    """Let go of each job's configs when it ends: Hydra would keep those of all jobs until the last one."""

    def on_job_end(self, job_return: JobReturn, **_: Any) -> None:
        """Keep only how the job ended."""
        job_return.cfg = job_return.hydra_cfg = None
