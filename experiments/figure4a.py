"""Figure 4a: DSGD with other functions for the scale γ_t of the correct examples, beside full fine-tuning.

python -m experiments.figure4a
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import figures
from experiments.figures import COLUMN, Drawing
from experiments.labels import settings_of
from experiments.names import model_title, task_title
from experiments.series import Series, panels_of, series_of, status_legend, strip


def figure(frame: pd.DataFrame) -> Drawing:
    """A panel for each model and task."""
    series = series_of(frame)
    panels = list(panels_of(series))
    canvas, axes = figures.canvas(COLUMN, 0.4 + 2.1 * len(panels), len(panels), squeeze=False)
    for panel, (model, task, shown) in zip(axes[:, 0], panels, strict=True):
        strip(panel, shown, [schedule_title(each) for each in shown], rotation=40)
        panel.set(title=f"{model_title(model)}, {task_title(task)}", ylabel="accuracy (%)")
    status_legend(canvas, series)
    return Drawing(canvas, [record for each in series for record in each.records])


def schedule_title(series: Series) -> str:
    """``dsgd[schedule=static,gamma=0.3]`` → γ = 0.3, ``dsgd[schedule=cosine]`` → cosine; FFT as it is."""
    if series.preset != "dsgd":
        return series.title
    settings = settings_of(series.label)
    return f"γ = {settings['gamma']}" if "gamma" in settings else settings.get("schedule", "linear")


if __name__ == "__main__":
    sys.exit(figures.main("figure4a", figure))
