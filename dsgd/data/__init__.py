"""Tasks as training and evaluation splits: ``load_task``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dsgd.config.schema import Augmentation, Modality, MultiTask
from dsgd.data.checks import require_two_classes
from dsgd.data.corpus import Score, no_scores
from dsgd.data.examples import Examples
from dsgd.data.facts import Facts, facts_of_images, facts_of_texts, joined_facts
from dsgd.data.image_sources import read_images
from dsgd.data.images import Images
from dsgd.data.imbalance import imbalanced_rows, rows_hash
from dsgd.data.multitask import join, joined_score
from dsgd.data.sources import READERS
from dsgd.data.splits import stratified_shares
from dsgd.data.text import Split, encode
from dsgd.evaluation import shot_accuracies

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from dsgd.config.schema import Data, Imbalance, Shots, Task
    from dsgd.models.vision import ImagePreprocessor

__all__ = ["Examples", "TaskData", "load_task"]


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
        facts: what the source holds.
        classes_by_task: of several tasks, name → its classes; ``classes`` are numbers then, as many as the most it has.
    """

    train: Examples
    evaluation: Examples
    classes: list[str]
    pool_size: int
    dropped: int
    choices: int = 1
    score: Score = no_scores
    facts: Facts = field(default_factory=Facts)
    classes_by_task: dict[str, list[str]] = field(default_factory=dict)

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
        SourceError: the data are not there, or cannot be trained and evaluated on.
        ValueError: an unknown task, a length beyond the model's, or a class left without training examples.
    """
    read: Callable[..., TaskData] = _images if task.modality is Modality.image else _texts
    if isinstance(task, MultiTask):
        read = _joined
    whole, imbalance = read(task, data, preprocessor), task.imbalance
    if task.holdout > 0:
        whole = _with_holdout(whole, task.holdout, task.split_seed)
    if task.path is not None:
        require_two_classes(whole.evaluation.labels, whole.classes, f"{task.evaluation_path or task.path}, evaluation")
    rows = imbalanced_rows(whole.train.labels, imbalance.kind.value, imbalance.factor, subset_seed)
    loaded = whole.replace(train=whole.train.take(rows), evaluation=whole.evaluation)
    if task.modality is Modality.image:
        loaded = dataclasses.replace(loaded, score=_shot_scores(task.shots, loaded.class_counts))
    _refuse_empty_classes(loaded, imbalance)
    if bootstrap_seed is None:
        return loaded
    # Only now: a rare class may be missing from one member of a bagged ensemble.
    resampled = loaded.train.take(bootstrap_rows(len(loaded.train), bootstrap_seed))
    return loaded.replace(train=resampled, evaluation=loaded.evaluation)


def _texts(task: Task, data: Data, tokenizer: PreTrainedTokenizerBase) -> TaskData:
    if task.name not in READERS:
        raise ValueError(f"task.name = {task.name}: give one of {', '.join(READERS)}")
    corpus = READERS[task.name](task, data)
    everything = encode(corpus, tokenizer, task.max_length)
    return TaskData(
        train=everything.take(corpus.train),
        evaluation=everything.take(corpus.evaluation),
        classes=corpus.classes,
        pool_size=len(corpus.train),
        dropped=corpus.dropped,
        choices=corpus.choices,
        score=corpus.score,
        facts=facts_of_texts(corpus, everything, tokenizer, task.max_length),
    )


def _joined(task: MultiTask, data: Data, tokenizer: PreTrainedTokenizerBase) -> TaskData:
    """Each task as its own file says, but of the common length."""
    parts = {
        name: load_task(
            dataclasses.replace(own, max_length=task.max_length), data, tokenizer, own.imbalance.subset_seed
        )
        for name, own in task.joined.items()
    }
    most = max(len(part.classes) for part in parts.values())
    return TaskData(
        train=join([cast("Split", part.train) for part in parts.values()]),
        evaluation=join([cast("Split", part.evaluation) for part in parts.values()]),
        classes=[str(number) for number in range(most)],
        pool_size=sum(part.pool_size for part in parts.values()),
        dropped=sum(part.dropped for part in parts.values()),
        score=joined_score({name: part.score for name, part in parts.items()}),
        facts=joined_facts([part.facts for part in parts.values()]),
        classes_by_task={name: part.classes for name, part in parts.items()},
    )


def _images(task: Task, data: Data, preprocessor: ImagePreprocessor) -> TaskData:
    corpus = read_images(task, data, preprocessor.size)
    everything = np.arange(len(corpus.labels))
    images = Images(corpus.labels, everything, everything, corpus.pixels, task.augmentation is Augmentation.crop_flip)
    return TaskData(
        train=images.take(corpus.train),
        evaluation=images.take(corpus.evaluation),
        classes=corpus.classes,
        pool_size=len(corpus.train),
        dropped=0,
        facts=facts_of_images(corpus.contents, corpus.train, corpus.evaluation),
    )


def _shot_scores(shots: Shots, class_counts: list[int]) -> Score:
    """By the counts of the whole training subset, whatever a resample or ``debug`` leaves of it."""
    if shots.many is None or shots.few is None:
        return no_scores
    return partial(shot_accuracies, class_counts=class_counts, many=shots.many, few=shots.few)


def _with_holdout(whole: TaskData, share: float, seed: int) -> TaskData:
    """A part of the training split in the evaluation split's place, for choices that must not see the latter.

    The task's own metrics go: they know the rows of the evaluation split alone.
    """
    kept, held = stratified_shares(whole.train.labels, range(len(whole.train)), share, seed)
    split = whole.replace(train=whole.train.take(kept), evaluation=whole.train.take(held))
    facts = dataclasses.replace(whole.facts, shared=0, near_copies=0)  # which were counted between the other splits
    return dataclasses.replace(split, pool_size=len(kept), score=no_scores, facts=facts)


def bootstrap_rows(count: int, seed: int) -> np.ndarray:
    """``count`` row numbers below ``count``, drawn with replacement, sorted, int64."""
    return np.sort(np.random.default_rng(seed).integers(count, size=count))


def _refuse_empty_classes(loaded: TaskData, imbalance: Imbalance) -> None:
    empty = [name for name, count in zip(loaded.classes, loaded.class_counts, strict=True) if count == 0]
    if empty:
        counts = f"{imbalance.kind.value} leaves {loaded.class_counts} of {loaded.pool_size} training examples"
        raise ValueError(f"task.imbalance.factor = {imbalance.factor:g}: {counts}, none of {', '.join(empty)}")
