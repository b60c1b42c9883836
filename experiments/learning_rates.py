"""Learning rates against each other, judged on a part of the training split that was held out.

python -m experiments.learning_rates

The rate that is best for full fine-tuning may then serve every method (METHODS 0): its choice never saw the evaluation
split.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import pandas as pd

from experiments import command
from experiments.cells import Cell, Column, Record, cell_of
from experiments.comparison import LEGEND, entry_of
from experiments.names import method_title, model_title, task_title
from experiments.tables import Entry, Table, Value, ranked

CAPTION = "Learning rates. Accuracy on the held-out part of the training split."

NOTES = (
    LEGEND[0],
    "Chosen: the rate of the highest mean, of equal ones the lowest; only where every planned run has finished.",
)

Line = tuple[str, str, str]  # model, task, preset
Rates = Mapping[float, Cell]


def draw(name: str, frame: pd.DataFrame) -> Table:
    """A line for each model, task and method; a column for each rate that the experiment sweeps."""
    lines = {
        line: {rate: cell_of(runs, Column(line[1])) for rate, runs in rates.items()} for line, rates in _runs(frame)
    }
    rates = sorted({rate for cells in lines.values() for rate in cells})
    return Table(
        name=name,
        caption=CAPTION,
        head=["Model", "Task", "Method", *(f"{rate:g}" for rate in rates), "Chosen"],
        groups=[
            [_entries(line, cells, rates) for line, cells in lines.items() if line[0] == model]
            for model in frame["model"].unique()
        ],
        notes=NOTES,
        records=[
            _record(line, rate, cell, chosen(cells)) for line, cells in lines.items() for rate, cell in cells.items()
        ],
    )


def chosen(cells: Rates) -> float | None:
    """The best rate; None while a run is missing."""
    means = {rate: cell.mean for rate, cell in sorted(cells.items()) if cell.n == cell.planned}
    if len(means) < len(cells):
        return None
    return max(means, key=lambda rate: means[rate] or 0.0)


def _runs(frame: pd.DataFrame) -> list[tuple[Line, dict[float, list[Record]]]]:
    found: dict[Line, dict[float, list[Record]]] = {}
    for record in frame.to_dict("records"):
        line = (record["model"], record["task"], record["preset"])
        found.setdefault(line, {}).setdefault(record["facts"].learning_rate, []).append(record)
    return list(found.items())


def _entries(line: Line, cells: Rates, rates: Sequence[float]) -> list[Entry]:
    model, task, preset = line
    shown = [cells.get(rate) for rate in rates]
    styles = ranked([None if cell is None else cell.mean for cell in shown])
    entries = [entry_of(cell)._replace(style=style) for cell, style in zip(shown, styles, strict=True)]
    best = chosen(cells)
    names = [Entry(model_title(model)), Entry(task_title(task)), Entry(method_title(preset))]
    return [*names, *entries, Entry("—" if best is None else f"{best:g}")]


def _record(line: Line, rate: float, cell: Cell, best: float | None) -> dict[str, Value]:
    model, task, preset = line
    return {
        "model": model,
        "task": task,
        "method": preset,
        "learning_rate": f"{rate:g}",
        "planned": cell.planned,
        "n": cell.n,
        "failed": cell.failed,
        "mean": cell.mean,
        "std": cell.std,
        "chosen": None if best is None else rate == best,
    }


if __name__ == "__main__":
    sys.exit(command.main("learning_rates", draw))
