"""Table 2: every method on imbalanced subsets of CIFAR-10 and CIFAR-100.

A task is named by the true ratio of its classes: what the paper calls 50 is a factor of 0.5, so 2 (METHODS 14).

python -m experiments.table2
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command, printed
from experiments.comparison import comparison
from experiments.tables import Table

CAPTION = "Table 2. Accuracy on imbalanced CIFAR-10 and CIFAR-100 (ratios of the factors that were used)."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, printed.table2())


if __name__ == "__main__":
    sys.exit(command.main("table2", draw))
