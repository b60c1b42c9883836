"""Scores of several tasks, each by its own predictions."""

import numpy as np
import pytest

from dsgd.config.schema import Evaluation
from dsgd.data.multitask import joined_score
from dsgd.ensembles import as_predictions, majority_vote
from dsgd.evaluation import Predictions, binary_f1, evaluate, metrics, status

CLASSES = {"small": ["no", "yes"], "large": ["a", "b", "c"]}
ABSENT = -1e4


def predictions_of(small, large):
    """From lists of (label, prediction): of two classes, and of three."""
    pairs = np.array([*small, *large])
    scores = np.zeros((len(pairs), 3), np.float32)
    scores[np.arange(len(pairs)), pairs[:, 1]] = 1
    scores[: len(small), 2] = ABSENT
    tasks = np.repeat([0, 1], [len(small), len(large)])
    index = np.concatenate([np.arange(len(small)), np.arange(len(large))])
    return Predictions(index, pairs[:, 0].astype(np.int64), scores, ["0", "1", "2"], tasks, CLASSES)


#: small: 3 of 4 right, the majority 2 of 4; large: 3 of 6, the majority 3 of 6.
MIXED = predictions_of([(0, 0), (0, 1), (1, 1), (1, 1)], [(0, 0), (0, 0), (0, 1), (1, 1), (1, 2), (2, 0)])


def test_metrics_by_task_by_hand():
    """small 3/4, large 3/6; every task weighs alike: (0.75 + 0.5)/2 = 0.625, not 6/10.

    small: MCC = (2·1 - 0·1)/√(3·2·1·2) = 2/√12. F1 of "no" 2/3, of "yes" 4/5: mean 11/15.
    """
    row = metrics(MIXED)
    assert row["accuracy_by_task"] == {"small": 0.75, "large": 0.5}
    assert row["accuracy"] == 0.625
    assert row["majority_rate_by_task"] == {"small": 0.5, "large": 0.5}
    assert row["mcc_by_task"]["small"] == pytest.approx(2 / 12**0.5)
    assert row["macro_f1_by_task"]["small"] == pytest.approx(11 / 15)
    assert row["recall_by_class_by_task"]["small"] == {"no": 0.5, "yes": 1.0}
    assert row["n_eval_by_task"] == {"small": 4, "large": 6}
    assert (row["n_eval"], row["ties"], row["nonfinite"]) == (10, 0, 0)
    assert row["predicted_share_max"] == 0.75  # "yes" in the small one


def test_a_task_s_metrics_are_those_of_its_rows_alone():
    both, alone = metrics(MIXED), metrics(MIXED.by_task()["large"])
    assert {key: both[f"{key}_by_task"]["large"] for key in alone} == alone


GOOD = [(0, 0), (0, 0), (1, 1), (1, 1)]
ONE_CLASS = [(0, 0), (0, 0), (1, 0), (1, 0)]
NO_BETTER = [(0, 0), (0, 1), (1, 1), (1, 0)]
LARGE = [(label, label) for label in (0, 1, 2) * 4]


@pytest.mark.parametrize(
    ("small", "expected"), [(GOOD, "successful"), (NO_BETTER, "degenerate"), (ONE_CLASS, "collapsed")]
)
def test_the_worst_task_gives_the_status(small, expected):
    """The other task is solved."""
    row = evaluate(predictions_of(small, LARGE), Evaluation())
    assert row["status"] == expected
    assert row["status_by_task"] == {"small": expected, "large": "successful"}
    assert row["near_collapsed"] == (expected == "collapsed")


def test_different_classes_in_two_collapsed_heads_are_a_collapse_all_the_same():
    """Over all rows together two classes are predicted; each head knows one."""
    both = predictions_of(ONE_CLASS, [(label, 1) for label, _ in LARGE])
    assert len(set(both.predictions)) == 2
    assert status(both, Evaluation()) == "collapsed"


def test_own_metrics_are_told_of_the_tasks_that_have_them():
    """F1 of the small task: precision 2/3, recall 1."""
    score = joined_score({"small": lambda part: {"f1": binary_f1(part)}, "large": lambda _part: {}})
    assert score(MIXED) == {"f1_by_task": {"small": pytest.approx(0.8)}}


def test_predictions_survive_their_file(tmp_path):
    import pandas as pd

    path = tmp_path / "predictions.parquet"
    MIXED.save(path)
    loaded = Predictions.load(path)
    assert pd.read_parquet(path)["task"].tolist() == ["small"] * 4 + ["large"] * 6
    assert np.array_equal(loaded.tasks, MIXED.tasks)
    assert loaded.classes_by_task == CLASSES
    assert evaluate(loaded, Evaluation()) == evaluate(MIXED, Evaluation())


def test_a_task_without_examples_is_left_out():
    assert list(predictions_of(GOOD, []).by_task()) == ["small"]


def test_tasks_and_their_classes_come_together():
    with pytest.raises(ValueError, match="both tasks and classes_by_task"):
        Predictions(MIXED.index, MIXED.labels, MIXED.scores, MIXED.classes, MIXED.tasks)


def test_an_ensemble_is_scored_by_task_too():
    """Of three members two are right of everything."""
    right = predictions_of(GOOD, LARGE)
    wrong = predictions_of(ONE_CLASS, LARGE)
    voted = as_predictions(majority_vote([right, wrong, right]), right)
    assert metrics(voted)["accuracy_by_task"] == {"small": 1.0, "large": 1.0}
