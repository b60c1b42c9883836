import math

import numpy as np
import pytest
from scipy import stats

from experiments import statistics
from experiments.statistics import (
    Interval,
    binomial_interval,
    bootstrap_interval,
    brown_forsythe,
    holm,
    interquartile_mean,
    paired,
    probability_of_improvement,
    welch,
)

FIRST = [74.0, 55.0, 88.0, 90.0, 85.0, 55.0, 87.0, 91.0, 83.0, 86.0]
SECOND = [88.0, 89.0, 86.0, 90.0, 87.0, 84.0, 91.0, 88.0, 89.0, 92.0]


def test_bootstrap_intervals_agree_with_scipys():
    """Other random draws, the same method: ends within a few hundredths of a standard error."""
    for statistic in (statistics.mean, statistics.std):
        theirs = stats.bootstrap(
            (FIRST,), lambda x, axis, f=statistic: f(np.moveaxis(x, axis, -1)), n_resamples=20000, method="BCa"
        ).confidence_interval
        assert bootstrap_interval(FIRST, statistic, resamples=20000) == pytest.approx(tuple(theirs), abs=0.5)


def test_a_bootstrap_interval_repeats_and_holds_its_mean():
    assert bootstrap_interval(FIRST) == bootstrap_interval(FIRST)
    assert float(np.mean(FIRST)) in bootstrap_interval(FIRST)
    assert 60.0 not in bootstrap_interval(FIRST)


def test_bootstrap_intervals_cover_about_as_often_as_they_say():
    """Of 200 samples of 20 normal numbers, 95 % intervals of the mean hold 0 in 88 to 98 %: exact ones would in 95."""
    generator = np.random.default_rng(7)
    held = [0.0 in bootstrap_interval(generator.normal(size=20), resamples=999) for _ in range(200)]
    assert 0.88 <= np.mean(held) <= 0.98


def test_equal_values_have_an_interval_without_length():
    assert bootstrap_interval([55.0] * 10) == Interval(55.0, 55.0)
    assert 55.0 in bootstrap_interval([55.0] * 10)


def test_one_value_has_no_interval():
    interval = bootstrap_interval([55.0])
    assert math.isnan(interval.low)
    assert 55.0 not in interval


def test_interquartile_mean_leaves_out_a_quarter_at_each_end():
    """Of 55 55 74 83 85 86 87 88 90 91 the middle six: (74 + 83 + 85 + 86 + 87 + 88) / 6 = 83.8333."""
    assert interquartile_mean(np.array(FIRST)) == pytest.approx(503 / 6)
    assert interquartile_mean(np.array(FIRST)) == pytest.approx(stats.trim_mean(FIRST, 0.25))


def test_probability_of_improvement_counts_ties_half():
    """3 beats 1 and 2; 2 beats 1 and ties with 2: (2 + 1.5) / 4."""
    assert probability_of_improvement([3, 2], [1, 2]) == 0.875
    u = stats.mannwhitneyu(SECOND, FIRST).statistic
    assert probability_of_improvement(SECOND, FIRST) == pytest.approx(u / 100)
    assert math.isnan(probability_of_improvement([], [1]))


def test_welch_follows_its_closed_form():
    """(1, 2, 3) and (2, 4, 9): difference -3, variances 1 and 13, so t = -3 / √(14/3); degrees of freedom 2.306."""
    t = -3 / math.sqrt(14 / 3)
    freedom = (14 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (13 / 3) ** 2 / 2)
    assert welch([1, 2, 3], [2, 4, 9]) == pytest.approx((t, 2 * stats.t.sf(-t, freedom)))


def test_pairs_follow_their_closed_form():
    """Differences -1, -2, -6: mean -3, variance 7, so t = -3 / √(7/3) with 2 degrees of freedom."""
    t = -3 / math.sqrt(7 / 3)
    assert paired([1, 2, 3], [2, 4, 9]) == pytest.approx((t, 2 * stats.t.sf(-t, 2)))
    with pytest.raises(ValueError, match="no pairs"):
        paired([1, 2], [1])


def test_brown_forsythe_is_an_analysis_of_variance_of_distances_to_the_medians():
    distances = [np.abs(np.array(group) - np.median(group)) for group in (FIRST, SECOND)]
    assert brown_forsythe(FIRST, SECOND) == pytest.approx(tuple(stats.f_oneway(*distances)))


@pytest.mark.parametrize("test", [welch, paired, brown_forsythe])
def test_what_does_not_vary_or_stands_alone_has_no_p_value(test):
    assert math.isnan(test([55.0, 55.0], [55.0, 55.0]).p)
    assert math.isnan(test([1.0], [2.0]).p)


def test_two_runs_a_side_say_nothing_of_their_spread():
    """Both lie equally far from their median, so the test would divide by 0 and be certain."""
    assert math.isnan(brown_forsythe([81.51, 80.09], [90.94, 91.04]).p)
    assert not math.isnan(brown_forsythe([81.51, 80.09, 83.0], [90.94, 91.04]).p)


def test_binomial_intervals_are_exact():
    """0 of 10: the upper end solves (1 - p)¹⁰ = 0.025, so p = 1 - 0.025^0.1 = 0.3085."""
    assert binomial_interval(0, 10) == pytest.approx((0, 1 - 0.025**0.1))
    assert binomial_interval(10, 10) == pytest.approx((0.025**0.1, 1))
    theirs = stats.binomtest(3, 10).proportion_ci(0.9, method="exact")
    assert binomial_interval(3, 10, 0.9) == pytest.approx((theirs.low, theirs.high))
    assert binomial_interval(0, 0) == Interval(0, 1)
    with pytest.raises(ValueError, match="successes = 4"):
        binomial_interval(4, 3)


def test_holm_steps_down():
    """Sorted .01 .03 .04 times 3, 2, 1 is .03 .06 .04; never falling: .03 .06 .06. NaN takes no part."""
    assert holm([0.04, 0.01, math.nan, 0.03]) == pytest.approx([0.06, 0.03, math.nan, 0.06], nan_ok=True)
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.filterwarnings("error")
def test_pairs_that_all_differ_alike_have_no_p_value():
    """Their differences have no spread to judge them by, which scipy warns of or takes for certainty."""
    for others in ([1.0, 2.0, 4.0], [2.0, 3.0, 5.0]):
        assert math.isnan(paired([1.0, 2.0, 4.0], others).p)
