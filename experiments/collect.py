"""From a named experiment and a results folder to one row per planned run; nothing planned is ever left out.

Rows and columns of every table and figure come from here, and from nothing but the experiment and the run folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dsgd.rows import Row
from dsgd.runs import RunFolder
from dsgd.summary import metrics_under
from experiments.grid import PlannedRun, grid
from experiments.states import Found, look

#: What a row has of the plan, whatever became of the run.
PLANNED = ("id", "cell_id", "model", "task", "method", "preset", "seed", "variants", "overrides", "facts")

#: What can change a run's numbers without being part of its identity; a cell that mixes them says so.
SURROUNDINGS = ("precision", "threads", "device", "torch", "transformers", "numpy")


class LackingMetrics(Exception):  # noqa: N818 - says what is the matter
    """A finished run of another version's, which did not write what tables need."""


def collect(experiment: str, results: Path, overrides: tuple[str, ...] = ()) -> pd.DataFrame:
    """One row per run that the experiment plans, in its order, whatever became of it.

    Args:
        experiment: a name under ``conf/experiment/``.
        results: the folder that holds ``runs/``.
        overrides: as for ``run.py`` beside ``experiment=...``.

    Returns:
        Columns that every row has: ``id``, ``cell_id``, ``model``, ``task``, ``method`` (its label), ``preset``,
        ``seed``, ``variants`` (names of further averages of one training: tuple), ``overrides`` (for ``run.py``:
        tuple), ``facts`` (:class:`experiments.grid.Facts`), ``state`` (finished, failed, running, missing), ``reason``
        (why it is not finished, else empty) and ``folder`` (Path; None where there is none). Finished rows have the
        keys of ``metrics.json`` too (accuracies in [0, 1]), the status by the experiment's thresholds, and as text
        what may differ between the runs of a cell (``SURROUNDINGS``).

    Raises:
        ConfigErrors: there is no such experiment, or an override is wrong.

    A finished run whose files do not give these numbers (they are damaged, of another version, or the predictions that
    other thresholds need are gone) counts as failed and says why.
    """
    return gather(grid(experiment, overrides), results)


def gather(runs: Sequence[PlannedRun], results: Path) -> pd.DataFrame:
    """The same for runs that are known already."""
    return pd.DataFrame([_row(found) for found in look(runs, results)])


def _row(found: Found) -> dict[str, Any]:
    """The plan first, and last: what an older command line called the run does not overwrite it."""
    plan = _plan(found)
    try:
        return {**plan, **_metrics(found), **plan}
    except LackingMetrics as error:
        return {**plan, "state": "failed", "reason": f"{error}; force=true trains it again"}
    except (OSError, ValueError) as error:
        return {**plan, "state": "failed", "reason": str(error)}


def _plan(found: Found) -> dict[str, Any]:
    """What every row has."""
    planned = {name: getattr(found.run, name) for name in PLANNED}
    folder = found.folder.path if found.folder else None
    return {**planned, "state": found.state, "reason": found.reason, "folder": folder}


def _metrics(found: Found) -> dict[str, Any]:
    if found.state != "finished" or found.folder is None:
        return {}
    lacking = list(_lacking(found.run, found.condition.row))
    if lacking:
        raise LackingMetrics(f"metrics.json has no {', '.join(lacking)}")
    metrics = metrics_under(found.run.evaluation, found.folder, found.condition)
    return {**metrics, **_surroundings(metrics, found.folder)}


def _lacking(run: PlannedRun, row: Row) -> Iterator[str]:
    """What a finished run's row has not, without which it is no entry of a table."""
    parts = run.task.split("+") if "+" in run.task else []
    for quantity in ("accuracy", "status"):
        yield from (key for suffix in ("", *run.variants) if (key := f"{quantity}_{suffix}".strip("_")) not in row)
        yield from (f"{quantity} of {part}" for part in parts if part not in row.get(f"{quantity}_by_task", {}))


def _surroundings(metrics: dict[str, Any], folder: RunFolder) -> dict[str, str]:
    known = {**folder.packages, **metrics}
    return {name: str(known[name]) for name in SURROUNDINGS if name in known}
