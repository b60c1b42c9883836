"""Figure 4d: norm and cosine of the gradients over the steps of full fine-tuning and, from the same seed, of DSGD.

python -m experiments.figure4d
"""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd

from experiments import figures
from experiments.cells import Record
from experiments.figures import COLUMN, PAGE, Drawing, legend_above, look_of, records_of, whole_steps
from experiments.gradients import MEASURES, conflict, draw_cosine, draw_norm, run_title, steps_of
from experiments.names import method_title


def figure(frame: pd.DataFrame) -> Drawing:
    """For each seed its norms and, below, its cosines; of DSGD the norm with and without its γ_t."""
    seeds = list(frame["seed"].unique())
    width = COLUMN if len(seeds) == 1 else max(PAGE, COLUMN * len(seeds))
    canvas, axes = figures.canvas(width, 4.2, 2, len(seeds), squeeze=False, sharex="col", sharey="row")
    records: list[dict[str, Any]] = []
    for column, seed in zip(axes.T, seeds, strict=True):
        for run in frame[frame["seed"] == seed].to_dict("records"):
            steps = steps_of(run)
            _draw(column[0], column[1], run, steps)
            of_run = {"seed": seed, "method": run["method"], "state": run["state"]}
            records += [{**of_run, **line} for line in records_of(steps[["step", *MEASURES]])]
        column[1].set_xlabel("optimiser step")
        whole_steps(column[1])
        legend_above(column[0], title=f"seed {seed}")
        legend_above(column[1], title="cosine of the gradients of W and C")
    axes[0, 0].set_ylabel("gradient norm")
    axes[1, 0].set_ylabel("cosine")
    return Drawing(canvas, records)


def _draw(norms: Any, cosines: Any, run: Record, steps: pd.DataFrame) -> None:
    name, look = method_title(str(run["preset"])), look_of(str(run["preset"]))
    what = run_title(run) if run["state"] != "finished" or len(steps) else f"{run_title(run)}, no diagnostics"
    if run["preset"] == "fft":
        draw_norm(norms, steps, "norm_raw", look, what.replace(f", seed {run['seed']}", ""))
    else:
        draw_norm(norms, steps, "norm_effective", look, what.replace(f", seed {run['seed']}", ""))
        draw_norm(norms, steps, "norm_raw", look, f"{name}, were γ = 1", linewidth=0.6, alpha=0.6, linestyle=":")
    draw_cosine(cosines, steps, look, f"{name}: {conflict(steps)}")


if __name__ == "__main__":
    sys.exit(figures.main("figure4d", figure))
