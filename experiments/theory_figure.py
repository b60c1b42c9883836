"""The figure of ``experiments.theory``: three panels at the width of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from experiments.theory import PROBLEMS, dominance, escape, pair_of_trainings, ramp
from experiments.toys import Array, Valley, overlapping, separable

mpl.use("Agg")

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"  # colour-blind safe (Okabe and Ito)


def draw(stem: Path) -> None:
    """Write ``stem``.png and ``stem``.pdf."""
    import matplotlib.pyplot as plt

    style = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        figure, axes = plt.subplots(3, 1, figsize=(3.4, 5.6), layout="constrained")
        valley(axes[0])
        bounds(axes[1])
        condition(axes[2])
        for suffix in (".png", ".pdf"):
            figure.savefig(stem.with_suffix(suffix), dpi=300)
        plt.close(figure)


def valley(axes: Any, steps: int = 300) -> None:
    """GD and DSGD from the point where W and C cancel."""
    start = Valley().cancellation(1.0)
    axes.plot(escape(ramp(steps), start).thetas, color=BLUE, label="DSGD, γ = t/T")
    axes.plot(escape(np.ones(steps), start).thetas, color=ORANGE, linestyle="--", label="GD")
    axes.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate("all correct above", (steps, 1), ha="right", va="bottom", color=GREY)
    axes.set(title="(a) From a gradient cancellation", xlabel="step", ylabel="θ")
    axes.legend(loc="upper left")


def bounds(axes: Any) -> None:
    """Equations 17 and 18 and what they bound, mean over the problems."""
    for dynamic, colour, name in ((False, ORANGE, "SGD"), (True, BLUE, "DSGD")):
        pairs = [pair_of_trainings(seed, dynamic) for seed in PROBLEMS]
        axes.plot(
            np.mean([pair.bounds for pair in pairs], axis=0), color=colour, linestyle="--", label=f"{name}, bound"
        )
        axes.plot(np.mean([pair.divergences for pair in pairs], axis=0), color=colour, label=f"{name}, measured")
    axes.set(title="(b) Divergence of two trainings", xlabel="step", ylabel="largest |ΔL|", yscale="log")
    axes.legend(fontsize=7, ncols=2, handlelength=1.6, loc="center", bbox_to_anchor=(0.55, 0.52))


def condition(axes: Any, window: int = 20) -> None:
    """How often condition (2) of Theorem 4.6 holds."""
    for make, line in ((overlapping, "-"), (separable, "--")):
        for tau, colour in ((0.1, BLUE), (1.0, ORANGE)):
            shares = 100 * smoothed(dominance(make, tau), window)
            axes.plot(shares, color=colour, linestyle=line, label=f"{make.__name__}, τ = {tau:g}")
    axes.set(title="(c) How often ‖$G_W$‖ ≥ τ‖$G_C$‖", xlabel="step", ylabel="% of problems", ylim=(-3, 103))
    axes.legend(fontsize=7, ncols=2, loc="center", bbox_to_anchor=(0.52, 0.74))


def smoothed(values: Array, window: int) -> Array:
    """Means over ``window`` neighbours."""
    return np.convolve(values, np.ones(window) / window, mode="valid")
