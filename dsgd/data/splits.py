"""Splits of one source into examples to train and examples to evaluate on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from dsgd.models.sources import SourceError


def stratified_halves(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for evaluation, each ascending int64; a class's odd row goes to training."""
    generator = np.random.default_rng(seed)
    shuffled = [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    train = np.concatenate([rows[: (len(rows) + 1) // 2] for rows in shuffled])
    evaluation = np.concatenate([rows[(len(rows) + 1) // 2 :] for rows in shuffled])
    return np.sort(train), np.sort(evaluation)


def stratified_shares(
    labels: np.ndarray, contents: Sequence[Hashable], share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for evaluation, each ascending int64; of each class ``share`` is for evaluation.

    The share is rounded, and each side gets one example at least; a class of one example trains. Copies go where their
    first row goes, so that nothing is evaluated on what it was trained on; the share is of what is left without them.

    Args:
        labels: (n,) int64.
        contents: of each row what makes it a copy of another.
        share: in (0, 1).
        seed: of the choice within each class.

    Raises:
        SourceError: no class has two examples, so that nothing is left to evaluate.
    """
    generator = np.random.default_rng(seed)
    place: dict[Hashable, int] = {}
    first = np.array([place.setdefault(content, row) for row, content in enumerate(contents)], dtype=np.int64)
    originals = np.unique(first)
    chosen = []
    for label in np.unique(labels[originals]):
        rows = generator.permutation(originals[labels[originals] == label])
        chosen.append(rows[: min(max(round(share * len(rows)), 1), len(rows) - 1)])
    evaluates = np.isin(first, np.concatenate(chosen))
    if not evaluates.any():
        raise SourceError("each class has one example, copies aside, which cannot both train and evaluate")
    return np.flatnonzero(~evaluates), np.flatnonzero(evaluates)
