"""Gradients a thousand times too large at two steps, met in three ways (arXiv:2502.17055).

python -m experiments.gradient_spikes          table and figure
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import figures
from experiments.comparison import comparison
from experiments.figures import COLUMN, Drawing
from experiments.labels import settings_of
from experiments.names import model_title, task_title
from experiments.series import Series, panels_of, series_of, status_legend, strip
from experiments.tables import Table

CAPTION = "Gradient spikes. Accuracy where nothing, clipping or GradientStabilizer meets them."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, {})


def figure(frame: pd.DataFrame) -> Drawing:
    """Accuracies of the runs, a panel for each model and task."""
    series = series_of(frame)
    panels = list(panels_of(series))
    canvas, axes = figures.canvas(COLUMN, 0.4 + 2.3 * len(panels), len(panels), squeeze=False)
    for panel, (model, task, shown) in zip(axes[:, 0], panels, strict=True):
        strip(panel, shown, [remedy(each) for each in shown], rotation=30)
        panel.set(title=f"{model_title(model)}, {task_title(task)}", ylabel="accuracy (%)")
    status_legend(canvas, series)
    return Drawing(canvas, [record for each in series for record in each.records])


def remedy(series: Series) -> str:
    """What meets the spikes."""
    parts = series.runs[0]["facts"].parts
    if "transform=gradient_stabilizer" in parts:
        return "GradientStabilizer"
    return "nothing" if settings_of(series.label).get("clip") == "0" else "clipping"


if __name__ == "__main__":
    sys.exit(figures.main("gradient_spikes", figure, table=draw))
