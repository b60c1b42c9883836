"""What became of an experiment's planned runs. Without pandas, so that ``plan`` starts at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dsgd.runs import RunFolder, State, has_diagnostics, replacement, scan
from experiments.grid import PlannedRun


@dataclass(frozen=True)
class Found:
    """A planned run and what became of it."""

    run: PlannedRun
    state: State
    folder: RunFolder | None  # where its files are; None where there are none
    reason: str = ""  # why it is not finished, where that is known

    @cached_property
    def seconds(self) -> float | None:
        """That a finished run took."""
        return self.folder.metrics.get("seconds") if self.folder and self.state == "finished" else None


def look(planned: Iterable[PlannedRun], results: Path) -> list[Found]:
    """The state of each planned run under ``results``, found by its id.

    A finished run that lacks the files of the diagnostics asked for is to be trained again: it is as far as the
    attempt to replace it, and missing where there is none.
    """
    folders = {folder.path.name.rpartition("-")[2]: folder for folder in scan(results)}
    return [_look(run, folders.get(run.id), replacement(results, run.id)) for run in planned]


def _look(run: PlannedRun, folder: RunFolder | None, attempt: RunFolder) -> Found:
    if folder is None:
        return Found(run, "missing", None)
    state = folder.state
    if state == "finished" and not has_diagnostics(folder, run.diagnostics):
        state = attempt.state
        return Found(run, state, folder, attempt.reason if state == "failed" else f"has no {run.diagnostics}")
    return Found(run, state, folder, folder.reason if state == "failed" else "")
