"""Figure 8: how many members of ENS×3 and ENS×5 have collapsed or degenerated, beside what the vote makes of them.

python -m experiments.figure8
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsgd.ensembles import as_predictions, majority_vote
from dsgd.evaluation import Predictions
from experiments import figures
from experiments.bagging import accuracy, drawn_from, voters
from experiments.cells import Record
from experiments.figures import COLUMN, FAILURES, Drawing, say
from experiments.names import ensemble_title, model_title, task_title
from experiments.series import Series, series_of

SIZES = (3, 5)


@dataclass(frozen=True)
class Ensemble:
    """One of the drawn ones; shares and accuracies in %."""

    seeds: tuple[int, ...]
    shares: dict[str, float]  # of members by status, the failed ones
    vote: float
    members: float  # mean accuracy


def figure(frame: pd.DataFrame) -> Drawing:
    """A panel for each series of runs and each size: bars of failed members, points of accuracies."""
    series = series_of(frame)
    panels = [(each, size) for each in series for size in SIZES]
    canvas, axes = figures.canvas(COLUMN, 0.5 + 1.9 * len(panels), len(panels), squeeze=False, sharex=True)
    records: list[dict[str, Any]] = []
    for panel, (each, size) in zip(axes[:, 0], panels, strict=True):
        drawn = ensembles_of(each, size)
        _draw(panel, drawn, f"only {each.cell.n} of {len(each.runs)} runs: too few for {size} members")
        lacks = f"; {each.lacks}" if each.lacks else ""
        name = ensemble_title(each.label, size)
        panel.set_title(f"{name} of {model_title(each.model)}, {task_title(each.task)}{lacks}")
        records += [{**each.names, "size": size, **record_of(number, one)} for number, one in enumerate(drawn, 1)]
    axes[-1, 0].set_xlabel("ensemble")
    labelled = [panel for panel in axes[:, 0] if panel.get_legend_handles_labels()[0]]
    if labelled:
        canvas.legend(*labelled[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return Drawing(canvas, records)


def ensembles_of(series: Series, size: int) -> list[Ensemble]:
    """As many as runs are planned, drawn as those of Table 1 are; none where too few runs have finished."""
    pool = list(voters(series.done))
    drawn = drawn_from(pool, size, len(series.runs))
    members = () if drawn is None else drawn.members
    return [ensemble(*zip(*(pool[member] for member in chosen), strict=True)) for chosen in members]


def ensemble(runs: Sequence[Record], members: Sequence[Predictions]) -> Ensemble:
    """What a majority vote of these runs gives."""
    vote = as_predictions(majority_vote(members), members[0])
    shares = {status: 100 * float(np.mean([run["status"] == status for run in runs])) for status in FAILURES}
    mean = 100 * float(np.mean([run["accuracy"] for run in runs]))
    return Ensemble(tuple(run["seed"] for run in runs), shares, accuracy(vote), mean)


def record_of(number: int, one: Ensemble) -> dict[str, Any]:
    """A line of the CSV."""
    shares = {f"{status}_share": share for status, share in one.shares.items()}
    seeds = " ".join(map(str, one.seeds))
    return {"ensemble": number, "seeds": seeds, **shares, "ensemble_accuracy": one.vote, "mean_accuracy": one.members}


def _draw(axes: Any, drawn: list[Ensemble], nothing: str) -> None:
    axes.set(ylim=(0, 104), ylabel="%")
    if not drawn:
        say(axes, nothing)
        return
    numbers = np.arange(1, len(drawn) + 1)
    bottom = np.zeros(len(drawn))
    for (status, colour), hatch in zip(FAILURES.items(), ("", "///"), strict=True):
        shares = np.array([one.shares[status] for one in drawn])
        axes.bar(
            numbers, shares, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", label=f"{status} members"
        )
        bottom += shares
    axes.plot(numbers, [one.vote for one in drawn], "D-", color="#0072B2", ms=4, lw=0.8, label="accuracy of the vote")
    axes.plot(numbers, [one.members for one in drawn], "o:", color="black", ms=3, lw=0.8, label="mean of the members")
    axes.set_xticks(numbers)


if __name__ == "__main__":
    sys.exit(figures.main("figure8", figure))
