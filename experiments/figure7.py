"""Figure 7: norms and cosines of the gradients of full fine-tuning and of DSGD, for each of several failed seeds.

python -m experiments.figure7
"""

from __future__ import annotations

import sys

from experiments import figures
from experiments.figure4d import figure

if __name__ == "__main__":
    sys.exit(figures.main("figure7", figure))
