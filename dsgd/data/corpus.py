"""A task before it is tokenised: texts by field, the template that joins them, labels and splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dsgd.evaluation import Predictions

Score = Callable[["Predictions"], dict[str, Any]]


def no_scores(_predictions: Predictions) -> dict[str, Any]:
    """Nothing beyond what every task is measured by."""
    return {}


@dataclass(frozen=True)
class Template:
    """How the fields of a row become one input.

    Attributes:
        parts: format strings over the fields. Between two parts stands what the tokenizer puts between the texts of a
            pair, or a line break where it has no pairs.
        cut: the fields that give way where an input is too long, the longest first; the others stay whole.
    """

    parts: tuple[str, ...]
    cut: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Corpus:
    """All examples of a task, and which of them train and which evaluate.

    Attributes:
        fields: field name to n · choices texts, an example's choices in adjacent rows.
        template: joins the fields of a row.
        labels: (n,) int64, positions in ``classes``.
        index: (n,) int64, each example's row number in the source, or in its split where the source has splits.
        train: (n_train,) int64, positions in ``labels``.
        evaluation: (n_evaluation,) int64, the same.
        classes: names in the order of the labels.
        dropped: rows of the source that are in neither split.
        dropped_as: what they are, in words.
        choices: rows that make one example.
        score: the task's own metrics.
    """

    fields: dict[str, list[str]]
    template: Template
    labels: np.ndarray
    index: np.ndarray
    train: np.ndarray
    evaluation: np.ndarray
    classes: list[str]
    dropped: int = 0
    dropped_as: str = "copies"
    choices: int = 1
    score: Score = no_scores
