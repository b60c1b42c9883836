"""Where a task's images and labels come from, and the splits that it fixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dsgd.data.images import Pixels
from dsgd.data.sources import stratified_halves

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

#: Part of the definition of ``digits``, not a run's seed: every run trains and evaluates on the same halves.
DIGITS_SPLIT_SEED = 8


@dataclass(frozen=True, eq=False)
class ImageCorpus:
    """All images of a task, and which of them train and which evaluate.

    Attributes:
        pixels: (n, h, w, c), c = 1 or 3.
        labels: (n,) int64, positions in ``classes``.
        train: (n_train,) int64, positions in ``pixels``.
        evaluation: (n_evaluation,) int64, the same.
        classes: names in the order of the labels.
    """

    pixels: Pixels
    labels: np.ndarray
    train: np.ndarray
    evaluation: np.ndarray
    classes: list[str]


def read_images(task: Task, data: Data, size: int) -> ImageCorpus:
    """The images of ``task``.

    Args:
        task: which data.
        data: where data sets are looked for.
        size: pixels a side that the model takes; images of many sizes are brought to it.

    Raises:
        SourceError: the data are not there.
        ValueError: an unknown task.
    """
    if task.name == "digits":
        return digits()
    raise ValueError(f"task.name = {task.name}: no image task of that name")


def digits() -> ImageCorpus:
    """Handwritten digits of UCI's test set (Alpaydin & Kaynak 1998), 8 by 8, as scikit-learn ships them; two halves."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.images[..., None] * (255 / 16)).round().astype(np.uint8)  # grey levels are 0 to 16
    labels = found.target.astype(np.int64)
    train, evaluation = stratified_halves(labels, DIGITS_SPLIT_SEED)
    return ImageCorpus(pixels, labels, train, evaluation, [str(name) for name in found.target_names])
