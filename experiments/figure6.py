"""Figure 6, which is a table: settings of the image model.

python -m experiments.figure6
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.names import model_title, task_title
from experiments.printed import read
from experiments.settings import Line, Setting, config_of, first_of_each, settings_table
from experiments.tables import Table

CAPTION = "Figure 6. Settings of the vision transformer."

SETTINGS = (
    Setting("Learning rate", lambda run: config_of(run).trainer.lr, "lr"),
    Setting("Batch", lambda run: config_of(run).trainer.batch_size, "batch_size"),
    Setting("Accumulation", lambda run: config_of(run).trainer.accumulation, "accumulation"),
    Setting("Processes", lambda run: config_of(run).trainer.processes, "gpus"),
    Setting("Examples a step", lambda run: run["facts"].window, "window"),
    Setting("Epochs", lambda run: config_of(run).trainer.epochs, "epochs"),
)

NOTES = (
    "The paper's text (appendix E.5) says a batch of 256, its Figure 6 says 128 with accumulation 2 on 2 GPUs, which "
    "is 512 if 128 is one GPU's micro-batch and 256 if it is both GPUs' (METHODS 0.1).",
)


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The planned models and tasks, each with the settings of its first method."""
    printed = {
        row["dataset"]: {**row, "window": row["batch_size"] * row["accumulation"] * row["gpus"]}
        for row in read("figure6")
    }
    runs = first_of_each(frame.to_dict("records"), "model", "task")
    lines = [
        Line((model_title(run["model"]), task_title(run["task"])), run, printed.get(run["task"].split("_")[0], {}))
        for run in runs
    ]
    return settings_table(name, CAPTION, ["Model", "Task"], lines, SETTINGS, NOTES)


if __name__ == "__main__":
    sys.exit(command.main("figure6", draw, experiment="table2"))
