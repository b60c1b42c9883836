"""Figures 9 and 10: accuracies of the runs of every method, a panel for each model and task; Figure 11 of images.

python -m experiments.figures9_11
python -m experiments.figures9_11 --experiment table2          Figure 11
"""

from __future__ import annotations

import math
import sys

import pandas as pd

from experiments import figures
from experiments.figures import COLUMN, PAGE, Drawing
from experiments.names import model_title, task_title
from experiments.series import panels_of, series_of, status_legend, strip

COLUMNS = 3


def figure(frame: pd.DataFrame) -> Drawing:
    """At most three panels a row."""
    series = series_of(frame)
    panels = list(panels_of(series))
    columns, rows = min(COLUMNS, len(panels)), math.ceil(len(panels) / COLUMNS)
    width = max(COLUMN, PAGE * columns / COLUMNS)
    canvas, axes = figures.canvas(width, 0.4 + 2.1 * rows, rows, columns, squeeze=False)
    for panel, (model, task, shown) in zip(axes.flat, panels, strict=False):
        strip(panel, shown, [each.title for each in shown], rotation=60)
        panel.set_title(f"{model_title(model)}, {task_title(task)}")
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    canvas.supylabel("accuracy (%)", fontsize=8)
    status_legend(canvas, series)
    return Drawing(canvas, [record for each in series for record in each.records])


if __name__ == "__main__":
    sys.exit(figures.main("figures9_11", figure))
