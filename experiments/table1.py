"""Table 1: every method on six text tasks with two models, and the ensembles of its runs.

python -m experiments.table1
python -m experiments.table1 --experiment laptop/smoke
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command, printed
from experiments.bagging import ensemble_rows
from experiments.cells import columns_of
from experiments.comparison import comparison
from experiments.tables import Table

CAPTION = "Table 1. Accuracy of single runs and of ensembles on sequence classification."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    values = printed.table1()
    return comparison(name, CAPTION, frame, values, ensemble_rows(frame, columns_of(frame), values))


if __name__ == "__main__":
    sys.exit(command.main("table1", draw))
