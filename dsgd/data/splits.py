"""Splits of one source into examples to train and examples to evaluate on."""

from __future__ import annotations

import numpy as np

from dsgd.models.sources import SourceError


def stratified_halves(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for evaluation, each ascending int64; a class's odd row goes to training."""
    generator = np.random.default_rng(seed)
    shuffled = [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    train = np.concatenate([rows[: (len(rows) + 1) // 2] for rows in shuffled])
    evaluation = np.concatenate([rows[(len(rows) + 1) // 2 :] for rows in shuffled])
    return np.sort(train), np.sort(evaluation)


def stratified_shares(labels: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for evaluation, each ascending int64; of each class ``share`` is for evaluation.

    The share is rounded, and each side gets one example at least; a class of one example trains.

    Raises:
        SourceError: no class has two examples, so that nothing is left to evaluate.
    """
    generator = np.random.default_rng(seed)
    train, evaluation = [], []
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        evaluation.append(rows[:count])
        train.append(rows[count:])
    if not sum(map(len, evaluation)):
        raise SourceError("each class has one example, which cannot both train and evaluate")
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(evaluation))
