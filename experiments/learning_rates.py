"""Learning rates against each other on a holdout, for full fine-tuning.

The rate that is best for it may then serve every method (METHODS 0): its choice never saw the evaluation split.

python -m experiments.learning_rates
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.selection import selection
from experiments.tables import Table

CAPTION = "Learning rates. Accuracy on the held-out part of the training split."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return selection(name, CAPTION, frame)


if __name__ == "__main__":
    sys.exit(command.main("learning_rates", draw))
