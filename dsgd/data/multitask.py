"""Several tasks as one: their splits joined, each example knowing its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dsgd.data.corpus import Score
from dsgd.data.text import Split
from dsgd.evaluation import Predictions
from dsgd.methods.contracts import Batch


@dataclass(frozen=True, eq=False)
class JoinedSplit(Split):
    """n labelled examples of several tasks; a row number is one in all of them.

    Attributes:
        tasks: (n,) int64, each example's task. ``index`` tells examples apart within a task only.
    """

    tasks: np.ndarray

    def take(self, rows: np.ndarray) -> JoinedSplit:
        """The examples at ``rows`` (k,), in that order."""
        taken = super().take(rows)
        assert isinstance(taken, JoinedSplit)
        return replace(taken, tasks=self.tasks[rows])

    def batch(self, rows: np.ndarray, augmentation: np.random.Generator | None = None) -> Batch:
        """The examples at ``rows`` (b,); beside a split's inputs their ``tasks`` (b,) int64."""
        batch = super().batch(rows, augmentation)
        return Batch({**batch.inputs, "tasks": torch.from_numpy(self.tasks[rows])}, batch.labels)


def join(splits: Sequence[Split]) -> JoinedSplit:
    """The examples of ``splits``, of one tokenizer and one input an example, one after the other."""
    sizes = np.concatenate([split.sizes for split in splits])
    own = [_own_tokens(split) for split in splits]
    return JoinedSplit(
        labels=np.concatenate([split.labels for split in splits]),
        index=np.concatenate([split.index for split in splits]),
        starts=np.cumsum(sizes, axis=0) - sizes,
        sizes=sizes,
        flat={name: np.concatenate([tokens[name] for tokens in own]) for name in own[0]},
        padding=splits[0].padding,
        tasks=np.repeat(np.arange(len(splits)), [len(split) for split in splits]),
    )


def _own_tokens(split: Split) -> dict[str, np.ndarray]:
    """The tokens of these examples alone, end to end in their order."""
    starts, sizes = split.starts[:, 0], split.sizes[:, 0]
    before = np.cumsum(sizes) - sizes
    positions = np.repeat(starts - before, sizes) + np.arange(sizes.sum())
    return {name: values[positions] for name, values in split.flat.items()}


def joined_score(scores: dict[str, Score]) -> Score:
    """Every task's own metrics by its own predictions: ``<metric>_by_task``, of the tasks that have it."""

    def score(predictions: Predictions) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for name, part in predictions.by_task().items():
            for metric, value in scores[name](part).items():
                found.setdefault(f"{metric}_by_task", {})[name] = value
        return found

    return score
