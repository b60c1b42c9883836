"""Ensembles of stored predictions, against second computations one example, subset or outcome at a time."""

import itertools
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from dsgd.config.schema import Evaluation
from dsgd.ensembles import (
    as_predictions,
    exact_expectation,
    failed_rate,
    logit_average,
    majority_vote,
    members_of,
    overlap,
    probability_average,
    sample_ensembles,
    smallest_stable_size,
)
from dsgd.evaluation import NonFinitePredictions, Predictions, evaluate
from dsgd.runs import folder_of


def member(probabilities, labels=None, **changes):
    """Predictions of the given probabilities, a row an example."""
    scores = np.log(np.asarray(probabilities, dtype=np.float32))
    n, k = scores.shape
    labels = np.zeros(n, np.int64) if labels is None else np.asarray(labels, np.int64)
    fields = {"index": np.arange(n), "labels": labels, "scores": scores, "classes": [f"c{i}" for i in range(k)]}
    return Predictions(**{**fields, **changes})


def pool_of(size, examples=60, classes=3, seed=0):
    """Members that agree on the labels and are right more often than not."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=examples)
    scores = generator.normal(size=(size, examples, classes)) + 1.2 * np.eye(classes)[labels]
    return [member(np.exp(logits), labels) for logits in scores]


def vote_by_hand(members):
    """One example after another: most votes, then the larger sum of probabilities, then the lowest class."""
    labels = []
    for row in range(len(members[0].labels)):
        votes = Counter(int(one.scores[row].argmax()) for one in members)
        ranked = []
        for k in range(len(members[0].classes)):
            total = math.fsum(one.probabilities[row, k] for one in members)
            ranked.append((-votes[k], -total, k))
        labels.append(min(ranked)[2])
    return labels


# --- voting and averaging -------------------------------------------------------------------------------------------


def test_tied_votes_go_to_the_larger_sum_of_probabilities():
    """METHODS 17 (9). Two members, a vote each: 0.6 + 0.1 against 0.4 + 0.9. By the lowest class it would be 0."""
    assert majority_vote([member([[0.6, 0.4]]), member([[0.1, 0.9]])]).tolist() == [1]


def test_only_the_tied_classes_compare_their_sums():
    """METHODS 17 (9). Classes 0 and 1 have a vote each; class 2 has none, though its 0.98 is more than 0.51."""
    one, other = [0.51, 0.0005, 0.4895], [0.0005, 0.51, 0.4895]
    assert majority_vote([member([one]), member([other])]).tolist() == [0]


def test_equal_sums_go_to_the_lowest_class():
    """METHODS 17 (9). Three votes each, both sums 3, which rounding splits in some orders unless they are sorted."""
    members = [member([row]) for p in (0.55, 0.65, 0.8) for row in ([p, 1 - p], [1 - p, p])]
    for order in itertools.permutations(members):
        assert majority_vote(order).tolist() == [0]
        assert probability_average(order).tolist() == [0]


def test_a_majority_wins_against_any_probability():
    """Two weak votes for 0 outvote one that is certain of 1; the averages see it otherwise."""
    members = [member([[0.51, 0.49]]), member([[0.51, 0.49]]), member([[0.001, 0.999]])]
    assert majority_vote(members).tolist() == [0]
    assert probability_average(members).tolist() == [1]
    assert logit_average(members).tolist() == [1]


@pytest.mark.parametrize(("size", "classes"), [(1, 3), (2, 2), (4, 3), (6, 5), (9, 4)])
def test_votes_are_those_counted_by_hand(size, classes):
    members = pool_of(size, examples=200, classes=classes)
    assert majority_vote(members).tolist() == vote_by_hand(members)


def test_one_member_is_itself():
    (only,) = pool_of(1)
    for rule in (majority_vote, probability_average, logit_average):
        assert np.array_equal(rule([only]), only.predictions)


def test_averages_are_numpy_s_means():
    members = pool_of(5)
    mean = np.mean([one.probabilities for one in members], axis=0)
    assert np.array_equal(probability_average(members), mean.argmax(axis=1))
    assert np.array_equal(logit_average(members), np.mean([one.scores for one in members], axis=0).argmax(axis=1))


def test_averaging_logits_lets_one_member_decide():
    """Odds for class 0 of 4, 4 and 1/19: their product is 16/19. Probabilities: 0.8 + 0.8 + 0.05 > 3/2."""
    members = [member([[0.8, 0.2]]), member([[0.8, 0.2]]), member([[0.05, 0.95]])]
    assert logit_average(members).tolist() == [1]
    assert probability_average(members).tolist() == majority_vote(members).tolist() == [0]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (member([[0.6, 0.4]] * 3), "member 1 has 3 examples, member 0 has 2"),
        (member([[0.6, 0.4]] * 2, labels=[0, 1]), "member 1 differs from member 0 in the labels of 1 examples"),
        (member([[0.6, 0.4]] * 2, index=np.array([1, 0])), "in the index of 2 examples"),
        (member([[0.6, 0.4]] * 2, classes=["c1", "c0"]), r"member 1 has classes \['c1', 'c0'\]"),
        (member([[0.2, 0.3, 0.5]] * 2), r"member 1 has classes .*c2"),
    ],
)
@pytest.mark.parametrize("rule", [majority_vote, probability_average, logit_average])
def test_members_that_predict_different_things_are_refused(rule, other, words):
    with pytest.raises(ValueError, match=words):
        rule([member([[0.6, 0.4]] * 2), other])


def test_no_member_and_failed_members_are_refused():
    with pytest.raises(ValueError, match="at least one member"):
        majority_vote([])
    broken = member([[0.6, 0.4]], scores=np.array([[np.nan, 0]], np.float32))
    with pytest.raises(NonFinitePredictions, match="member 1"):
        majority_vote([member([[0.6, 0.4]]), broken])


def test_collapsed_members_stay_in_and_can_carry_the_vote():
    """Two of three collapse onto class 1: so does the ensemble, by the same status rule as a run; one is outvoted."""
    sound = member([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9]], labels=[0, 1, 0, 1])
    collapsed = member([[0.2, 0.8]] * 4, labels=[0, 1, 0, 1])
    rows = {
        count: evaluate(as_predictions(majority_vote(members), sound), Evaluation())
        for count, members in {1: [sound, sound, collapsed], 2: [sound, collapsed, collapsed]}.items()
    }
    assert (rows[1]["status"], rows[1]["accuracy"]) == ("successful", 1.0)
    assert (rows[2]["status"], rows[2]["accuracy"]) == ("collapsed", 0.5)
    assert rows[2]["ties"] == 0


# --- drawing from a pool --------------------------------------------------------------------------------------------


def test_members_of_a_drawn_ensemble_are_distinct():
    sample = sample_ensembles(range(10), 4, draws=50, seed=0)
    assert sample.members.shape == (50, 4)
    assert all(sorted(set(row)) == row for row in sample.members.tolist())
    assert set(sample.members.ravel()) == set(range(10))


def test_the_seed_decides_the_draws():
    first, again, other = (sample_ensembles(range(10), 3, 5, seed).members for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_overlap_is_the_mean_over_pairs_of_sets():
    sample = sample_ensembles(range(12), 5, draws=20, seed=3)
    sets = [set(row) for row in sample.members.tolist()]
    shared = [len(one & other) for one, other in itertools.combinations(sets, 2)]
    assert sample.overlap == pytest.approx(sum(shared) / len(shared))


def test_overlap_of_nearly_the_whole_pool():
    """Nine of ten: two different ensembles share eight, so all ten of them have an overlap of 8."""
    assert overlap(np.array(list(itertools.combinations(range(10), 9)))) == pytest.approx(8)
    assert sample_ensembles(range(10), 9, 10, 0).overlap >= 8
    assert math.isnan(sample_ensembles(range(10), 9, 1, 0).overlap)


@pytest.mark.parametrize("size", [0, 11])
def test_a_size_beyond_the_pool_is_refused(size):
    with pytest.raises(ValueError, match=f"size = {size}: must lie between 1 and the pool's 10"):
        sample_ensembles(range(10), size, 5, 0)


def test_no_draw_is_refused():
    with pytest.raises(ValueError, match="draws = 0"):
        sample_ensembles(range(10), 3, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_expectation_runs_over_all_subsets(size):
    """Each subset voted by hand."""
    pool = pool_of(6)
    accuracies = [
        np.mean(np.array(vote_by_hand(subset)) == pool[0].labels) for subset in itertools.combinations(pool, size)
    ]
    found = exact_expectation(pool, size)
    assert (found.ensembles, found.exact) == (math.comb(6, size), True)
    assert (found.mean, found.std) == pytest.approx((np.mean(accuracies), np.std(accuracies)))
    assert (found.min, found.max) == (min(accuracies), max(accuracies))


def test_expectation_of_single_members_is_the_pool_s():
    pool = pool_of(7)
    accuracies = [np.mean(one.predictions == one.labels) for one in pool]
    assert exact_expectation(pool, 1).mean == pytest.approx(np.mean(accuracies))


def test_more_subsets_than_the_limit_are_drawn():
    """924 subsets: at a limit of 924 all, at 923 as many draws, whose mean is within 5 σ/√923 of the exact one."""
    pool = pool_of(12)
    everything, drawn = exact_expectation(pool, 6, limit=924), exact_expectation(pool, 6, limit=923)
    assert (everything.ensembles, everything.exact) == (924, True)
    assert (drawn.ensembles, drawn.exact) == (923, False)
    assert everything.std > 0
    assert abs(drawn.mean - everything.mean) < 5 * everything.std / 923**0.5
    assert exact_expectation(pool, 6, limit=923, seed=1) != drawn == exact_expectation(pool, 6, limit=923)


# --- the prediction for failed ensembles ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.45, 1.0])
def test_failed_rate_adds_up_the_outcomes(size, rate):
    """All 2^N of them; half of an even number is no majority."""
    expected = sum(
        math.prod(rate if failed else 1 - rate for failed in outcome)
        for outcome in itertools.product([True, False], repeat=size)
        if sum(outcome) > size / 2
    )
    assert failed_rate(size, rate) == pytest.approx(expected, abs=1e-15)


def test_failed_rate_by_hand():
    """q = 0.1, N = 3: 3 · 0.01 · 0.9 + 0.001."""
    assert failed_rate(3, 0.1) == pytest.approx(0.028)


def test_the_smallest_stable_size():
    """q = 0.1: N = 3 fails in 2.8 %, N = 5 in 0.0081 + 0.00045 + 0.00001 = 0.86 %. At q = 0.5 every size in half."""
    assert smallest_stable_size(0.1) == 5
    assert smallest_stable_size(0.1, tolerance=0.028001) == 3
    assert smallest_stable_size(0.1, largest=4) is None
    assert smallest_stable_size(0.0) == 1
    assert smallest_stable_size(0.5) is None


@pytest.mark.parametrize(("size", "rate", "words"), [(0, 0.1, "size = 0"), (3, 1.1, "failure_rate = 1.1")])
def test_impossible_rates_are_refused(size, rate, words):
    with pytest.raises(ValueError, match=words):
        failed_rate(size, rate)


def test_importing_needs_neither_torch_nor_pandas():
    code = "import sys, dsgd.ensembles; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "dsgd.ensembles" in loaded
    assert not {"torch", "pandas", "pyarrow", "sklearn", "hydra"} & set(loaded)


def test_a_pool_is_read_from_the_finished_runs_of_one_cell(train, run_of, tmp_path):
    """Two seeds of one cell, a run of another cell, and one that failed: a pool of two."""
    for arguments in (["seed=1"], ["seed=2"], ["seed=1", "method=fft"]):
        train(*arguments)
    folder_of(run_of("seed=3")).mark_failed("by the test")
    pool = members_of(tmp_path, run_of("seed=1").cell_id)
    assert len(pool) == 2
    assert len(majority_vote(pool)) == len(pool[0].labels)
