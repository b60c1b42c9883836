"""Table 4: how the models of Table 1 are trained on each task.

python -m experiments.table4
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.names import model_title, task_title
from experiments.printed import read
from experiments.settings import Line, Setting, config_of, first_of_each, settings_table
from experiments.tables import Table

CAPTION = "Table 4. Settings of the text models."

SETTINGS = (
    Setting("Batch", lambda run: config_of(run).trainer.batch_size, "batch_size"),
    Setting("Accumulation", lambda run: config_of(run).trainer.accumulation, "accumulation"),
    Setting("Processes", lambda run: config_of(run).trainer.processes, "gpus"),
    Setting("Examples a step", lambda run: run["facts"].window, "window"),
    Setting("Max length", lambda run: config_of(run).task.max_length, "max_length"),
    Setting("Epochs", lambda run: config_of(run).trainer.epochs, "epochs"),
    Setting("Learning rate", lambda run: config_of(run).trainer.lr),
    Setting("Warm-up", lambda run: config_of(run).trainer.warmup),
    Setting("Weight decay", lambda run: config_of(run).trainer.weight_decay),
    Setting("β₂", lambda run: config_of(run).trainer.beta2),
    Setting("Clip", lambda run: config_of(run).trainer.clip),
)

NOTES = (
    "The paper prints one list of learning rates for all tasks and both models (5e-6, 1e-5, 2e-5, 3e-5, 1e-4, 3e-4) "
    "and no rule of choice; `experiments.learning_rates` compares them on a holdout.",
    "Examples a step is batch × accumulation × processes; the paper does not say whether its batch is that of one GPU, "
    "which is how it is read here.",
    "Warm-up is the share of the steps before the linear decay; the paper does not print it, nor what follows it here.",
)


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The models and tasks of the planned runs, each with the settings of its first method."""
    printed = {
        row["task"]: {**row, "window": row["batch_size"] * row["accumulation"] * row["gpus"]} for row in read("table4")
    }
    runs = first_of_each(frame.to_dict("records"), "model", "task")
    lines = [
        Line((model_title(run["model"]), task_title(run["task"])), run, printed.get(run["task"], {})) for run in runs
    ]
    return settings_table(name, CAPTION, ["Model", "Task"], lines, SETTINGS, NOTES)


if __name__ == "__main__":
    sys.exit(command.main("table4", draw, experiment="table1"))
