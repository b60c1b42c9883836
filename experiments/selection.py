"""Settings against each other on a part of the training split that was held out, what is chosen, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from experiments.cells import Row, columns_of, finished, rows_of
from experiments.comparison import column_title, comparison, row_title
from experiments.names import model_title
from experiments.tables import Table


def selection(name: str, caption: str, frame: pd.DataFrame) -> Table:
    """A row for each setting, a column for each task, and the best setting of each model and task.

    The choice is by the mean over seeds, of equal ones the first; there is none while a planned run is missing, lest it
    rest on which runs happened to finish.
    """
    table = comparison(name, caption, frame, {})
    return replace(table, notes=[*table.notes, *_chosen(frame), *_budget(frame)])


def best(rows: Sequence[Row], column: int) -> Row | None:
    """The row with the highest mean; None while a run of the column is missing."""
    cells = [(row, cell) for row in rows if (cell := row.cells[column]) is not None]
    if not cells or any(cell.n < cell.planned for _, cell in cells):
        return None
    return max(cells, key=lambda found: found[1].mean or 0.0)[0]


def _chosen(frame: pd.DataFrame) -> Iterator[str]:
    columns = columns_of(frame)
    rows = rows_of(frame, columns, {})
    for model in frame["model"].unique():
        of_model = [row for row in rows if row.model == model]
        for position, column in enumerate(columns):
            row = best(of_model, position)
            what = "none yet, runs are missing" if row is None else row_title(row)
            yield f"Chosen for {model_title(model)} on {column_title(column)}: {what}."


def _budget(frame: pd.DataFrame) -> Iterator[str]:
    done = finished(frame.to_dict("records"))
    hours = sum(run["seconds"] for run in done if pd.notna(run.get("seconds"))) / 3600
    yield f"The search has {len(frame)} runs, of which {len(done)} have finished, in {hours:.2f} hours together."
