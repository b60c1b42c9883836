"""Imbalanced subsets of a training split, by the formulas of LDAM's imbalanced CIFAR (arXiv:1906.07413)."""

from __future__ import annotations

import hashlib

import numpy as np

from dsgd.imbalance import class_counts


def imbalanced_rows(labels: np.ndarray, kind: str, factor: float, seed: int) -> np.ndarray:
    """The row numbers that stay, sorted, int64.

    The largest class may keep N // K rows; a class that has fewer rows than its count keeps what it has. For one
    ``seed`` a smaller factor gives a subset of a larger one's rows. Numpy's global state is not touched.

    Args:
        labels: (N,) int, 0 to K - 1.
        kind: see ``class_counts``; ``none`` keeps every row, whatever the classes' sizes.
        factor: in (0, 1].
        seed: of the choice within each class.
    """
    if kind == "none":
        return np.arange(len(labels), dtype=np.int64)
    num_classes = int(labels.max()) + 1
    counts = class_counts(kind, factor, num_classes, len(labels) // num_classes)
    generator = np.random.default_rng(seed)
    kept = [generator.permutation(np.flatnonzero(labels == label))[:count] for label, count in enumerate(counts)]
    return np.sort(np.concatenate(kept)).astype(np.int64)


def rows_hash(rows: np.ndarray) -> str:
    """16 hexadecimal digits that tell one choice of rows from another, the same on every platform."""
    return hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16]
