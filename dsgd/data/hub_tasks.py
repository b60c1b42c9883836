"""The text tasks of the hub: their columns, classes, templates and own metrics, one entry for each form of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgd import evaluation
from dsgd.config.schema import TaskForm
from dsgd.data.checks import is_text, require, require_labels
from dsgd.data.corpus import Corpus, Score, Template, no_scores
from dsgd.data.hub import read_split

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

Columns = dict[str, list[Any]]  # column → the value of each row


@dataclass(frozen=True)
class TextTask:
    """One way to read a data set.

    Attributes:
        columns: that are read, beside ``label``.
        classes: names in the order of the labels.
        template: joins the fields.
        fields: makes the fields of n · choices rows out of the columns.
        labels: makes the labels (n,) out of the columns.
        choices: rows that make one example.
        accepts: for columns other than texts, whether a value is one of theirs.
        score: from the columns of the evaluation split to the task's own metrics.
    """

    columns: tuple[str, ...]
    classes: tuple[str, ...]
    template: Template
    fields: Callable[[Columns], dict[str, list[str]]] = dict
    labels: Callable[[Columns], list[int]] = lambda columns: columns["label"]
    choices: int = 1
    accepts: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    score: Callable[[Columns], Score] = lambda _columns: no_scores


# --- COPA -----------------------------------------------------------------------------------------------------------

_ASKS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def copa_questions(columns: Columns) -> dict[str, list[str]]:
    """A row for each question."""
    asks = [_ASKS[kind] for kind in columns["question"]]
    return {"ask": asks, **{name: columns[name] for name in ("premise", "choice1", "choice2")}}


def copa_choices(columns: Columns) -> dict[str, list[str]]:
    """A row for each choice, both choices of a question one after the other."""
    questions = copa_questions(columns)
    pairs = zip(questions["choice1"], questions["choice2"], strict=True)
    twice = {name: [text for text in questions[name] for _ in range(2)] for name in ("premise", "ask")}
    return {**twice, "choice": [choice for pair in pairs for choice in pair]}


def copa_judgements(columns: Columns) -> list[int]:
    """For each choice whether it is the right one."""
    return [int(label == choice) for label in columns["label"] for choice in range(2)]


_COPA = ("premise", "question", "choice1", "choice2")
_IS_ASKED = {"question": lambda value: value in _ASKS}

# --- MultiRC --------------------------------------------------------------------------------------------------------


def multirc_scores(columns: Columns) -> Score:
    """F1 over all answers, and the share of questions of which every answer is judged rightly."""
    questions = [(place["paragraph"], place["question"]) for place in columns["idx"]]
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    groups = np.array([numbers[question] for question in questions])

    def score(predictions: evaluation.Predictions) -> dict[str, Any]:
        exact = evaluation.exact_match(predictions, groups[predictions.index])
        return {"f1a": evaluation.binary_f1(predictions), "em": exact}

    return score


# --- the registry ---------------------------------------------------------------------------------------------------


#: By name and form. Templates after jiant (arXiv:2003.02249); columns and labels as ``nyu-mll/glue`` and
#: ``aps/super_glue`` have them.
TASKS: dict[tuple[str, TaskForm], TextTask] = {
    ("cola", TaskForm.single): TextTask(
        columns=("sentence",),
        classes=("unacceptable", "acceptable"),
        template=Template(("{sentence}",), cut=("sentence",)),
    ),
    ("mrpc", TaskForm.single): TextTask(
        columns=("sentence1", "sentence2"),
        classes=("not_equivalent", "equivalent"),
        template=Template(("{sentence1}", "{sentence2}"), cut=("sentence1", "sentence2")),
        score=lambda _columns: lambda predictions: {"f1": evaluation.binary_f1(predictions)},
    ),
    ("rte", TaskForm.single): TextTask(
        columns=("sentence1", "sentence2"),
        classes=("entailment", "not_entailment"),
        template=Template(("{sentence1}", "{sentence2}"), cut=("sentence1", "sentence2")),
    ),
    ("boolq", TaskForm.single): TextTask(
        columns=("question", "passage"),
        classes=("False", "True"),
        template=Template(("{question}", "{passage}"), cut=("passage",)),
    ),
    ("multirc", TaskForm.single): TextTask(
        columns=("paragraph", "question", "answer", "idx"),
        accepts={"idx": lambda value: isinstance(value, dict) and {"paragraph", "question"} <= value.keys()},
        classes=("False", "True"),
        template=Template(("{paragraph} {question}", "{answer}"), cut=("paragraph",)),
        fields=lambda columns: {name: columns[name] for name in ("paragraph", "question", "answer")},
        score=multirc_scores,
    ),
    ("copa", TaskForm.multiple_choice): TextTask(
        columns=_COPA,
        accepts=_IS_ASKED,
        classes=("choice1", "choice2"),
        template=Template(("{premise} {ask}", "{choice}"), cut=("premise",)),
        fields=copa_choices,
        choices=2,
    ),
    ("copa", TaskForm.binary_concat): TextTask(
        columns=_COPA,
        accepts=_IS_ASKED,
        classes=("choice1", "choice2"),
        template=Template(("{premise} {ask}", "{choice1}", "{choice2}"), cut=("premise",)),
        fields=copa_questions,
    ),
    ("copa", TaskForm.flat): TextTask(
        columns=_COPA,
        accepts=_IS_ASKED,
        classes=("wrong", "right"),
        template=Template(("{premise} {ask}", "{choice}"), cut=("premise",)),
        fields=copa_choices,
        labels=copa_judgements,
        score=lambda _columns: (
            lambda predictions: {"question_accuracy": evaluation.choice_accuracy(predictions, predictions.index // 2)}
        ),
    ),
}


def hub_corpus(task: Task, data: Data) -> Corpus:
    """The training and the evaluation split of ``task``, in this order.

    Raises:
        SourceError: the data or some of their columns are not there, or rows lack a text or a label.
    """
    how = TASKS[task.name, task.form]
    read = partial(_columns, task, data, how)
    train, held_out = read("train"), read(task.evaluation_split)
    labels = [np.array(how.labels(columns), dtype=np.int64) for columns in (train, held_out)]
    of_train, of_held_out = how.fields(train), how.fields(held_out)
    sizes = [len(part) for part in labels]
    return Corpus(
        fields={name: of_train[name] + of_held_out[name] for name in of_train},
        template=how.template,
        labels=np.concatenate(labels),
        index=np.concatenate([np.arange(size) for size in sizes]),
        train=np.arange(sizes[0]),
        evaluation=np.arange(sizes[0], sum(sizes)),
        classes=list(how.classes),
        choices=how.choices,
        score=how.score(held_out),
    )


def _columns(task: Task, data: Data, how: TextTask, split: str) -> Columns:
    """Raises: SourceError where a row has no text, or a label that is none of the classes."""
    dataset = read_split(task, data, split, [*how.columns, "label"])
    columns: Columns = {name: dataset[name][:] for name in dataset.column_names}
    where = f"{task.hub_id}, {task.subset}, split {split}"
    require_labels(columns["label"], len(how.classes), where)
    for name in how.columns:
        require(columns[name], how.accepts.get(name, is_text), f"{where}: column {name}")
    return columns
