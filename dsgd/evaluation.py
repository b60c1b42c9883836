"""Predictions → metrics and the status of a run; torch-free, and everything heavier than numpy is imported late."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dsgd.errors import NonFiniteError
from dsgd.files import DamagedError, replacing

if TYPE_CHECKING:
    from dsgd.config.schema import Evaluation  # any object with its three attributes serves

Status = Literal["successful", "undecided", "degenerate", "collapsed"]

_CLASSES_KEY = b"classes"  # in the parquet file's schema metadata
_CLASSES_BY_TASK_KEY = b"classes_by_task"  # the same

_STATUSES: tuple[Status, ...] = ("successful", "undecided", "degenerate", "collapsed")  # the worst last


class NonFinitePredictions(NonFiniteError):  # noqa: N818 - says what was found, as StopIteration does
    """Some logits are NaN or infinite: the run failed, whatever argmax says."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says about the evaluation set; a row is an example, a column a class (or a choice).

    Raises:
        ValueError: no examples, shapes or dtypes other than those below, fewer than two classes or names that repeat,
            or a label that is none of the K classes (the hub's unlabelled test splits carry -1).
    """

    index: npt.NDArray[np.int64]  # (n,), position of the example in its split
    labels: npt.NDArray[np.int64]  # (n,), in [0, K)
    scores: npt.NDArray[np.float32]  # (n, K), logits
    classes: list[str]  # K distinct names
    tasks: npt.NDArray[np.int64] | None = None  # (n,), of several tasks each example's, by its place in the next
    classes_by_task: dict[str, list[str]] = field(default_factory=dict)  # name → its first classes of the K

    def __post_init__(self) -> None:
        n, k = len(self.labels), len(self.classes)
        _require("index", self.index, (n,), np.int64)
        _require("labels", self.labels, (n,), np.int64)
        _require("scores", self.scores, (n, k), np.float32)
        if n == 0:
            raise ValueError("predictions: no examples")
        if k < 2:
            raise ValueError(f"predictions: {k} class; softmax and margins need two")
        if (self.tasks is None) != (not self.classes_by_task):
            raise ValueError("predictions: of several tasks give both tasks and classes_by_task")
        if self.tasks is not None:
            _require("tasks", self.tasks, (n,), np.int64)
        if len(set(self.classes)) != k:
            raise ValueError(f"predictions: class names repeat: {self.classes}")
        if self.labels.min() < 0 or self.labels.max() >= k:
            raise ValueError(f"predictions: labels span {self.labels.min()}..{self.labels.max()}, classes 0..{k - 1}")

    @property
    def predictions(self) -> npt.NDArray[np.int64]:
        """Class of the highest logit, (n,); of several the first, and that of a NaN where there is one."""
        return np.asarray(self.scores.argmax(axis=1), dtype=np.int64)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """Softmax of the logits, (n, K); NaN in rows whose highest logit is not finite."""
        with np.errstate(invalid="ignore"):
            shifted = self.scores.astype(np.float64) - self.scores.max(axis=1, keepdims=True)
            exponentials = np.exp(shifted)
            return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))

    def by_task(self) -> dict[str, Predictions]:
        """Of several tasks each one's own, over its own classes; those without examples are left out."""
        assert self.tasks is not None
        rows = {name: np.flatnonzero(self.tasks == task) for task, name in enumerate(self.classes_by_task)}
        return {
            name: Predictions(self.index[own], self.labels[own], self.scores[own, : len(classes)], classes)
            for (name, own), classes in zip(rows.items(), self.classes_by_task.values(), strict=True)
            if len(own)
        }

    def save(self, path: Path) -> None:
        """Write a parquet file, whole or not at all.

        Columns: ``index``, ``label``, ``prediction``, ``probability_<k>`` and ``logit_<k>`` for k = 0..K-1; of several
        tasks also ``task``, a name.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {"index": self.index, "label": self.labels, "prediction": self.predictions}
        columns |= {f"probability_{k}": column for k, column in enumerate(self.probabilities.T)}
        columns |= {f"logit_{k}": column for k, column in enumerate(self.scores.T)}
        metadata = {_CLASSES_KEY: json.dumps(self.classes)}
        if self.tasks is not None:
            columns = {"task": np.array(list(self.classes_by_task))[self.tasks], **columns}
            metadata[_CLASSES_BY_TASK_KEY] = json.dumps(self.classes_by_task)
        table = pa.table(columns).replace_schema_metadata(metadata)
        with replacing(Path(path)) as temporary:
            pq.write_table(table, temporary, write_page_checksum=True)

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Read what ``save`` wrote; the logits come back bit by bit.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedError: the file is damaged, or no file of ours.
        """
        try:
            return cls._loaded(path)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DamagedError(f"{path} is damaged, or holds no predictions: {reason}") from error

    @classmethod
    def _loaded(cls, path: Path) -> Predictions:
        import pyarrow.parquet as pq

        table = pq.read_table(path, page_checksum_verification=True)
        metadata = table.schema.metadata or {}
        if _CLASSES_KEY not in metadata:
            raise ValueError("no class names in the schema metadata")
        classes = json.loads(metadata[_CLASSES_KEY])
        scores = np.column_stack([table[f"logit_{k}"].to_numpy() for k in range(len(classes))])
        if _CLASSES_BY_TASK_KEY not in metadata:
            return cls(table["index"].to_numpy(), table["label"].to_numpy(), scores, classes)
        classes_by_task = json.loads(metadata[_CLASSES_BY_TASK_KEY])
        places = {name: place for place, name in enumerate(classes_by_task)}
        tasks = np.array([places[name] for name in table["task"].to_pylist()], dtype=np.int64)
        return cls(table["index"].to_numpy(), table["label"].to_numpy(), scores, classes, tasks, classes_by_task)


def evaluate(predictions: Predictions, thresholds: Evaluation, multiple_choice: bool = False) -> dict[str, Any]:
    """``metrics`` with ``status`` and ``near_collapsed``: all that a summary row says of the predictions.

    Of several tasks also ``status_by_task``.

    Raises:
        NonFinitePredictions: some row has a non-finite logit.
    """
    found = {
        **metrics(predictions, multiple_choice),
        "status": status(predictions, thresholds, multiple_choice),
        "near_collapsed": near_collapsed(predictions, thresholds),
    }
    if predictions.tasks is not None:
        found["status_by_task"] = {name: status(part, thresholds) for name, part in predictions.by_task().items()}
    return found


def metrics(predictions: Predictions, multiple_choice: bool = False) -> dict[str, Any]:
    """Accuracy and its company, shares in [0, 1].

    Args:
        predictions: the whole evaluation set.
        multiple_choice: adds ``median_margin``, the median of the best minus the second-best choice's score.

    Returns:
        ``accuracy``, ``mcc`` (0 for one predicted class), ``macro_f1`` (over classes that occur in labels or
        predictions), ``recall_by_class`` (name → recall of the classes that have examples), ``majority_rate`` (of the
        labels), ``predicted_share_max``, and the counts ``n_eval``, ``ties`` (the highest logit is shared) and
        ``nonfinite`` (rows with a non-finite logit). Where ``nonfinite`` is not 0, argmax means nothing, and
        whatever rests on the logits is NaN.

        Of several tasks each as ``<metric>_by_task`` (name → value), and over all of them: the unweighted mean of what
        is a share or a correlation, the sum of the counts, and the largest ``predicted_share_max``.
    """
    if predictions.tasks is not None:
        return _metrics_of_tasks({name: metrics(part) for name, part in predictions.by_task().items()})
    scores = {
        "n_eval": len(predictions.labels),
        "majority_rate": _majority(predictions) / len(predictions.labels),
        "ties": _ties(predictions),
        "nonfinite": _nonfinite(predictions),
        **_class_scores(predictions),
    }
    if multiple_choice:
        scores["median_margin"] = float("nan") if scores["nonfinite"] else _median_margin(predictions)
    return scores


def shot_accuracies(predictions: Predictions, class_counts: Sequence[int], many: int, few: int) -> dict[str, float]:
    """Accuracy apart on classes with many, with a medium number of, and with few training examples.

    Args:
        predictions: the whole evaluation set.
        class_counts: training examples of each of the K classes.
        many: a class with more than this many has many.
        few: a class with fewer than this has few.

    Returns:
        ``accuracy_many``, ``accuracy_medium`` and ``accuracy_few`` in [0, 1]; those of groups without examples are
        left out.
    """
    counts = np.asarray(class_counts)[predictions.labels]  # of each example's class
    groups = {"many": counts > many, "medium": (counts >= few) & (counts <= many), "few": counts < few}
    is_correct = predictions.predictions == predictions.labels
    return {f"accuracy_{name}": float(is_correct[group].mean()) for name, group in groups.items() if group.any()}


def status(predictions: Predictions, thresholds: Evaluation, multiple_choice: bool = False) -> Status:
    """What the model learned, not what the process did.

    ``undecided``: every label is of one class, so that always to answer with it would be right. ``collapsed``: one
    class for every example; a scorer shared by all choices collapses to near-ties instead, so in multiple choice also a
    median margin below ``thresholds.near_tie``. ``degenerate``: no better than the majority class or, with more than
    two classes, a Matthews correlation within ``thresholds.mcc_sigmas`` of chance. Of several tasks the worst one's.

    Raises:
        NonFinitePredictions: some row has a non-finite logit.
    """
    _require_finite(predictions)
    if predictions.tasks is not None:
        return max((status(part, thresholds) for part in predictions.by_task().values()), key=_STATUSES.index)
    if _majority(predictions) == len(predictions.labels):
        return "undecided"
    if _predicted_share_max(predictions) == 1.0:
        return "collapsed"
    if multiple_choice and _median_margin(predictions) < thresholds.near_tie:
        return "collapsed"
    if _correct(predictions) <= _majority(predictions):  # counts: k/n would compare rounded numbers
        return "degenerate"
    chance = thresholds.mcc_sigmas / np.sqrt(len(predictions.labels))
    if len(predictions.classes) > 2 and _mcc(predictions) <= chance:
        return "degenerate"
    return "successful"


def near_collapsed(predictions: Predictions, thresholds: Evaluation) -> bool:
    """Whether one class takes at least ``thresholds.near_collapsed`` of the predictions, of any of several tasks.

    It is a field, not a status.

    Raises:
        NonFinitePredictions: some row has a non-finite logit.
    """
    _require_finite(predictions)
    if predictions.tasks is not None:
        return any(near_collapsed(part, thresholds) for part in predictions.by_task().values())
    return _predicted_share_max(predictions) >= thresholds.near_collapsed


def binary_f1(predictions: Predictions) -> float:
    """F1 of class 1 of two, in [0, 1]; 0 where it is neither predicted nor there."""
    from sklearn.metrics import f1_score

    return float(f1_score(predictions.labels, predictions.predictions, pos_label=1, zero_division=0))


def exact_match(predictions: Predictions, groups: npt.NDArray[np.int64]) -> float:
    """Share of the groups of which every example is predicted rightly; ``groups`` (n,) numbers each example's."""
    right = predictions.predictions == predictions.labels
    _, group = np.unique(groups, return_inverse=True)
    return float(1.0 - (np.bincount(group, weights=~right) > 0).mean())


def choice_accuracy(predictions: Predictions, groups: npt.NDArray[np.int64]) -> float | None:
    """Share of the groups in which the likeliest example of class 1 is one.

    A choice judged by itself is an example, its question the group. Of equals the first counts, as in an argmax. A
    group that lacks one of the classes, as a subset's may, is left out; None where none is left.
    """
    likely = predictions.probabilities[:, 1]
    order = np.lexsort((np.arange(len(groups)), -likely, groups))
    _, first = np.unique(groups[order], return_index=True)
    _, group = np.unique(groups, return_inverse=True)
    right = np.bincount(group, weights=predictions.labels)
    decidable = (right > 0) & (right < np.bincount(group))
    chosen = predictions.labels[order[first]][decidable]
    return float(chosen.mean()) if len(chosen) else None


def _metrics_of_tasks(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """From each task's metrics to those of all, which weigh every task alike whatever its size."""
    keys = next(iter(rows.values()))
    by_task = {key: {name: row[key] for name, row in rows.items()} for key in keys}
    means = ("accuracy", "mcc", "macro_f1", "majority_rate")
    return {
        **{key: float(np.mean(list(by_task[key].values()))) for key in means},
        **{key: sum(by_task[key].values()) for key in ("n_eval", "ties", "nonfinite")},
        "predicted_share_max": max(by_task["predicted_share_max"].values()),
        **{f"{key}_by_task": values for key, values in by_task.items()},
    }


def _class_scores(predictions: Predictions) -> dict[str, Any]:
    """The metrics that rest on argmax; NaN where a logit is not finite."""
    if _nonfinite(predictions):
        undefined = dict.fromkeys(("accuracy", "mcc", "macro_f1", "predicted_share_max"), float("nan"))
        return {**undefined, "recall_by_class": dict.fromkeys(_present(predictions).values(), float("nan"))}
    return {
        "accuracy": _correct(predictions) / len(predictions.labels),
        "mcc": _mcc(predictions),
        "macro_f1": _macro_f1(predictions),
        "predicted_share_max": _predicted_share_max(predictions),
        "recall_by_class": _recall_by_class(predictions),
    }


def _mcc(predictions: Predictions) -> float:
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sklearn remarks on labels that are all alike; the 0 says it
        return float(matthews_corrcoef(predictions.labels, predictions.predictions))


def _macro_f1(predictions: Predictions) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(predictions.labels, predictions.predictions, average="macro", zero_division=0))


def _recall_by_class(predictions: Predictions) -> dict[str, float]:
    from sklearn.metrics import recall_score

    present = _present(predictions)
    recall = recall_score(
        predictions.labels, predictions.predictions, labels=list(present), average=None, zero_division=0
    )
    return dict(zip(present.values(), recall.tolist(), strict=True))


def _present(predictions: Predictions) -> dict[int, str]:
    """Number → name of the classes that have examples; the recall of the others is undefined."""
    return {k: predictions.classes[k] for k in np.unique(predictions.labels).tolist()}


def _correct(predictions: Predictions) -> int:
    return int((predictions.predictions == predictions.labels).sum())


def _majority(predictions: Predictions) -> int:
    """Examples of the most frequent label."""
    return int(np.bincount(predictions.labels).max())


def _predicted_share_max(predictions: Predictions) -> float:
    return int(np.bincount(predictions.predictions).max()) / len(predictions.labels)


def _median_margin(predictions: Predictions) -> float:
    """Median of the highest minus the second-highest logit; with two choices the median of |z1 - z0|."""
    ordered = np.sort(predictions.scores.astype(np.float64), axis=1)
    return float(np.median(ordered[:, -1] - ordered[:, -2]))


def _ties(predictions: Predictions) -> int:
    """Examples whose highest logit is shared; NaN equals nothing, so a row that holds one is no tie."""
    top = predictions.scores.max(axis=1, keepdims=True)
    return int(((predictions.scores == top).sum(axis=1) > 1).sum())


def _nonfinite(predictions: Predictions) -> int:
    return int((~np.isfinite(predictions.scores)).any(axis=1).sum())


def _require_finite(predictions: Predictions) -> None:
    count = _nonfinite(predictions)
    if count:
        raise NonFinitePredictions(f"{count} of {len(predictions.labels)} examples have a non-finite logit")


def _require(name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    if array.shape != shape or array.dtype != dtype:
        wanted = f"{np.dtype(dtype)}{list(shape)}"
        raise ValueError(f"predictions: {name} is {array.dtype}{list(array.shape)}, must be {wanted}")
