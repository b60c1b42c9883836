"""Table 6: every method on pairs of tasks, trained together and evaluated apart.

python -m experiments.table6
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command, printed
from experiments.comparison import comparison
from experiments.tables import Table

CAPTION = "Table 6. Accuracy on each task of a pair that one model was trained on."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, printed.table6())


if __name__ == "__main__":
    sys.exit(command.main("table6", draw))
