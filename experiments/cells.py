"""What a table is made of: the runs of one model, task and method as a cell, and the cells of one method as a row."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from dsgd.summary import mixed
from experiments.collect import SURROUNDINGS
from experiments.labels import shared_settings, without
from experiments.printed import AVERAGE, Place, Printed
from experiments.statistics import Interval, bootstrap_interval

#: Even the whole range of n values holds their distribution's median only with probability 1 − 2^(1 − n), and no
#: bootstrap interval reaches beyond it: below six runs none can be a 95 % one.
RUNS_TO_JUDGE = 6

Record = Mapping[Hashable, Any]  # a row of what ``collect`` returns


class Column(NamedTuple):
    """A task; for a multi-task pair also the one of its tasks that is evaluated."""

    task: str
    part: str = ""


@dataclass(frozen=True)
class Cell:
    """The runs of one entry, or the ensembles of their models; accuracies in %."""

    planned: int  # runs
    accuracies: tuple[float, ...] = ()  # of the finished runs, or of the ensembles drawn
    statuses: tuple[str, ...] = ()  # of the same
    failed: int = 0
    running: int = 0
    missing: int = 0
    pool: int | None = None  # of ensembles: how many models they were drawn from
    mixed: Mapping[str, list[str]] | None = None  # surroundings in which the runs differ
    printed: Printed | None = None  # by the paper

    @property
    def n(self) -> int:
        """Accuracies that there are."""
        return len(self.accuracies)

    @property
    def mean(self) -> float | None:
        """None without a run."""
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation (ddof = 1); None below two runs."""
        return statistics.stdev(self.accuracies) if self.n > 1 else None

    @cached_property
    def interval(self) -> Interval:
        """95 % bootstrap interval of the mean; NaN below two runs."""
        return bootstrap_interval(self.accuracies)

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.mean is None or self.printed is None else self.mean - self.printed.mean

    @property
    def holds_printed(self) -> bool | None:
        """Whether the paper's mean lies in our interval, at the paper's two decimals.

        None where there is no such mean, or fewer runs than ``RUNS_TO_JUDGE``.
        """
        if self.printed is None or self.n < RUNS_TO_JUDGE:
            return None
        return self.printed.mean in Interval(*(round(end, 2) for end in self.interval))

    @property
    def all_collapsed(self) -> bool:
        """Whether every run that finished predicts one class."""
        return bool(self.statuses) and set(self.statuses) == {"collapsed"}

    def count(self, status: str) -> int:
        """Runs of this status."""
        return self.statuses.count(status)


class Average(NamedTuple):
    """Over a row's tasks, of the means and of the standard deviations; None where a task has none."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class Row:
    """One method of one model; ``cells`` in the order of the table's columns, None where nothing was planned."""

    model: str
    label: str  # the method's, as its runs have it
    cells: tuple[Cell | None, ...]
    variant: str = ""  # of the averages that one training was evaluated with
    size: int = 1  # of an ensemble
    printed_average: Printed | None = None

    @property
    def average(self) -> Average:
        """As the paper's last two columns."""
        present = [cell for cell in self.cells if cell is not None]
        return Average(_mean([cell.mean for cell in present]), _mean([cell.std for cell in present]))

    @property
    def tasks_with_runs(self) -> int:
        """How many cells have a run that finished."""
        return sum(cell is not None and cell.n > 0 for cell in self.cells)


def columns_of(frame: pd.DataFrame) -> list[Column]:
    """The tasks that an experiment plans, in its order; of a multi-task pair each task."""
    return [
        Column(task, part) for task in frame["task"].unique() for part in (task.split("+") if "+" in task else [""])
    ]


def groups_of(frame: pd.DataFrame) -> dict[tuple[str, str], dict[str, list[Record]]]:
    """(model, label) → task → its runs; the label without what all methods of that model and task share.

    Runs of one label but of different ``cell_id`` were trained differently and are never pooled: the later ones get a
    label that names their cell.
    """
    shared = shared_settings(frame)
    found: dict[tuple[str, str], dict[str, list[Record]]] = {}
    first: dict[tuple[str, str, str], str] = {}
    for record in frame.to_dict("records"):
        model, task, method, cell_id = (str(record[key]) for key in ("model", "task", "method", "cell_id"))
        label = without(method, shared[model, task])
        if first.setdefault((model, task, label), cell_id) != cell_id:
            label = f"{label} (cell {cell_id})"
        found.setdefault((model, label), {}).setdefault(task, []).append(record)
    return found


def places_of(tasks: Mapping[str, list[Record]], columns: Sequence[Column], size: int = 1) -> dict[Column, Place]:
    """Where the paper would print the runs of one row, for those columns that it has.

    It goes by the runs' whole label, so that only the paper's own methods have a place there.
    """
    first = {task: runs[0] for task, runs in tasks.items()}
    return {
        column: Place(str(first[column.task]["model"]), str(first[column.task]["method"]), size, *column)
        for column in columns
        if column.task in first
    }


def average_of(places: Sequence[Place], printed: Mapping[Place, Printed]) -> Printed | None:
    """The average that the paper prints over these places of one row; None where it averages others or is silent."""
    row = places[0]._replace(task=AVERAGE, part="")
    own = {place for place in printed if place._replace(task=AVERAGE, part="") == row} - {row}
    return printed.get(row) if own == set(places) else None


def rows_of(frame: pd.DataFrame, columns: Sequence[Column], printed: Mapping[Place, Printed]) -> list[Row]:
    """One row per model and method, and per average where one training was evaluated with several."""
    parts = any(column.part for column in columns)
    rows = []
    for (model, label), tasks in groups_of(frame).items():
        some = next(iter(tasks.values()))
        places = places_of(tasks, columns)
        average = average_of(list(places.values()), printed)
        for variant in ("",) if parts else some[0]["variants"] or ("",):
            cells = tuple(
                cell_of(tasks[column.task], column, variant, printed.get(places[column])) if column in places else None
                for column in columns
            )
            rows.append(Row(model, label, cells, variant, 1, average))
    return rows


def cell_of(runs: Sequence[Record], column: Column, variant: str = "", printed: Printed | None = None) -> Cell:
    """One entry, from the runs that were planned for it."""
    done = finished(runs)
    measured = [_measured(run, column, variant) for run in done]
    return Cell(
        planned=len(runs),
        accuracies=tuple(100 * accuracy for accuracy, _ in measured),
        statuses=tuple(status for _, status in measured),
        mixed=mixture_of(done),
        printed=printed,
        **states_of(runs),
    )


def states_of(runs: Sequence[Record]) -> dict[str, int]:
    """How many runs have failed, still run, or were never made."""
    return {state: sum(run["state"] == state for run in runs) for state in ("failed", "running", "missing")}


def finished(runs: Sequence[Record]) -> list[Record]:
    """Those that have numbers."""
    return [run for run in runs if run["state"] == "finished"]


def mixture_of(runs: Sequence[Record]) -> dict[str, list[str]]:
    """Surroundings in which finished runs differ."""
    known = [{key: run[key] for key in SURROUNDINGS if isinstance(run.get(key), str)} for run in runs]
    return mixed(known, SURROUNDINGS)


def _measured(run: Record, column: Column, variant: str) -> tuple[float, str]:
    """Accuracy in [0, 1] and status of one finished run."""
    if column.part:
        return run["accuracy_by_task"][column.part], run["status_by_task"][column.part]
    suffix = f"_{variant}" if variant else ""
    return run[f"accuracy{suffix}"], run[f"status{suffix}"]


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present and len(present) == len(values) else None
