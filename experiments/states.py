"""What became of an experiment's planned runs. Without pandas, so that ``plan`` starts at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsgd.runs import Condition, RunFolder, State, finder, has_diagnostics, replacement
from experiments.grid import PlannedRun


@dataclass(frozen=True)
class Found:
    """A planned run and what became of it."""

    run: PlannedRun
    state: State
    folder: RunFolder | None  # where its files are; None where there are none
    reason: str = ""  # why it is not finished, where that is known
    condition: Condition = Condition("missing")  # noqa: RUF009 - immutable

    @property
    def seconds(self) -> float | None:
        """That a finished run took."""
        return self.condition.row.get("seconds") if self.state == "finished" else None


def look(planned: Iterable[PlannedRun], results: Path) -> list[Found]:
    """The state of each planned run under ``results``, found by its id.

    A finished run that lacks the files of the diagnostics asked for is to be trained again: it is as far as the
    attempt to replace it, and missing where there is none.
    """
    find = finder(results)
    found = []
    for run in planned:
        usual = RunFolder(results / run.folder)
        folder = usual if usual.run_id == run.id and usual.path.exists() else find(run.id)
        found.append(_look(run, folder, results))
    return found


def _look(run: PlannedRun, folder: RunFolder | None, results: Path) -> Found:
    if folder is None:
        return Found(run, "missing", None)
    condition = folder.condition()
    if condition.state == "finished" and not has_diagnostics(folder, run.diagnostics):
        attempt = replacement(results, run.id)
        again = attempt.condition()
        if again.state == "finished":
            return Found(run, "finished", attempt, "", again)
        return Found(run, again.state, folder, again.reason or f"has no {run.diagnostics}")
    return Found(run, condition.state, folder, condition.reason, condition)
