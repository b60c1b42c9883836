"""Ensembles as rows of a table: drawn from an experiment's finished runs, computed from their stored predictions."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dsgd.config.schema import Evaluation
from dsgd.ensembles import Sample, as_predictions, majority_vote, sample_ensembles
from dsgd.evaluation import Predictions, status
from dsgd.runs import RunFolder
from dsgd.summary import predictions_of
from experiments.cells import (
    Cell,
    Column,
    Record,
    Row,
    average_of,
    finished,
    groups_of,
    mixture_of,
    places_of,
    states_of,
)
from experiments.printed import Place, Printed

_log = logging.getLogger(__name__)

#: Of which presets the paper reports ensembles, and of how many members.
SIZES = {"fft": (3, 5, 7, 9), "dsgd": (9,)}


def ensemble_rows(frame: pd.DataFrame, columns: Sequence[Column], printed: Mapping[Place, Printed]) -> list[Row]:
    """A row for each size that the planned runs suffice for.

    As many ensembles as runs are planned are drawn from the pool of finished runs, without replacement inside
    (METHODS 9); they share members, so that their spread is narrower than that of independent ones.
    """
    rows = []
    for (model, label), tasks in groups_of(frame).items():
        some = next(iter(tasks.values()))
        sizes = [size for size in SIZES.get(str(some[0]["preset"]), ()) if size <= len(some)]
        pools = {task: pool_of(runs) for task, runs in tasks.items()} if sizes else {}
        for size in sizes:
            places = places_of(tasks, columns, size)
            cells = tuple(
                _cell(tasks[column.task], pools[column.task], column.part, size, printed.get(places[column]))
                if column in places
                else None
                for column in columns
            )
            rows.append(Row(model, label, cells, "", size, average_of(list(places.values()), printed)))
    return rows


def pool_of(runs: Sequence[Record]) -> list[Predictions]:
    """The stored predictions of the runs that finished and can still vote."""
    return [predictions for _, predictions in voters(runs)]


def voters(runs: Sequence[Record]) -> Iterator[tuple[Record, Predictions]]:
    """The finished runs whose stored predictions can still be read, and these."""
    for run in finished(runs):
        try:
            predictions = predictions_of(RunFolder(run["folder"]))
        except (OSError, ValueError) as error:  # gone, or damaged
            _log.warning("%s; left out of the ensembles", error)
        else:
            yield run, predictions


def _cell(runs: Sequence[Record], pool: Sequence[Predictions], part: str, size: int, printed: Printed | None) -> Cell:
    done = finished(runs)
    drawn = [ensemble.by_task()[part] if part else ensemble for ensemble in votes(pool, size, len(runs))]
    return Cell(
        planned=len(runs),
        accuracies=tuple(accuracy(ensemble) for ensemble in drawn),
        statuses=tuple(status(ensemble, thresholds_of(done[0])) for ensemble in drawn),
        pool=len(pool),
        mixed=mixture_of(done),
        printed=printed,
        **states_of(runs),
    )


def votes(pool: Sequence[Predictions], size: int, draws: int) -> list[Predictions]:
    """What the ensembles say that ``drawn_from`` gives."""
    drawn = drawn_from(pool, size, draws)
    members = () if drawn is None else drawn.members
    return [as_predictions(majority_vote([pool[member] for member in chosen]), pool[0]) for chosen in members]


def drawn_from(pool: Sequence[Any], size: int, draws: int) -> Sample | None:
    """``draws`` ensembles, always the same; fewer where the pool does not hold as many, None where it holds none."""
    draws = min(draws, math.comb(len(pool), size))
    return sample_ensembles(pool, size, draws, seed=0) if draws else None


def thresholds_of(run: Record) -> Evaluation:
    """By which the status of a finished run was decided."""
    return Evaluation(**run["thresholds"])


def accuracy(predictions: Predictions) -> float:
    """Share of right predictions, in %."""
    return 100 * float(np.mean(predictions.predictions == predictions.labels))
