"""Images as one array of bytes: batches are cut, cropped and mirrored without a loop over examples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from dsgd.methods.contracts import Batch

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Images:
    """n labelled images.

    Attributes:
        labels: (n,) int64.
        index: (n,) int64, each example's row number in the source.
        positions: (n,) int64, where in ``pixels`` each image is.
        pixels: (N, h, w, c), c = 1 or 3, shared by all parts of a source; may be a memory-mapped file.
        crop_flip: whether training batches are cropped and mirrored at random.
    """

    labels: np.ndarray
    index: np.ndarray
    positions: np.ndarray
    pixels: Pixels
    crop_flip: bool = False

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64, all alike: no image is padded to another's size."""
        return np.ones(len(self), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Images:
        """The examples at ``rows`` (k,), in that order; nothing is copied but their numbers."""
        return replace(self, labels=self.labels[rows], index=self.index[rows], positions=self.positions[rows])

    def batch(self, rows: np.ndarray, augmentation: np.random.Generator | None = None) -> Batch:
        """The images at ``rows`` (b,): ``pixels`` (b, h, w, c) uint8; the model itself resizes and normalises them."""
        images = np.asarray(self.pixels[self.positions[rows]])
        if self.crop_flip and augmentation is not None:
            images = cropped_and_flipped(images, augmentation)
        return Batch({"pixels": torch.from_numpy(images)}, torch.from_numpy(self.labels[rows]))


def cropped_and_flipped(images: Pixels, generator: np.random.Generator) -> Pixels:
    """Each image padded with black by an eighth of its side, cut back at a random place, and mirrored or not.

    The usual augmentation of CIFAR (4 pixels of 32). An image draws three numbers, so that a window's images are
    changed alike however it is divided into micro-batches.

    Args:
        images: (b, h, w, c).
        generator: draws b times three numbers.
    """
    count, height, width, _ = images.shape
    down, right = height // 8, width // 8
    padded = np.pad(images, ((0, 0), (down, down), (right, right), (0, 0)))
    draws = generator.random((count, 3))
    top, left = (draws[:, :2] * (2 * down + 1, 2 * right + 1)).astype(np.int64).T
    columns = np.where(draws[:, 2:] < 0.5, np.arange(width)[::-1], np.arange(width))  # (b, w)
    rows = top[:, None] + np.arange(height)
    cropped: Pixels = padded[np.arange(count)[:, None, None], rows[:, :, None], (left[:, None] + columns)[:, None, :]]
    return cropped
