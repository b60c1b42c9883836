"""The values that the paper prints, as ``experiments/paper/*.csv`` holds them; accuracies in %."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

FOLDER = Path(__file__).parent / "paper"


class Printed(NamedTuple):
    """Mean and standard deviation of one entry of a table."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


class Place(NamedTuple):
    """Which entry; ``part`` is the task of a multi-task pair that is evaluated, and else empty."""

    model: str
    method: str
    size: int  # of an ensemble; 1 = single runs
    task: str
    part: str = ""


AVERAGE = "average"  # the task of a table's last columns


def table1() -> dict[Place, Printed]:
    """Table 1, its printed averages included."""
    cells = {
        Place(row["model"], row["method"], row["ensemble_size"], row["task"]): _value(row) for row in read("table1")
    }
    averages = read("table1_printed_averages")
    return cells | {Place(row["model"], row["method"], row["ensemble_size"], AVERAGE): _value(row) for row in averages}


def table2() -> dict[Place, Printed]:
    """Table 2, by our tasks' names: their ratio is that of the factor that was really used, not the one printed."""
    return {
        Place(row["model"], row["method"], 1, imbalanced_task(row["dataset"], row["imbalance"], row["factor"])): _value(
            row
        )
        for row in read("table2")
    }


def table6() -> dict[Place, Printed]:
    """Table 6, its printed averages included."""
    cells = {
        Place(row["model"], row["method"], 1, row["tasks"], row["evaluated_on"]): _value(row) for row in read("table6")
    }
    averages = read("table6_printed_averages")
    return cells | {Place(row["model"], row["method"], 1, AVERAGE): _value(row) for row in averages}


def imbalanced_task(dataset: str, kind: str, factor: float) -> str:
    """``cifar10_longtail_100``: a data set whose rarest class keeps ``factor`` = 1/100 of the most frequent one."""
    return f"{dataset}_{kind}_{round(1 / factor)}"


def read(name: str) -> list[dict[str, Any]]:
    """The rows of one of the CSV files, by its name without ending; None where an entry is empty."""
    return [
        {str(key): None if pd.isna(value) else value for key, value in row.items()}
        for row in pd.read_csv(FOLDER / f"{name}.csv").to_dict("records")
    ]


def _value(row: dict[str, Any]) -> Printed:
    return Printed(row["accuracy_mean"], row["accuracy_std"])
