"""How much accuracy depends on weight decay, with GradientStabilizer and without (arXiv:2502.17055).

python -m experiments.weight_decay_sensitivity
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.comparison import comparison
from experiments.tables import Table

CAPTION = "Weight decay. Accuracy with GradientStabilizer and without."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, {})


if __name__ == "__main__":
    sys.exit(command.main("weight_decay_sensitivity", draw))
