"""What claims compare: the runs of a method, model and task as a sample, and the paper's values by the same names."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import NamedTuple, Protocol

import pandas as pd

from experiments import printed
from experiments.bagging import ensemble_rows
from experiments.cells import Cell, Column, Row, columns_of, finished, groups_of, rows_of
from experiments.labels import Label, parse


class Place(NamedTuple):
    """Where a sample or a printed value belongs.

    ``method`` is a label as tables have it; ``swa/swa3`` one of several averages, ``fft ×9`` an ensemble of nine.
    """

    model: str
    column: Column
    method: str


class Moments(Protocol):
    """A mean and a standard deviation of accuracies in %, of our runs or printed."""

    @property
    def mean(self) -> float: ...  # noqa: D102 - the class says it
    @property
    def std(self) -> float: ...  # noqa: D102


@dataclass(frozen=True)
class Sample:
    """Runs of one place; accuracies in %."""

    planned: int
    accuracies: tuple[float, ...]  # of the finished ones
    failures: int  # collapsed, degenerate or without a result
    ended: int  # with a result or failed
    seconds: tuple[float, ...] = ()  # of training, one a finished run

    @property
    def mean(self) -> float:
        """NaN without a run."""
        return fmean(self.accuracies) if self.accuracies else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation; NaN below two runs."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else math.nan

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            self.planned + other.planned,
            self.accuracies + other.accuracies,
            self.failures + other.failures,
            self.ended + other.ended,
            self.seconds + other.seconds,
        )


def samples_of(frame: pd.DataFrame) -> dict[Place, Sample]:
    """The samples of an experiment as ``collect`` returns it; what all of its labels share is left out of them."""
    columns = columns_of(frame)
    groups = groups_of(frame)
    names = without_common_changes([label for _, label in groups])
    found = {}
    for row in [*rows_of(frame, columns, {}), *ensemble_rows(frame, columns, {})]:
        for column, cell in zip(columns, row.cells, strict=True):
            if cell is not None:
                runs = finished(groups[row.model, row.label][column.task]) if row.size == 1 else []
                seconds = tuple(float(run["train_seconds"]) for run in runs if "train_seconds" in run)
                found[Place(row.model, column, _method(names[row.label], row))] = _sample(cell, seconds)
    return found


@cache
def printed_values(table: str) -> dict[Place, Moments]:
    """A table of the paper by its name, without the printed averages; empty for no table."""
    readers = {"table1": printed.table1, "table2": printed.table2, "table6": printed.table6}
    values = readers[table]() if table else {}
    return {
        Place(place.model, Column(place.task, place.part), _ensemble(place.method, place.size)): value
        for place, value in values.items()
        if place.task != printed.AVERAGE
    }


def pools(samples: Mapping[Place, Sample], names: Sequence[str]) -> dict[Place, Sample]:
    """For each name that ends in ``*``, the single runs of that name with any changed keys, pooled into one sample."""
    found: dict[Place, Sample] = {}
    for name in names:
        for place, sample in samples.items():
            if name.endswith("*") and place.method.partition("[")[0] == name[:-1] and "×" not in place.method:
                pool = place._replace(method=name)
                found[pool] = found[pool] + sample if pool in found else sample
    return found


def without_common_changes(labels: Sequence[str]) -> dict[str, str]:
    """Each label without the slots and keys that all of them change; one label alone stays as it is.

    ``fft+spikes[steps=[20, 40],clip=0]`` beside ``dsgd+spikes[steps=[20, 40]]`` is ``fft[clip=0]``.
    """
    parsed = {label: parse(label) for label in labels}
    if len(parsed) < 2:
        return {label: label for label in labels}
    slots = set.intersection(*(set(label.name.split("+")[1:]) for label in parsed.values()))
    settings = set.intersection(*(set(label.settings) for label in parsed.values()))
    return {
        text: str(Label(_without(label.name, slots), _kept(label.settings, settings))) for text, label in parsed.items()
    }


def _without(name: str, slots: Collection[str]) -> str:
    preset, *own = name.split("+")
    return "+".join([preset, *_kept(own, slots)])


def _kept(own: Sequence[str], common: Collection[str]) -> tuple[str, ...]:
    return tuple(each for each in own if each not in common)


def _method(name: str, row: Row) -> str:
    return f"{name}/{row.variant}" if row.variant else _ensemble(name, row.size)


def _ensemble(name: str, size: int) -> str:
    return f"{name} ×{size}" if size > 1 else name


def _sample(cell: Cell, seconds: tuple[float, ...]) -> Sample:
    failures = cell.failed + cell.count("collapsed") + cell.count("degenerate")
    return Sample(cell.planned, cell.accuracies, failures, cell.n + cell.failed, seconds)
