"""Four image models on balanced CIFAR, which hardly depend on the seed (appendix E.5).

python -m experiments.balanced_images
"""

from __future__ import annotations

import sys

import pandas as pd

from experiments import command
from experiments.comparison import comparison
from experiments.tables import Table

CAPTION = "Appendix E.5. Accuracy on balanced CIFAR-10 and CIFAR-100."


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    return comparison(name, CAPTION, frame, {})


if __name__ == "__main__":
    sys.exit(command.main("balanced_images", draw))
