"""Imbalanced subsets of a training split, by the formulas of LDAM's imbalanced CIFAR (arXiv:1906.07413)."""

from __future__ import annotations

import hashlib

import numpy as np


def class_counts(kind: str, factor: float, num_classes: int, maximum: int) -> list[int]:
    """How many examples each class keeps, in the order of the class numbers.

    The arithmetic is LDAM's to the last bit: floats, cut off by ``int``. Another order of operations, or rounding,
    shifts some counts by one.

    Args:
        kind: ``longtail`` falls geometrically from ``maximum`` at class 0 to ``factor * maximum`` at the last;
            ``step`` keeps ``maximum`` in the first half of the classes and ``factor * maximum`` in the others;
            ``none`` keeps ``maximum`` in all.
        factor: in (0, 1].
        num_classes: K, at least 2.
        maximum: count of the largest class.

    Raises:
        ValueError: an unknown ``kind``.
    """
    if kind == "none":
        return [maximum] * num_classes
    if kind == "longtail":
        return [int(maximum * factor ** (label / (num_classes - 1.0))) for label in range(num_classes)]
    if kind == "step":
        full = num_classes // 2
        return [maximum] * full + [int(maximum * factor)] * (num_classes - full)
    raise ValueError(f"task.imbalance.kind = {kind}: give none, longtail or step")


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
