"""Figure 4b: DSGD with other upper bounds τ of the scale γ_t, beside full fine-tuning.

python -m experiments.figure4b
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import figures
from experiments.figures import COLUMN, Drawing
from experiments.labels import settings_of
from experiments.names import model_title, task_title
from experiments.series import Series, panels_of, series_of, status_legend, strip

USUAL = 1.0  # the value that a label does not name


def figure(frame: pd.DataFrame) -> Drawing:
    """A panel for each model and task, τ ascending and full fine-tuning last, as it is DSGD with γ = 1."""
    series = series_of(frame)
    panels = list(panels_of(series))
    canvas, axes = figures.canvas(COLUMN, 0.4 + 2.0 * len(panels), len(panels), squeeze=False)
    for panel, (model, task, some) in zip(axes[:, 0], panels, strict=True):
        shown = sorted(some, key=lambda each: (each.preset != "dsgd", bound(each)))
        strip(panel, shown, [tau_title(each) for each in shown], rotation=40)
        panel.set(title=f"{model_title(model)}, {task_title(task)}", ylabel="accuracy (%)")
    status_legend(canvas, series)
    return Drawing(canvas, [record for each in series for record in each.records])


def bound(series: Series) -> float:
    """τ of DSGD's runs."""
    return float(settings_of(series.label).get("tau", USUAL))


def tau_title(series: Series) -> str:
    """``τ = 0.3``; FFT as it is."""
    return f"τ = {bound(series):g}" if series.preset == "dsgd" else series.title


if __name__ == "__main__":
    sys.exit(figures.main("figure4b", figure))
