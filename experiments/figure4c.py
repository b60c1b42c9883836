"""Figure 4c: accuracy over the epochs of DSGD, full fine-tuning and adapters that train few parameters.

python -m experiments.figure4c
"""

from __future__ import annotations

import math
import sys
from typing import Any

import pandas as pd

from dsgd.runs import RunFolder
from experiments import figures
from experiments.cells import Record
from experiments.figures import COLUMN, Drawing, legend_above, mark, records_of, status_handles, whole_steps
from experiments.gradients import loaded
from experiments.names import model_title, task_title
from experiments.series import Series, panels_of, series_of, short_count


def figure(frame: pd.DataFrame) -> Drawing:
    """Mean and, as a band, ± sample standard deviation over the seeds; at the end a mark for each failed run."""
    series = series_of(frame)
    panels = list(panels_of(series))
    canvas, axes = figures.canvas(COLUMN, 2.9 * len(panels), len(panels), squeeze=False)
    curves = {id(each): curves_of(each) for each in series}
    for panel, (model, task, shown) in zip(axes[:, 0], panels, strict=True):
        for each in shown:
            _draw(panel, each, curves[id(each)])
        panel.set(xlabel="epoch", ylabel="accuracy (%)")
        whole_steps(panel)
        failures = [status for each in shown for status in each.cell.statuses if status != "successful"]
        lines, _ = panel.get_legend_handles_labels()
        title = f"{model_title(model)}, {task_title(task)}"
        legend_above(panel, title, handles=[*lines, *status_handles(failures)], ncols=2)
    return Drawing(canvas, records_of(pd.concat(curves.values())))


def curves_of(series: Series) -> pd.DataFrame:
    """Accuracies in % at every evaluation: ``model``, ``task``, ``method``, ``seed``, ``epoch``, ``accuracy``."""
    lines = [
        {**series.names, "seed": run["seed"], "epoch": epoch_at(run, line["step"]), "accuracy": 100 * accuracy}
        for run in series.done
        if pd.notna(run.get("n_train"))  # without which its epochs are unknown
        for line in loaded(run, "history.jsonl", lambda path: RunFolder(path.parent).history) or ()
        if (accuracy := line.get("eval/accuracy")) is not None
    ]
    return pd.DataFrame(lines, columns=["model", "task", "method", "seed", "epoch", "accuracy"])


def epoch_at(run: Record, step: int) -> float:
    """Epochs that are over after a step; the last window of an epoch may be a smaller one."""
    return float(round(step / math.ceil(run["n_train"] / run["facts"].window), 6))


def _draw(axes: Any, series: Series, curves: pd.DataFrame) -> None:
    look = series.look
    title = f"{series.title}, {short_count(series)}" if series.lacks else series.title
    style = {"color": look.colour, "linestyle": look.line, "marker": look.marker, "markersize": 3, "label": title}
    if curves.empty:
        axes.plot([], [], **style)
        return
    over_seeds = curves.groupby("epoch")["accuracy"]
    mean, deviation = over_seeds.mean(), over_seeds.std()
    axes.plot(mean.index, mean, **style)
    axes.fill_between(mean.index, mean - deviation, mean + deviation, color=look.colour, alpha=0.12, linewidth=0)
    for accuracy, status in zip(series.cell.accuracies, series.cell.statuses, strict=True):
        if status != "successful":
            end = curves["epoch"].max() * 1.03
            axes.plot(end, accuracy, linestyle="", clip_on=False, **mark(status, look.colour, look.marker))


if __name__ == "__main__":
    sys.exit(figures.main("figure4c", figure))
