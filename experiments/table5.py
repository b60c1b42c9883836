"""Table 5: sizes of the imbalanced image sets, by the formula that thins them out.

python -m experiments.table5
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.names import task_title
from experiments.printed import imbalanced_task, read
from experiments.settings import Line, Setting, config_of, first_of_each, settings_table
from experiments.tables import Table, Value

CAPTION = "Table 5. Sizes of the imbalanced image sets, in images."

SETTINGS = (
    Setting("Factor", lambda run: config_of(run).task.imbalance.factor),
    Setting("Ratio", lambda run: round(1 / config_of(run).task.imbalance.factor), "printed_ratio"),
    Setting("Training", lambda run: run["facts"].train_examples, "train"),
    Setting("Validation", lambda run: run["facts"].evaluation_examples, "validation"),
)

NOTES = ("The paper's counts for what it calls 50 are those of the factor 0.5, a ratio of 2 (METHODS 14).",)


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The imbalanced tasks of the planned runs."""
    printed = _printed()
    runs = first_of_each(frame.to_dict("records"), "task")
    lines = [Line((task_title(run["task"]),), run, printed.get(run["task"], {})) for run in runs]
    return settings_table(name, CAPTION, ["Task"], lines, SETTINGS, NOTES)


def _printed() -> dict[str, dict[str, Value]]:
    """The paper's row of each of our tasks; Table 2 knows which factor each printed ratio was."""
    rows = {(row["dataset"], row["imbalance"], row["printed_ratio"]): row for row in read("table5")}
    return {
        imbalanced_task(row["dataset"], row["imbalance"], row["factor"]): rows[
            row["dataset"], row["imbalance"], row["printed_ratio"]
        ]
        for row in read("table2")
    }


if __name__ == "__main__":
    sys.exit(command.main("table5", draw, experiment="table2"))
