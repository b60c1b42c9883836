"""What a person sees of runs: a line as each ends, a folder at the end of one, a table at the end of a sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsgd.config.compose import Run
from dsgd.execution import Outcome
from dsgd.rows import Row
from dsgd.runs import Condition, RunFolder, latest_attempt
from dsgd.summary import markdown_table, markdown_text, mean_and_std, metrics_under, mixed


def say(text: str) -> None:
    """One line on standard output, at once, so that workers' lines do not mix; of several ranks the first speaks."""
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def ended(run: Run, outcome: Outcome) -> None:
    """One line for a run that has just ended, was skipped, or trains elsewhere."""
    end = _end_of(run, outcome)
    name = f"{run.config.model.shown} {run.config.task.shown} {run.label} seed {run.config.seed}"
    say(f"{outcome if end.row is not None else end.outcome:9} {name}: {end.text}")


def single(run: Run, outcome: Outcome | None = None) -> int:
    """Close a single run: the folder's path is the last line. Returns the exit code.

    Args:
        run: the run.
        outcome: what ``execute`` returned; None: to be read from the folder.
    """
    end = _end_of(run, outcome)
    if end.row is None and end.error_file:
        say(f"details: {end.error_file}")
    say(str(end.folder.path))
    return 1 if end.row is None else 0


def sweep(runs: Sequence[Run], outcomes: Mapping[str, Outcome] | None = None) -> int:
    """Close a sweep: a row a cell, then what must be known of single runs. Returns the exit code.

    Runs that another process still trains count neither as finished nor as failed.

    Args:
        runs: each once.
        outcomes: what ``execute`` returned, by the run's id; of the others it is read from the folder.
    """
    ends = [_end_of(run, (outcomes or {}).get(run.id)) for run in runs]
    cells: dict[str, list[_End]] = {}
    for end in ends:
        cells.setdefault(end.run.cell_id, []).append(end)
    say("")
    rows = [_row(cell) for cell in cells.values()]
    for line in markdown_table([list(rows[0]), *(list(row.values()) for row in rows)]):
        say(line)
    for cell in cells.values():
        _say_where_mixed(cell)
    for end in ends:
        if end.outcome == "elsewhere":
            say(f"running elsewhere: {end.run.label} seed {end.run.config.seed}")
        elif end.outcome == "failed":
            details = f" ({end.error_file})" if end.error_file else ""
            say(f"failed: {end.run.label} seed {end.run.config.seed}: {end.text}{details}")
    return 1 if any(end.outcome == "failed" for end in ends) else 0


@dataclass(frozen=True)
class _End:
    """What became of a run: what ``execute`` returned, held against what its folder holds."""

    run: Run
    folder: RunFolder
    outcome: Outcome
    row: Row | None = None  # of a finished run

    @property
    def text(self) -> str:
        """In words, without the run's name."""
        if self.row is None:
            return self.outcome.reason
        by_task = ", ".join(f"{task} {accuracy:.2%}" for task, accuracy in self.row.get("accuracy_by_task", {}).items())
        parts = f" = mean of {by_task}" if by_task else ""
        status = f" ({self.row['status']})" if self.row["status"] else ""
        seconds = f", {self.row['train_seconds']:.0f} s" if "train_seconds" in self.row else ""
        return f"accuracy {self.row['accuracy']:.2%}{parts}{status}{seconds}"

    @property
    def error_file(self) -> str:
        """Where the details of a failure are; empty where nothing could be written."""
        path = self.folder.path / "error.txt"
        return str(path) if path.is_file() else ""


def _end_of(run: Run, outcome: Outcome | None) -> _End:
    folder = latest_attempt(run)
    found = folder.condition()
    if outcome is None or outcome == "elsewhere":  # who trained it elsewhere may have ended since
        outcome = _outcome_by(found)
    if outcome in ("failed", "elsewhere"):
        return _End(run, folder, outcome)
    try:
        row = metrics_under(run.config.evaluation, folder, found)
        lacking = [name for name in ("accuracy", "status") if name not in row]
    except (OSError, ValueError) as error:
        return _End(run, folder, Outcome("failed", str(error)))
    if lacking:
        return _End(run, folder, Outcome("failed", f"metrics.json has no {', '.join(lacking)}"))
    return _End(run, folder, outcome, row)


def _outcome_by(found: Condition) -> Outcome:
    """Of a run of which only its folder tells."""
    if found.state == "finished":
        return Outcome("finished")
    if found.state == "running":
        return Outcome("elsewhere", "another process trains it")
    return Outcome("failed", found.reason or "it was not started")


def _row(ends: Sequence[_End]) -> dict[str, str]:
    """One cell of the paper's tables: accuracy in %, sample standard deviation, and what became of each run."""
    finished = [end.row for end in ends if end.row is not None]
    config = ends[0].run.config
    return {
        "model": markdown_text(config.model.shown),
        "task": markdown_text(config.task.shown),
        "method": markdown_text(ends[0].run.label),
        "accuracy": mean_and_std([100 * row["accuracy"] for row in finished]),
        "n": f"{len(finished)}/{len(ends)}",
        "collapsed": _count(finished, "collapsed"),
        "degenerate": _count(finished, "degenerate"),
        "failed": str(sum(end.outcome == "failed" for end in ends)),
    }


def _say_where_mixed(ends: Sequence[_End]) -> None:
    """Thread count and precision are no part of a run's identity but can change its numbers in the last digits."""
    finished = [end.row for end in ends if end.row is not None]
    for column, values in mixed(finished, ("precision", "threads", "device")).items():
        say(f"mixed {column} in {ends[0].run.label}: {', '.join(values)}")


def _count(rows: Iterable[dict[str, Any]], status: str) -> str:
    return str(sum(row["status"] == status for row in rows))
