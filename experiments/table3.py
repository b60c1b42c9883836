"""Table 3: classes and sizes of the text tasks, as Table 1's experiment has them.

python -m experiments.table3
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.names import task_title
from experiments.printed import read
from experiments.settings import Line, Setting, first_of_each, settings_table
from experiments.tables import Table

CAPTION = "Table 3. Sizes of the tasks, in examples."

SETTINGS = (
    Setting("Classes", lambda run: run["facts"].classes, "classes"),
    Setting("Training", lambda run: run["facts"].train_examples, "train"),
    Setting("Validation", lambda run: run["facts"].evaluation_examples, "validation"),
)


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The tasks of the planned runs."""
    printed = {row["task"]: row for row in read("table3")}
    runs = first_of_each(frame.to_dict("records"), "task")
    lines = [Line((task_title(run["task"]),), run, printed.get(run["task"], {})) for run in runs]
    return settings_table(name, CAPTION, ["Task"], lines, SETTINGS, [])


if __name__ == "__main__":
    sys.exit(command.main("table3", draw, experiment="table1"))
