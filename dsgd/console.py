"""What a person sees of runs: a line as each ends, a folder at the end of one, a table at the end of a sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from dsgd.config.compose import Run
from dsgd.execution import Outcome
from dsgd.runs import RunFolder, latest_attempt
from dsgd.summary import markdown_table, mean_and_std, metrics_under, mixed


def say(text: str) -> None:
    """One line on standard output, at once, so that workers' lines do not mix; of several ranks the first speaks."""
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def ended(run: Run, outcome: Outcome) -> None:
    """One line for a run that has just ended, was skipped, or trains elsewhere."""
    folder = latest_attempt(run)
    name = f"{run.config.model.shown} {run.config.task.shown} {run.label} seed {run.config.seed}"
    say(f"{outcome:9} {name}: {_result(run, folder, outcome)}")


def single(run: Run) -> int:
    """Close a single run: the folder's path is the last line. Returns the exit code."""
    folder = latest_attempt(run)
    if folder.state == "failed":
        say(f"details: {folder.path / 'error.txt'}")
    say(str(folder.path))
    return 0 if folder.state == "finished" else 1


def sweep(runs: list[Run]) -> int:
    """Close a sweep: a row a cell, then what must be known of single runs. Returns the exit code.

    Runs that another process still trains count neither as finished nor as failed.
    """
    cells: dict[str, list[Run]] = {}
    for run in runs:
        cells.setdefault(run.cell_id, []).append(run)
    say("")
    rows = [_row(cell) for cell in cells.values()]
    for line in markdown_table([list(rows[0]), *(list(row.values()) for row in rows)]):
        say(line)
    for cell in cells.values():
        _say_where_mixed(cell)
    failed = 0
    for run in runs:
        folder = latest_attempt(run)
        if folder.state == "running":
            say(f"running elsewhere: {run.label} seed {run.config.seed}")
        elif folder.state != "finished":
            failed += 1
            say(f"failed: {run.label} seed {run.config.seed}: {folder.reason} ({folder.path / 'error.txt'})")
    return 1 if failed else 0


def _result(run: Run, folder: RunFolder, outcome: Outcome) -> str:
    if outcome == "failed":
        return folder.reason
    if outcome == "elsewhere":
        return "another process trains it"
    row = metrics_under(run.config.evaluation, folder)
    by_task = ", ".join(f"{task} {accuracy:.2%}" for task, accuracy in row.get("accuracy_by_task", {}).items())
    parts = f" = mean of {by_task}" if by_task else ""
    return f"accuracy {row['accuracy']:.2%}{parts} ({row['status']}), {row['train_seconds']:.0f} s"


def _row(runs: list[Run]) -> dict[str, str]:
    """One cell of the paper's tables: accuracy in %, sample standard deviation, and what became of each run."""
    folders = [(run, latest_attempt(run)) for run in runs]
    finished = [metrics_under(run.config.evaluation, folder) for run, folder in folders if folder.state == "finished"]
    config = runs[0].config
    return {
        "model": config.model.shown,
        "task": config.task.shown,
        "method": runs[0].label,
        "accuracy": mean_and_std([100 * row["accuracy"] for row in finished]),
        "n": f"{len(finished)}/{len(runs)}",
        "collapsed": _count(finished, "collapsed"),
        "degenerate": _count(finished, "degenerate"),
        "failed": str(sum(folder.state in ("failed", "missing") for _, folder in folders)),
    }


def _say_where_mixed(runs: list[Run]) -> None:
    """Thread count and precision are no part of a run's identity but can change its numbers in the last digits."""
    finished = [folder.metrics for run in runs if (folder := latest_attempt(run)).state == "finished"]
    for column, values in mixed(finished, ("precision", "threads", "device")).items():
        say(f"mixed {column} in {runs[0].label}: {', '.join(values)}")


def _count(rows: Iterable[dict[str, Any]], status: str) -> str:
    return str(sum(row["status"] == status for row in rows))
