"""Figure 3: training time per epoch against accuracy, for every method and for ensembles of its runs.

python -m experiments.figure3

Times compare only where nothing else ran on the device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pandas as pd

from experiments import figures
from experiments.bagging import ensemble_rows
from experiments.cells import Cell, Record, columns_of
from experiments.comparison import row_title
from experiments.figures import PAGE, Drawing, look_of
from experiments.names import model_title, task_title
from experiments.series import Series, panels_of, series_of


@dataclass(frozen=True)
class Dot:
    """A method, or an ensemble of its runs."""

    title: str
    preset: str
    size: int  # of an ensemble
    marker: str  # the method's; a number for an ensemble, or for one of several averages
    seconds: float | None  # an epoch, of all members together
    cell: Cell
    lacks: str


def figure(frame: pd.DataFrame) -> Drawing:
    """A panel for each model and task; the dot's diameter grows with the standard deviation."""
    series = series_of(frame)
    panels = list(panels_of(series))
    canvas, axes = figures.canvas(PAGE, 2.6 * len(panels), len(panels), squeeze=False)
    records: list[dict[str, Any]] = []
    for panel, (model, task, shown) in zip(axes[:, 0], panels, strict=True):
        dots = [*map(dot_of, shown), *ensembles(frame, model, task, shown)]
        _draw(panel, dots)
        panel.set(title=f"{model_title(model)}, {task_title(task)}", xlabel="training time per epoch (s)")
        panel.set_ylabel("accuracy (%)")
        records += [{"model": model, "task": task, **record_of(dot)} for dot in dots]
    return Drawing(canvas, records)


def dot_of(series: Series) -> Dot:
    """Single runs; their time is the mean over them."""
    times = [run["n_train"] / run["examples_per_second"] for run in series.done if _is_timed(run)]
    marker = f"${series.variant.removeprefix('swa')}$" if series.variant else series.look.marker
    return Dot(series.title, series.preset, 1, marker, fmean(times) if times else None, series.cell, series.lacks)


def _is_timed(run: Record) -> bool:
    return pd.notna(run.get("n_train")) and pd.notna(run.get("examples_per_second"))


def ensembles(frame: pd.DataFrame, model: str, task: str, singles: list[Series]) -> Iterator[Dot]:
    """Votes of runs of one method: as many times its time as they have members."""
    of_panel = frame[(frame["model"] == model) & (frame["task"] == task)]
    by_preset = {each.preset: dot_of(each) for each in singles}
    for row in ensemble_rows(of_panel, columns_of(of_panel), {}):
        single, cell = by_preset[row.label.partition("[")[0].partition("+")[0]], row.cells[0]
        if cell is not None and cell.n and single.seconds is not None:
            seconds = row.size * single.seconds
            yield Dot(row_title(row), single.preset, row.size, f"${row.size}$", seconds, cell, single.lacks)


def record_of(dot: Dot) -> dict[str, Any]:
    """A line of the CSV."""
    cell = dot.cell
    return {
        "method": dot.title,
        "members": dot.size,
        "seconds_per_epoch": dot.seconds,
        "accuracy_mean": cell.mean,
        "accuracy_std": cell.std,
        "n": cell.n,
        "planned": cell.planned,
    }


def _draw(axes: Any, dots: list[Dot]) -> None:
    for dot in dots:
        label = f"{dot.title} ({dot.lacks})" if dot.lacks else dot.title
        if dot.seconds is None or dot.cell.mean is None:
            axes.plot([], [], linestyle="", label=label)
            continue
        colour = look_of(dot.preset).colour
        spread = "" if dot.cell.std is None else f", ± {dot.cell.std:.2f}"
        axes.scatter(dot.seconds, dot.cell.mean, s=area(dot.cell.std), color=colour, alpha=0.35, linewidth=0)
        axes.plot(dot.seconds, dot.cell.mean, marker=dot.marker, color=colour, ms=5, ls="", label=label + spread)
    axes.margins(0.12)
    axes.set_axisbelow(True)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="method, ± STD (size of the dot)", title_fontsize=7)


def area(std: float | None) -> float:
    """Of a dot in square points: its diameter is 5 points and 2 for each percentage point of spread."""
    return (5 + 2 * (std or 0.0)) ** 2


if __name__ == "__main__":
    sys.exit(figures.main("figure3", figure))
