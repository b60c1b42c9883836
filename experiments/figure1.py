"""Figure 1: accuracies of full fine-tuning over the seeds, a column a task, with the failed runs marked.

python -m experiments.figure1
python -m experiments.figure1 --experiment laptop/figure1
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import figures
from experiments.figures import COLUMN, Drawing
from experiments.names import model_title, task_title
from experiments.series import series_of, status_legend, strip


def figure(frame: pd.DataFrame) -> Drawing:
    """A panel for each model."""
    series = series_of(frame)
    models = list(dict.fromkeys(each.model for each in series))
    canvas, axes = figures.canvas(COLUMN, 0.4 + 1.8 * len(models), len(models), squeeze=False)
    for panel, model in zip(axes[:, 0], models, strict=True):
        shown = [each for each in series if each.model == model]
        strip(panel, shown, [task_title(each.task) for each in shown], rotation=35)
        panel.set(title=model_title(model), ylabel="accuracy (%)")
    status_legend(canvas, series)
    return Drawing(canvas, [record for each in series for record in each.records])


if __name__ == "__main__":
    sys.exit(figures.main("figure1", figure))
