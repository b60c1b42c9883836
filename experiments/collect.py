"""From a named experiment and a results folder to one row per planned run; nothing planned is ever left out.

Rows and columns of every table and figure come from here, and from nothing but the experiment and the run folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dsgd.runs import DIAGNOSTIC_FILES, RunFolder, scan
from dsgd.summary import metrics_under
from experiments.grid import PlannedRun, grid

#: What a row has of the plan, whatever became of the run.
PLANNED = ("id", "cell_id", "model", "task", "method", "preset", "seed", "variants")

#: What can change a run's numbers without being part of its identity; a cell that mixes them says so.
SURROUNDINGS = ("precision", "threads", "device", "torch", "transformers", "numpy")


def collect(experiment: str, results: Path, overrides: tuple[str, ...] = ()) -> pd.DataFrame:
    """One row per run that the experiment plans, in its order, whatever became of it.

    Args:
        experiment: a name under ``conf/experiment/``.
        results: the folder that holds ``runs/``.
        overrides: as for ``run.py`` beside ``experiment=...``.

    Returns:
        Columns that every row has: ``id``, ``cell_id``, ``model``, ``task``, ``method`` (its label), ``preset``,
        ``seed``, ``variants`` (names of further averages of one training: tuple), ``state`` (finished, failed,
        running, missing), ``reason`` (of a failure, else empty) and ``folder`` (Path; None where there is none).
        Finished rows have the keys of ``metrics.json`` too (accuracies in [0, 1]), the status by the experiment's
        thresholds, and as text what may differ between the runs of a cell (``SURROUNDINGS``).

    Raises:
        ConfigErrors: there is no such experiment, or an override is wrong.
    """
    return gather(grid(experiment, overrides), results)


def gather(runs: Sequence[PlannedRun], results: Path) -> pd.DataFrame:
    """The same for runs that are known already."""
    folders = {folder.path.name.rpartition("-")[2]: folder for folder in scan(results)}
    return pd.DataFrame([{**_plan(run), **_outcome(run, folders.get(run.id))} for run in runs])


def _plan(run: PlannedRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in PLANNED}


def _outcome(run: PlannedRun, folder: RunFolder | None) -> dict[str, Any]:
    """State and numbers of one run; a name in the plan is not overwritten by what an older run was called."""
    if folder is None:
        return {"state": "missing", "reason": "", "folder": None}
    state = folder.state
    found = {"state": state, "reason": folder.reason if state == "failed" else "", "folder": folder.path}
    if state != "finished":
        return found
    lacking = DIAGNOSTIC_FILES.get(run.diagnostics)
    if lacking and not (folder.path / lacking).exists():
        return {**found, "state": "missing", "reason": f"trained without {lacking}"}
    metrics = metrics_under(run.evaluation, folder)
    return {**metrics, **_surroundings(metrics, folder), **_plan(run), **found}


def _surroundings(metrics: dict[str, Any], folder: RunFolder) -> dict[str, str]:
    known = {**(folder.read("environment.json") or {}).get("packages", {}), **metrics}
    return {name: str(known[name]) for name in SURROUNDINGS if name in known}
