"""Curves of the gradients of W and C over the steps of a run, from its ``diagnostics.parquet``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import pandas as pd

from dsgd.files import DamagedError
from dsgd.runs import RunFolder
from experiments.cells import Record
from experiments.figures import GREY, Look
from experiments.names import method_title

T = TypeVar("T")
_log = logging.getLogger(__name__)

#: What is drawn of a step: means over the observed layers (METHODS 16).
MEASURES = ["norm_raw", "norm_effective", "cosine"]


def steps_of(run: Record) -> pd.DataFrame:
    """``step`` and ``MEASURES``, a row a step; the cosine is NaN where W or C was empty. Empty without the file."""
    table = loaded(run, "diagnostics.parquet", _means)
    return pd.DataFrame(columns=["step", *MEASURES]) if table is None else table


def _means(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path).groupby("step", as_index=False)[MEASURES].mean()


def loaded(run: Record, name: str, load: Callable[[Path], T]) -> T | None:
    """What ``load`` reads from a file of a run's folder; None where there is none or, with a warning, a bad one."""
    if not isinstance(run["folder"], Path):
        return None
    try:
        return load(RunFolder(run["folder"]).whole(name))
    except FileNotFoundError:
        return None
    except DamagedError as error:
        _log.warning("%s; left out", error)
    except (OSError, ValueError, LookupError, TypeError, BadZipFile) as error:
        _log.warning("%s cannot be read (%s); left out", run["folder"] / name, str(error).partition("\n")[0])
    return None


def run_title(run: Record) -> str:
    """``FFT, seed 132: collapsed, 55.0 %``, or what has become of it instead."""
    name = f"{method_title(str(run['preset']))}, seed {run['seed']}"
    if run["state"] != "finished":
        return f"{name}: {run['state']}"
    return f"{name}: {run['status']}, {100 * run['accuracy']:.1f} %"


def draw_norm(axes: Any, steps: pd.DataFrame, measure: str, look: Look, label: str, **style: Any) -> None:
    """A norm over the steps."""
    options = {"color": look.colour, "linestyle": "-", "linewidth": 0.9, **style}
    axes.plot(steps["step"], steps[measure], label=label, **options)


def draw_cosine(axes: Any, steps: pd.DataFrame, look: Look, label: str) -> None:
    """The cosine over the steps, a point a step: lines would join steps between which a group was empty."""
    axes.plot(steps["step"], steps["cosine"], ".", markersize=3, color=look.colour, label=label)
    axes.axhline(0, color=GREY, linewidth=0.6)
    axes.set_ylim(-1.05, 1.05)


def conflict(steps: pd.DataFrame) -> str:
    """How much W and C oppose each other, as the paper tells it."""
    cosine = steps["cosine"].dropna()
    if cosine.empty:
        return "no step with both groups"
    below, far_below = 100 * (cosine < 0).mean(), 100 * (cosine < -0.5).mean()
    return f"{below:.0f} % below 0, {far_below:.0f} % below −0.5, least {cosine.min():.2f}".replace("-", "−")
