"""Figure 2: what a failed and a successful run look like inside.

python -m experiments.figure2
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from experiments import figures
from experiments.cells import Record
from experiments.figures import COLUMN, PAGE, Drawing, Look, records_of, say, whole_steps
from experiments.gradients import MEASURES, conflict, draw_cosine, draw_norm, loaded, run_title, steps_of

#: The paper draws the norm in blue and the cosine in green; no method is told by colour here.
NORM, COSINE = Look("#0072B2", "."), Look("#009E73", ".")


def figure(frame: pd.DataFrame) -> Drawing:
    """A column for each run, the worst first: similarities of ten examples, gradient norms, cosines of W and C."""
    runs = sorted(frame.to_dict("records"), key=_accuracy)
    canvas, axes = figures.canvas(
        max(PAGE, COLUMN * len(runs)), 6.4, 3, len(runs), squeeze=False, height_ratios=(2.6, 1, 1)
    )
    records: list[dict[str, Any]] = []
    for column, run in zip(axes.T, runs, strict=True):
        column[0].set_title(run_title(run))
        similarities(column[0], run)
        records += gradients(column[1], column[2], run)
    return Drawing(canvas, records)


def similarities(axes: Any, run: Record) -> None:
    """Cosines between the trained model's representations of ten training examples, by class."""
    stored = loaded(run, "representations.npz", _arrays)
    if stored is None:
        axes.set(xticks=[], yticks=[])
        say(axes, "no representations")
        return
    matrix, labels = stored["cosine_after"], stored["labels"]
    within, between = float(stored["within_after"]), float(stored["between_after"])
    image = axes.imshow(matrix, cmap="viridis")
    axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0, 0.05, 1)))
    axes.set_xticks(range(len(labels)), labels)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel(f"class; mean cosine within {within:.3f}, between {between:.3f}")
    axes.spines[:].set_visible(False)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    with np.load(path) as stored:
        return {name: stored[name] for name in ("cosine_after", "labels", "within_after", "between_after")}


def gradients(norms: Any, cosines: Any, run: Record) -> list[dict[str, Any]]:
    """Norm of the step's gradient and cosine between its parts from W and C; returns what was drawn."""
    steps = steps_of(run)
    draw_norm(norms, steps, "norm_raw", NORM, "")
    draw_cosine(cosines, steps, COSINE, "")
    norms.set_ylabel("gradient norm")
    whole_steps(cosines)
    whole_steps(norms)
    cosines.set(ylabel="cosine W, C", xlabel="optimiser step")
    cosines.set_title(conflict(steps), fontsize=7)
    return [{"seed": run["seed"], "method": run["method"], **line} for line in records_of(steps[["step", *MEASURES]])]


def _accuracy(run: Record) -> float:
    """Runs without one last."""
    return float(run["accuracy"]) if run["state"] == "finished" else np.inf


if __name__ == "__main__":
    sys.exit(figures.main("figure2", figure))
