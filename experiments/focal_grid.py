"""Focal loss's α and γ against each other on a holdout (appendix E.3), and what the search costs.

python -m experiments.focal_grid
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.selection import selection
from experiments.tables import Table

CAPTION = "Focal loss, α and γ. Accuracy on the held-out part of the training split."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return selection(name, CAPTION, frame)


if __name__ == "__main__":
    sys.exit(command.main("focal_grid", draw))
