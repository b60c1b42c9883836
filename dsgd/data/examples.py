"""What every task's splits look like to the loop, whatever they hold."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np

from dsgd.methods.contracts import Batch


class Examples(Protocol):
    """n labelled examples of a split."""

    @property
    def labels(self) -> np.ndarray:
        """(n,) int64."""

    @property
    def index(self) -> np.ndarray:
        """(n,) int64, each example's row number in the source."""

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64, by which evaluation sorts so that little is padding; all equal for images."""

    def __len__(self) -> int:
        """n."""

    def take(self, rows: np.ndarray) -> Self:
        """The examples at ``rows`` (k,), in that order."""

    def batch(self, rows: np.ndarray, augmentation: np.random.Generator | None = None) -> Batch:
        """The examples at ``rows`` (b,) as model inputs; ``augmentation`` draws their random changes, if any."""
