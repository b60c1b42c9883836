"""Figure 5, which is a table: settings of the adapters that train few parameters.

python -m experiments.figure5
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.cells import Record
from experiments.names import method_title
from experiments.printed import read
from experiments.settings import Line, Setting, config_of, first_of_each, settings_table
from experiments.tables import Table, Value

CAPTION = "Figure 5. Settings of parameter-efficient fine-tuning."

NOTES = (
    "The paper prints “8, 16” as LoRA's r; the number of parameters that it reports is that of 8 (METHODS 10).",
    "AdaLoRA's alpha is not printed.",
)


#: Heads of the columns, and the adapters' keys under them.
KEYS = {"Initial r": "initial_r", "Target r": "target_r", "r": "r", "Alpha": "alpha"}


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The planned methods that train an adapter."""
    printed = {row["method"]: row for row in read("figure5")}
    runs = [run for run in first_of_each(frame.to_dict("records"), "preset") if run["preset"] in printed]
    lines = [Line((method_title(run["preset"]),), run, printed[run["preset"]]) for run in runs]
    settings = [
        Setting("Learning rate", lambda run: config_of(run).trainer.lr, "lr"),
        *(_of_the_adapter(title, key) for title, key in KEYS.items()),
    ]
    return settings_table(name, CAPTION, ["Method"], lines, settings, NOTES)


def _of_the_adapter(title: str, key: str) -> Setting:
    def ours(run: Record) -> Value:
        value: Value = getattr(config_of(run).adapter, key, None)
        return value

    return Setting(title, ours, key)


if __name__ == "__main__":
    sys.exit(command.main("figure5", draw, experiment="figure4c"))
