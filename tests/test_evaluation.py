"""Predictions, their metrics, and the status of a run on synthetic prediction vectors."""

import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest

from dsgd.config.schema import Evaluation
from dsgd.evaluation import (
    NonFinitePredictions,
    Predictions,
    binary_f1,
    choice_accuracy,
    evaluate,
    exact_match,
    metrics,
    near_collapsed,
    shot_accuracies,
    status,
)

THRESHOLDS = Evaluation()


def of(labels, predicted, k=2, margin=1.0):
    """Predictions with the logit ``margin`` for the predicted class and 0 for the others."""
    labels, predicted = np.asarray(labels, dtype=np.int64), np.asarray(predicted)
    scores = np.zeros((len(labels), k), dtype=np.float32)
    scores[np.arange(len(labels)), predicted] = margin
    return with_scores(labels, scores)


def with_scores(labels, scores):
    scores = np.asarray(scores, dtype=np.float32)
    classes = [f"c{k}" for k in range(scores.shape[1])]
    return Predictions(np.arange(len(labels), dtype=np.int64), np.asarray(labels, dtype=np.int64), scores, classes)


def counts(*rows):
    """Labels and predictions out of (label, prediction, how often) triples."""
    labels = [label for label, _, count in rows for _ in range(count)]
    predicted = [prediction for _, prediction, count in rows for _ in range(count)]
    return labels, predicted


@pytest.fixture
def five_classes():
    """A function: 1000 balanced examples of five classes, ``right`` of them right, errors spread evenly.

    Each label's errors go to the next class, so every row and column of the confusion matrix sums to 200 and
    MCC = (5 · accuracy - 1) / 4, by hand from c·s - Σ p_k t_k over s² - Σ p_k².
    """

    def build(right_per_class):
        rows = [(k, k, right_per_class) for k in range(5)]
        rows += [(k, (k + 1) % 5, 200 - right_per_class) for k in range(5)]
        return of(*counts(*rows), k=5)

    return build


# --- status ---------------------------------------------------------------------------------------------------------


def test_a_good_model_is_successful():
    """METHODS 17 (12), with the tests that follow."""
    assert status(of([0, 1, 0, 1], [0, 1, 0, 0]), THRESHOLDS) == "successful"


@pytest.mark.parametrize("predicted", [0, 1])
def test_one_predicted_class_is_collapsed_whether_or_not_it_is_the_majority(predicted):
    assert status(of([0, 0, 0, 1, 1], [predicted] * 5), THRESHOLDS) == "collapsed"


@pytest.mark.parametrize("predicted", [[1, 1, 1], [0, 1, 1], [0, 0, 0]])
def test_labels_of_one_class_decide_nothing(predicted):
    """30 texts of class ok, all said to be ok, were "accuracy 100.00% (collapsed)"."""
    assert status(of([1, 1, 1], predicted), THRESHOLDS) == "undecided"


def test_one_predicted_class_is_collapsed_with_five_classes():
    assert status(of([0, 1, 2, 3, 4], [3] * 5, k=5), THRESHOLDS) == "collapsed"


def test_one_example_off_the_constant_class_is_no_longer_collapsed():
    """99 of 100 predictions say 0: not collapsed; 61 right of 100 beats the majority's 60."""
    predictions = of(*counts((0, 0, 60), (1, 0, 39), (1, 1, 1)))
    assert status(predictions, THRESHOLDS) == "successful"
    assert near_collapsed(predictions, THRESHOLDS)


@pytest.mark.parametrize(("right_zeros", "expected"), [(5, "degenerate"), (6, "successful")])
def test_accuracy_must_exceed_the_majority_rate(right_zeros, expected):
    """6 of 10 labels are 0. 5 zeros and 1 one right: 6 of 10, equal to the majority; one more right is above it."""
    predictions = of(*counts((0, 0, right_zeros), (0, 1, 6 - right_zeros), (1, 1, 1), (1, 0, 3)))
    assert status(predictions, THRESHOLDS) == expected


@pytest.mark.parametrize("n", [10, 30, 70, 90, 110, 277, 1043])
def test_accuracy_equal_to_the_majority_is_degenerate_at_any_size(n):
    """The majority of ⌈0.7 n⌉ zeros met exactly, with one error of each kind: never decided by rounding."""
    zeros = math.ceil(0.7 * n)
    predictions = of(*counts((0, 0, zeros - 1), (0, 1, 1), (1, 1, 1), (1, 0, n - zeros - 1)))
    assert status(predictions, THRESHOLDS) == "degenerate"


def test_two_classes_are_not_judged_by_their_mcc():
    """MCC (60·1 - 0·39) / √(40·99·60·1) = 0.1231 is below 2/√100, but 61 right of 100 beat the majority's 60."""
    predictions = of(*counts((0, 0, 60), (1, 0, 39), (1, 1, 1)))
    assert metrics(predictions)["mcc"] == pytest.approx(0.12309, abs=1e-5)
    assert status(predictions, THRESHOLDS) == "successful"


@pytest.mark.parametrize(("right", "mcc", "expected"), [(50, 0.0625, "degenerate"), (51, 0.06875, "successful")])
def test_five_classes_are_judged_by_their_mcc(five_classes, right, mcc, expected):
    """The bound is 2/√1000 = 0.06325; accuracy .25 and .255 both beat the majority's .2."""
    predictions = five_classes(right)
    assert metrics(predictions)["mcc"] == pytest.approx(mcc, abs=1e-12)
    assert status(predictions, THRESHOLDS) == expected


def test_an_mcc_on_the_bound_is_degenerate(five_classes):
    predictions = five_classes(50)
    bound = metrics(predictions)["mcc"] * math.sqrt(1000)
    assert status(predictions, Evaluation(mcc_sigmas=bound * (1 + 1e-12))) == "degenerate"
    assert status(predictions, Evaluation(mcc_sigmas=bound * (1 - 1e-9))) == "successful"


def test_multiple_choice_collapses_to_near_ties():
    """Every choice right by 1e-4: a shared scorer that tells nothing apart, though argmax looks perfect."""
    predictions = of([0, 1, 0, 1, 1], [0, 1, 0, 1, 1], margin=1e-4)
    assert status(predictions, THRESHOLDS, multiple_choice=True) == "collapsed"
    assert status(predictions, THRESHOLDS) == "successful"


def test_the_median_margin_decides_and_the_bound_itself_is_no_tie():
    """Margins 0, .25, 5: the median .25 lies below a bound above it, and not below itself."""
    predictions = with_scores([0, 1, 0], [[0, 0], [0, 0.25], [5, 0]])
    assert metrics(predictions, multiple_choice=True)["median_margin"] == 0.25
    assert status(predictions, Evaluation(near_tie=0.25), multiple_choice=True) == "successful"
    assert status(predictions, Evaluation(near_tie=0.2500001), multiple_choice=True) == "collapsed"


def test_of_several_choices_the_two_best_make_the_margin():
    """Best minus second: 3 - 2 and 4 - 0 and 1 - (-1); the median is 2."""
    predictions = with_scores([0, 1, 2], [[3, 2, -9], [0, 4, 0], [-1, -5, 1]])
    assert metrics(predictions, multiple_choice=True)["median_margin"] == 2.0


@pytest.mark.parametrize(("others", "expected"), [(2, True), (3, False)])
def test_near_collapsed_from_the_threshold_on(others, expected):
    """98 of 100 is .98 and counts; 97 of 100 does not."""
    assert near_collapsed(of([0, 1] * 50, [1] * (100 - others) + [0] * others), THRESHOLDS) is expected


# --- metrics --------------------------------------------------------------------------------------------------------


def test_metrics_by_hand():
    """Confusion matrix (rows are labels) [[3, 1], [1, 1]] of 6.

    Accuracy 4/6; recall 3/4 and 1/2; F1 of class 0 2·3/(4 + 4) = 3/4, of class 1 2·1/(2 + 2) = 1/2, mean 5/8;
    MCC (3·1 - 1·1) / √(4·2·4·2) = 1/4; 4 of 6 labels and 4 of 6 predictions are 0.
    """
    found = metrics(of(*counts((0, 0, 3), (0, 1, 1), (1, 0, 1), (1, 1, 1))))
    assert found == {
        "accuracy": pytest.approx(4 / 6),
        "mcc": pytest.approx(0.25),
        "macro_f1": pytest.approx(0.625),
        "recall_by_class": {"c0": 0.75, "c1": 0.5},
        "majority_rate": pytest.approx(4 / 6),
        "predicted_share_max": pytest.approx(4 / 6),
        "n_eval": 6,
        "ties": 0,
        "nonfinite": 0,
    }


@pytest.mark.parametrize("k", [2, 3, 10])
def test_metrics_agree_with_a_second_computation(k):
    """The same numbers out of the confusion matrix, MCC as the correlation of one-hot labels and predictions."""
    rng = np.random.default_rng(k)
    labels = rng.integers(k, size=500)
    predictions = with_scores(labels, rng.normal(size=(500, k)) + 1.5 * np.eye(k)[labels])
    predicted = predictions.scores.argmax(axis=1)
    confusion = np.array([[((labels == i) & (predicted == j)).sum() for j in range(k)] for i in range(k)])
    truth, guess = np.eye(k)[labels], np.eye(k)[predicted]
    truth, guess = truth - truth.mean(axis=0), guess - guess.mean(axis=0)
    right = confusion.diagonal()
    found = metrics(predictions)
    assert found["accuracy"] == pytest.approx(right.sum() / 500)
    assert found["mcc"] == pytest.approx((truth * guess).sum() / math.sqrt((truth**2).sum() * (guess**2).sum()))
    assert found["macro_f1"] == pytest.approx((2 * right / (confusion.sum(axis=0) + confusion.sum(axis=1))).mean())
    assert list(found["recall_by_class"].values()) == pytest.approx(right / confusion.sum(axis=1))


@pytest.mark.parametrize("labels", [[0, 1, 1], [1, 1, 1], [0, 0, 0]])
def test_one_predicted_class_has_mcc_zero_and_no_warning(labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = metrics(of(labels, [1, 1, 1]))
    assert found["mcc"] == 0.0
    assert found["predicted_share_max"] == 1.0


def test_a_class_without_examples_has_no_recall():
    """Class 1 never occurs and is once predicted: no recall, and an F1 of 0 among (2/3, 0, 1)."""
    found = metrics(of([0, 0, 2], [0, 1, 2], k=4))
    assert found["recall_by_class"] == {"c0": 0.5, "c2": 1.0}
    assert found["macro_f1"] == pytest.approx((2 / 3 + 0 + 1) / 3)


def test_ties_count_shared_maxima_only():
    """Rows: shared maximum; shared below the maximum; all alike; none shared."""
    assert metrics(with_scores([0] * 4, [[2, 2, 0], [3, 1, 1], [0, 0, 0], [1, 2, 3]]))["ties"] == 2


def test_a_tied_model_predicts_the_first_class_and_is_collapsed():
    predictions = with_scores([0, 1, 1], np.zeros((3, 2)))
    assert predictions.predictions.tolist() == [0, 0, 0]
    assert status(predictions, THRESHOLDS, multiple_choice=True) == "collapsed"


def test_evaluate_is_metrics_and_status():
    predictions = of([0, 1, 0, 1], [0, 1, 0, 0])
    found = evaluate(predictions, THRESHOLDS, multiple_choice=True)
    assert found == {**metrics(predictions, True), "status": "successful", "near_collapsed": False}
    assert json.loads(json.dumps(found)) == found  # plain Python numbers: this goes into metrics.json


# --- non-finite logits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_logits_are_never_a_status(value):
    """Argmax over NaN is class 0: the run would look collapsed."""
    predictions = with_scores([0, 1, 0], [[value, value], [0, value], [1, 0]])
    for judge in (status, near_collapsed, evaluate):
        with pytest.raises(NonFinitePredictions, match=r"^2 of 3 examples"):
            judge(predictions, THRESHOLDS)


def test_non_finite_logits_are_counted_and_leave_no_number():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = metrics(with_scores([0, 1, 0], [[np.nan, 0], [0, 1], [1, 1]]), multiple_choice=True)
    assert (found["nonfinite"], found["ties"], found["n_eval"]) == (1, 1, 3)
    for key in ("accuracy", "mcc", "macro_f1", "predicted_share_max", "median_margin"):
        assert math.isnan(found[key]), key
    assert all(math.isnan(recall) for recall in found["recall_by_class"].values())


# --- Predictions ----------------------------------------------------------------------------------------------------


def test_probabilities_by_hand():
    """Softmax of (log 3, 0) is (3/4, 1/4); logits of 1000 do not overflow."""
    probabilities = with_scores([0, 0], [[math.log(3), 0], [1000, 1000]]).probabilities
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities, [[0.75, 0.25], [0.5, 0.5]], rtol=1e-6)


def test_round_trip_through_parquet(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 3)).astype(np.float32)
    scores[3, 1] = np.nan  # a failed run's predictions can be looked at
    classes = ["entailment", "no, really", "ü"]
    predictions = Predictions(rng.permutation(50).astype(np.int64), rng.integers(3, size=50), scores, classes)
    predictions.save(tmp_path / "predictions.parquet")
    loaded = Predictions.load(tmp_path / "predictions.parquet")
    for name in ("index", "labels", "scores", "predictions", "probabilities"):
        before, after = getattr(predictions, name), getattr(loaded, name)
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    assert loaded.classes == classes
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.parquet"]  # no temporary file stays


def test_the_parquet_file_holds_what_it_says(tmp_path):
    import pyarrow.parquet as pq

    predictions = of([0, 1, 1], [0, 1, 0])
    predictions.save(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    logits, probabilities = ["logit_0", "logit_1"], ["probability_0", "probability_1"]
    assert table.column_names == ["index", "label", "prediction", *probabilities, *logits]
    assert table["prediction"].to_pylist() == [0, 1, 0]
    columns = np.column_stack([table[name].to_numpy() for name in probabilities])
    np.testing.assert_array_equal(columns, predictions.probabilities)
    assert json.loads(table.schema.metadata[b"classes"]) == ["c0", "c1"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    path = tmp_path / "p.parquet"
    of([0, 1], [0, 1]).save(path)
    before = path.read_bytes()

    def half(table, target, **_options):
        target.write_bytes(b"PAR1")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(OSError, match="disk full"):
        of([0, 1], [1, 1]).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.parquet"]


def test_a_foreign_parquet_file_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"index": [0]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match="no class names"):
        Predictions.load(tmp_path / "p.parquet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, -1])}, r"labels span -1\.\.0, classes 0\.\.1"),
        ({"labels": np.array([0, 2])}, r"labels span 0\.\.2"),
        ({"labels": np.array([0.0, 1.0])}, r"labels is float64\[2\], must be int64\[2\]"),
        ({"index": np.arange(3)}, r"index is int64\[3\], must be int64\[2\]"),
        ({"scores": np.zeros((2, 3), dtype=np.float32)}, r"scores is float32\[2, 3\]"),
        ({"scores": np.zeros((2, 2))}, r"scores is float64"),
        ({"classes": ["a", "a"]}, "repeat"),
        ({"classes": ["a"], "scores": np.zeros((2, 1), dtype=np.float32)}, "1 class;"),
        (
            {"index": np.arange(0), "labels": np.arange(0), "scores": np.zeros((0, 2), dtype=np.float32)},
            "no examples",
        ),
    ],
)
def test_predictions_refuse_what_they_cannot_be(changes, message):
    valid = {"index": np.arange(2), "labels": np.array([0, 1]), "scores": np.zeros((2, 2), dtype=np.float32)}
    with pytest.raises(ValueError, match=message):
        Predictions(**{**valid, "classes": ["a", "b"], **changes})


def test_importing_the_module_is_cheap():
    script = (
        "import sys, dsgd.evaluation; print([m for m in ('torch', 'sklearn', 'pandas', 'hydra') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_accuracies_by_shots_divide_the_classes_by_their_training_examples():
    """Counts 101, 100, 20, 19 with many above 100 and few below 20: classes 1 and 2 are medium, both edges included.

    Right are 3 of 4 of class 0, 1 of 2 of class 1, 1 of 1 of class 2, none of 2 of class 3: 3/4, 2/3 and 0.
    """
    predictions = of(*counts((0, 0, 3), (0, 1, 1), (1, 1, 1), (1, 0, 1), (2, 2, 1), (3, 0, 2)), k=4)
    found = shot_accuracies(predictions, [101, 100, 20, 19], many=100, few=20)
    assert found == {"accuracy_many": 0.75, "accuracy_medium": pytest.approx(2 / 3), "accuracy_few": 0.0}


def test_a_group_of_shots_without_examples_has_no_accuracy():
    predictions = of(*counts((0, 0, 1), (1, 1, 1)))
    assert shot_accuracies(predictions, [500, 400], many=100, few=20) == {"accuracy_many": 1.0}


def test_f1_is_of_class_one():
    """3 hits, 1 false alarm, 2 misses: 2·3 / (2·3 + 1 + 2)."""
    assert binary_f1(of(*counts((1, 1, 3), (0, 1, 1), (1, 0, 2), (0, 0, 5)))) == pytest.approx(6 / 9)
    assert binary_f1(of([0, 0], [0, 0])) == 0.0


def test_an_exact_match_needs_every_example_of_the_group():
    """Groups 7, 3 and 3 again: right and wrong in 3, right in 7."""
    predictions = of([1, 0, 1], [1, 0, 0])
    assert exact_match(predictions, np.array([7, 3, 3])) == 0.5
    assert exact_match(predictions, np.array([0, 1, 2])) == pytest.approx(2 / 3)


def judged(labels, likely):
    """Choices judged by themselves, with ``likely`` as logit of being right."""
    return with_scores(labels, [[0.0, value] for value in likely])


def test_a_question_is_answered_by_its_likeliest_choice():
    """Questions 0 and 1: both choices judged wrong in the first, both right in the second; the likelier one counts."""
    predictions = judged([1, 0, 1, 0], [-1.0, -2.0, 1.0, 2.0])
    assert choice_accuracy(predictions, np.array([0, 0, 1, 1])) == 0.5
    shuffled = judged([0, 1, 0, 1], [2.0, -1.0, -2.0, 1.0])
    assert choice_accuracy(shuffled, np.array([1, 0, 0, 1])) == 0.5


def test_of_equally_likely_choices_the_first_is_taken():
    assert choice_accuracy(judged([1, 0, 0, 1], [0.5, 0.5, 0.5, 0.5]), np.array([0, 0, 1, 1])) == 0.5


def test_a_question_of_which_a_choice_is_missing_is_left_out():
    assert choice_accuracy(judged([1, 1, 0], [0.0, 0.0, 1.0]), np.array([0, 1, 1])) == 0.0
    assert choice_accuracy(judged([1, 0], [0.0, 0.0]), np.array([0, 1])) is None
