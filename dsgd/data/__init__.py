"""Tasks as training and evaluation splits: ``load_task``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgd.data.examples import Examples
from dsgd.data.image_sources import read_images
from dsgd.data.images import Images
from dsgd.data.imbalance import imbalanced_rows, rows_hash
from dsgd.data.sources import READERS
from dsgd.data.text import encode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from dsgd.config.schema import Data, Imbalance, Task
    from dsgd.evaluation import Predictions
    from dsgd.models.vision import ImagePreprocessor

__all__ = ["Examples", "TaskData", "load_task"]


def no_scores(_predictions: Predictions) -> dict[str, Any]:
    """Nothing beyond what every task is measured by."""
    return {}


@dataclass(frozen=True, eq=False)
class TaskData:
    """What a run trains and evaluates on.

    Attributes:
        train: the training split, imbalanced and resampled as the task asks.
        evaluation: the evaluation split, whole.
        classes: names in the order of the labels.
        pool_size: training examples before they were thinned out.
        dropped: rows of the source in neither split: copies.
        choices: input rows that make one example; more than 1 in multiple choice.
        score: the task's own metrics, for the summary row.
    """

    train: Examples
    evaluation: Examples
    classes: list[str]
    pool_size: int
    dropped: int
    choices: int = 1
    score: Callable[[Predictions], dict[str, Any]] = no_scores

    @property
    def class_counts(self) -> list[int]:
        """Training examples of each class, in the order of ``classes``."""
        return [int(count) for count in np.bincount(self.train.labels, minlength=len(self.classes))]

    @property
    def subset_hash(self) -> str:
        """Tells one choice of training rows from another: equal where two runs train on the same examples."""
        return rows_hash(self.train.index)

    def replace(self, *, train: Examples, evaluation: Examples) -> TaskData:
        """The same task with other splits."""
        return dataclasses.replace(self, train=train, evaluation=evaluation)


def load_task(
    task: Task,
    data: Data,
    preprocessor: Any,
    subset_seed: int,
    bootstrap_seed: int | None = None,
) -> TaskData:
    """Read, tokenise and thin out ``task``.

    Args:
        task: which data, how long, how imbalanced.
        data: where data sets are looked for.
        preprocessor: the model's: a tokenizer, or what it expects of images.
        subset_seed: chooses the imbalanced training subset.
        bootstrap_seed: resamples that subset with replacement, to the same size; None leaves it.

    Raises:
        SourceError: the data are not there.
        ValueError: an unknown task, a length beyond the model's, or a class left without training examples.
    """
    read = _images if task.modality.value == "image" else _texts
    pool, evaluation, classes, dropped = read(task, data, preprocessor)
    imbalance = task.imbalance
    train = pool.take(imbalanced_rows(pool.labels, imbalance.kind.value, imbalance.factor, subset_seed))
    loaded = TaskData(train, evaluation, classes, len(pool), dropped)
    _refuse_empty_classes(loaded, imbalance)
    if bootstrap_seed is None:
        return loaded
    # Only now: a rare class may be missing from one member of a bagged ensemble.
    resampled = train.take(bootstrap_rows(len(train), bootstrap_seed))
    return loaded.replace(train=resampled, evaluation=loaded.evaluation)


def _texts(task: Task, data: Data, tokenizer: PreTrainedTokenizerBase) -> tuple[Examples, Examples, list[str], int]:
    if task.name not in READERS:
        raise ValueError(f"task.name = {task.name}: give one of {', '.join(READERS)}")
    corpus = READERS[task.name](task, data)
    everything = encode(corpus.texts, corpus.labels, corpus.index, tokenizer, task.max_length)
    return everything.take(corpus.train), everything.take(corpus.evaluation), corpus.classes, corpus.dropped


def _images(task: Task, data: Data, preprocessor: ImagePreprocessor) -> tuple[Examples, Examples, list[str], int]:
    corpus = read_images(task, data, preprocessor.size)
    everything = np.arange(len(corpus.labels))
    images = Images(corpus.labels, everything, everything, corpus.pixels, task.augmentation.value == "crop_flip")
    return images.take(corpus.train), images.take(corpus.evaluation), corpus.classes, 0


def bootstrap_rows(count: int, seed: int) -> np.ndarray:
    """``count`` row numbers below ``count``, drawn with replacement, sorted, int64."""
    return np.sort(np.random.default_rng(seed).integers(count, size=count))


def _refuse_empty_classes(loaded: TaskData, imbalance: Imbalance) -> None:
    empty = [name for name, count in zip(loaded.classes, loaded.class_counts, strict=True) if count == 0]
    if empty:
        counts = f"{imbalance.kind.value} leaves {loaded.class_counts} of {loaded.pool_size} training examples"
        raise ValueError(f"task.imbalance.factor = {imbalance.factor:g}: {counts}, none of {', '.join(empty)}")
