"""How much accuracy depends on weight decay, with GradientStabilizer and without (arXiv:2502.17055).

python -m experiments.weight_decay_sensitivity
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments import figures
from experiments.comparison import comparison
from experiments.figures import COLUMN, Drawing, legend_above, told
from experiments.names import method_title, model_title, task_title
from experiments.series import Series, panels_of, series_of
from experiments.tables import Table

CAPTION = "Weight decay. Accuracy with GradientStabilizer and without."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, {})


def figure(frame: pd.DataFrame) -> Drawing:
    """Mean accuracy ± sample standard deviation by weight decay, a panel for each model and task."""
    series = series_of(frame)
    panels = list(panels_of(series))
    canvas, axes = figures.canvas(COLUMN, 2.6 * len(panels), len(panels), squeeze=False)
    for panel, (model, task, shown) in zip(axes[:, 0], panels, strict=True):
        for number, preset in enumerate(dict.fromkeys(each.preset for each in shown)):
            _line(panel, [each for each in shown if each.preset == preset], number)
        decays = list(dict.fromkeys(map(weight_decay, shown)))
        panel.set_xticks(range(len(decays)), decays)
        panel.set(xlabel="weight decay", ylabel="accuracy (%)")
        legend_above(panel, f"{model_title(model)}, {task_title(task)}")
    return Drawing(
        canvas, [{**record, "weight_decay": weight_decay(each)} for each in series for record in each.records]
    )


def weight_decay(series: Series) -> str:
    """As the experiment names it: a label leaves out the model's own, which ``usual`` stands for if none is named."""
    overrides: tuple[str, ...] = series.runs[0]["overrides"]
    return next((text.partition("=")[2] for text in overrides if text.startswith("trainer.weight_decay=")), "usual")


def _line(axes: Any, series: Sequence[Series], number: int) -> None:
    """One method; a little to the right of the one before, so that their bars do not hide each other."""
    look, lacks = series[0].look, told(pd.DataFrame([run for each in series for run in each.runs]))
    means = [math.nan if each.cell.mean is None else each.cell.mean for each in series]
    spreads = [math.nan if each.cell.std is None else each.cell.std for each in series]
    label = method_title(series[0].preset) + (f" ({lacks})" if any(each.lacks for each in series) else "")
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.line, "markersize": 4}
    axes.errorbar(
        [x + 0.08 * number for x in range(len(series))], means, spreads, capsize=2, elinewidth=0.8, label=label, **style
    )


if __name__ == "__main__":
    sys.exit(figures.main("weight_decay_sensitivity", figure, table=draw))
