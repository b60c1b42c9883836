"""The runs that a figure draws together: those of one model, task and method, under the name that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from experiments.cells import Cell, Column, Record, cell_of, finished, groups_of
from experiments.figures import GREY, Look, look_of, mark, status_handles, told
from experiments.labels import parse
from experiments.names import method_title, variant_title
from experiments.samples import without_common_changes
from experiments.tables import Value


@dataclass(frozen=True)
class Series:
    """Runs that differ in their seed alone."""

    model: str
    task: str
    label: str  # the method's, without what all methods of the figure share
    variant: str  # of the averages of one training; else empty
    runs: Sequence[Record]

    @property
    def title(self) -> str:
        """As figures write it."""
        return variant_title(self.label, self.variant) if self.variant else method_title(self.label)

    @property
    def preset(self) -> str:
        """The method that it is, or is a variant of."""
        return str(self.runs[0]["preset"])

    @property
    def look(self) -> Look:
        """Its preset's."""
        return look_of(self.preset)

    @cached_property
    def cell(self) -> Cell:
        """Accuracies in % and statuses of the finished runs."""
        return cell_of(self.runs, Column(self.task), self.variant)

    @property
    def done(self) -> list[Record]:
        """The finished runs, in the order of the cell's accuracies."""
        return finished(self.runs)

    @property
    def lacks(self) -> str:
        """``7 of 10 runs, 3 missing``; empty where all have finished."""
        return "" if self.cell.n == len(self.runs) else told(pd.DataFrame(self.runs))

    @property
    def records(self) -> list[dict[str, Value]]:
        """A line for each planned run."""
        measured = iter(zip(self.cell.accuracies, self.cell.statuses, strict=True))
        lines: list[dict[str, Value]] = []
        for run in self.runs:
            accuracy, status = next(measured) if run["state"] == "finished" else (None, "")
            values = {"seed": run["seed"], "state": run["state"], "status": status, "accuracy": accuracy}
            lines.append({**self.names, **values})
        return lines

    @property
    def names(self) -> dict[str, Value]:
        """Columns of a CSV that say which series a line is of."""
        return {"model": self.model, "task": self.task, "method": self.title}


def series_of(frame: pd.DataFrame) -> list[Series]:
    """The series of what ``collect`` returns, in the order of the plan; each average of a training is one."""
    groups = groups_of(frame)
    labels = list(dict.fromkeys(label for _, label in groups))
    short = without_common_changes(labels) if len(labels) > 1 else {label: parse(label).name for label in labels}
    return [
        Series(model, task, short[label], variant, runs)
        for (model, label), tasks in groups.items()
        for task, runs in tasks.items()
        for variant in runs[0]["variants"] or ("",)
    ]


def panels_of(series: Sequence[Series]) -> Iterator[tuple[str, str, list[Series]]]:
    """Model, task and the series of both, a panel each."""
    for model, task in dict.fromkeys((each.model, each.task) for each in series):
        yield model, task, [each for each in series if (each.model, each.task) == (model, task)]


def strip(axes: Any, series: Sequence[Series], titles: Sequence[str], rotation: float = 0) -> None:
    """A column of points for each series, a point a run; beside it mean ± sample standard deviation.

    Beside its name stands what it lacks.
    """
    for x, each in enumerate(series):
        look, cell = each.look, each.cell
        for order, (accuracy, status) in enumerate(zip(cell.accuracies, cell.statuses, strict=True)):
            offset = 0.1 * (order % 3 - 1) - 0.08  # side by side, as seeds often agree
            axes.plot(x + offset, accuracy, linestyle="", zorder=3, **mark(status, look.colour, look.marker))
        if cell.mean is not None:
            axes.errorbar(x + 0.28, cell.mean, yerr=cell.std, color=GREY, marker="_", markersize=5, capsize=2, lw=0.8)
    pairs = zip(titles, series, strict=True)
    between = ", " if rotation else "\n"
    names = [f"{title}{between}{short_count(each)}" if each.lacks else title for title, each in pairs]
    turned = {"rotation": rotation, "ha": "right", "rotation_mode": "anchor"} if rotation else {}
    axes.set_xticks(range(len(series)), names, **turned)
    axes.set_xlim(-0.6, len(series) - 0.4)
    axes.grid(axis="y", color="#dddddd", linewidth=0.5)


def short_count(series: Series) -> str:
    """``7 of 10``: finished and planned runs, for where there is little room."""
    failed = f", {series.cell.failed} failed" if series.cell.failed else ""
    return f"{series.cell.n} of {len(series.runs)}{failed}"


def status_legend(figure: Any, series: Sequence[Series]) -> None:
    """Above all panels: what the marks mean."""
    handles = status_handles([status for each in series for status in each.cell.statuses])
    spread = Line2D([], [], color=GREY, marker="_", linestyle="", label="mean ± STD")
    figure.legend(handles=[*handles, spread], loc="outside upper center", ncols=4, handletextpad=0.1, columnspacing=1)
