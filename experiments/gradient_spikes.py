"""Gradients a thousand times too large at two steps, met in three ways (arXiv:2502.17055).

python -m experiments.gradient_spikes
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.comparison import comparison
from experiments.tables import Table

CAPTION = "Gradient spikes. Accuracy where nothing, clipping or GradientStabilizer meets them."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, {})


if __name__ == "__main__":
    sys.exit(command.main("gradient_spikes", draw))
