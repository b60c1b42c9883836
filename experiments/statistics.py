"""Intervals and tests over seeds; each is a textbook procedure, from scipy where scipy has it.

Values are one number a run (accuracies, say), in any unit; p-values are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.float64]
Statistic = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]  # (resamples, n) → (resamples,)


class Interval(NamedTuple):
    """A confidence interval, its ends included; NaN where there are too few values for one."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, float | int) and self.low <= value <= self.high


class Test(NamedTuple):
    """What a test found; NaN where there are too few values, or they are all alike."""

    statistic: float
    p: float


def mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Along the last axis."""
    return np.asarray(np.mean(values, axis=-1))


def std(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sample standard deviation (ddof = 1) along the last axis, as the paper's tables have it (METHODS 0)."""
    return np.asarray(np.std(values, axis=-1, ddof=1))


def interquartile_mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean without the lowest and the highest quarter, along the last axis (Agarwal et al. 2021, arXiv:2108.13264).

    Of n values ⌊n/4⌋ go at each end.
    """
    ordered = np.sort(values, axis=-1)
    n = ordered.shape[-1]
    return np.asarray(np.mean(ordered[..., n // 4 : n - n // 4], axis=-1))


def bootstrap_interval(
    values: Values, statistic: Statistic = mean, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval:
    """Bias-corrected and accelerated bootstrap interval (Efron 1987) of a statistic over runs.

    It draws from a generator of its own, so the same values always give the same interval. Values that are all alike
    give that value twice; with fewer than two there is no interval. Over ten seeds it is somewhat too narrow, as every
    bootstrap interval of so few values is.

    Args:
        values: (n,), one a run.
        statistic: acts along the last axis: ``mean``, ``std``, ``interquartile_mean``, ``np.median`` with an axis.
        level: of confidence, in (0, 1).
        resamples: how many bootstrap samples.
        seed: of the generator.
    """
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return Interval(math.nan, math.nan)
    drawn = np.sort(_resampled(data, statistic, resamples, seed))
    ends = np.array([(1 - level) / 2, (1 + level) / 2])
    low, high = np.quantile(drawn, _corrected(ends, data, drawn, statistic))
    return Interval(float(low), float(high))


def probability_of_improvement(values: Values, others: Values) -> float:
    """Probability that a run of ``values`` beats one of ``others``, ties counting half: Mann–Whitney's U / (n m)."""
    difference = np.subtract.outer(np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64))
    return float(np.mean((np.sign(difference) + 1) / 2)) if difference.size else math.nan


def welch(values: Values, others: Values) -> Test:
    """Welch's t-test of equal means, variances left free."""
    from scipy.stats import ttest_ind

    return _tested(ttest_ind, values, others, equal_var=False)


def paired(values: Values, others: Values) -> Test:
    """Paired t-test of equal means; position i of both is the same seed. NaN where all differences are alike.

    Raises:
        ValueError: they are not of one length.
    """
    from scipy.stats import ttest_rel

    if len(values) != len(others):
        raise ValueError(f"{len(values)} values and {len(others)} others are no pairs")
    if len(values) and np.ptp(np.subtract(values, others)) == 0:
        return Test(math.nan, math.nan)
    return _tested(ttest_rel, values, others)


def brown_forsythe(*groups: Values) -> Test:
    """Brown–Forsythe's test of equal spread: Levene's, about the medians.

    NaN where each group's distances from its median are all alike, as those of two values are: the test divides by how
    much they vary.
    """
    from scipy.stats import levene

    distances = [np.abs(group - np.median(group)) for group in map(np.asarray, groups) if len(group)]
    if all(np.ptp(each) <= 1e-9 * each.max() for each in distances):
        return Test(math.nan, math.nan)
    return _tested(levene, *groups, center="median")


def binomial_interval(successes: int, runs: int, level: float = 0.95) -> Interval:
    """Exact (Clopper–Pearson) interval of a rate, such as that of failed runs; (0, 1) of no runs.

    Raises:
        ValueError: not 0 ≤ successes ≤ runs.
    """
    if not 0 <= successes <= runs:
        raise ValueError(f"successes = {successes}: must lie between 0 and the {runs} runs")
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = betaincinv(successes, runs - successes + 1, tail) if successes else 0.0
    high = betaincinv(successes + 1, runs - successes, 1 - tail) if successes < runs else 1.0
    return Interval(float(low), float(high))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of a family of tests, adjusted by Holm's step-down procedure, in their order.

    NaN stands for a test that could not be made; it stays NaN and does not count.
    """
    adjusted = [math.nan] * len(p_values)
    order = sorted((p, position) for position, p in enumerate(p_values) if not math.isnan(p))
    highest = 0.0
    for rank, (p, position) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[position] = highest
    return adjusted


def _resampled(
    data: npt.NDArray[np.float64], statistic: Statistic, resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    drawn = np.random.default_rng(seed).integers(len(data), size=(resamples, len(data)))
    return statistic(data[drawn])


def _corrected(
    ends: npt.NDArray[np.float64], data: npt.NDArray[np.float64], drawn: npt.NDArray[np.float64], statistic: Statistic
) -> npt.NDArray[np.float64]:
    """The quantiles to read instead of ``ends``: shifted for bias and for a spread that changes with the statistic."""
    from scipy.special import ndtr, ndtri

    found = statistic(data[None, :])[0]
    below = (np.mean(drawn < found) + np.mean(drawn <= found)) / 2
    if below in (0.0, 1.0) or drawn[0] == drawn[-1]:
        return ends
    bias = ndtri(below)
    left_out = statistic(np.stack([np.delete(data, position) for position in range(len(data))]))
    distance = left_out.mean() - left_out
    scale = np.sum(distance**2) ** 1.5
    acceleration = np.sum(distance**3) / (6 * scale) if scale > 0 else 0.0
    normal = bias + ndtri(ends)
    return np.asarray(ndtr(bias + normal / (1 - acceleration * normal)))


def _tested(test: Callable[..., object], *groups: Values, **options: object) -> Test:
    """NaN instead of a warning where a group has fewer than two values or nothing varies."""
    if min(len(group) for group in groups) < 2 or all(np.ptp(np.asarray(group)) == 0 for group in groups):
        return Test(math.nan, math.nan)
    found = test(*groups, **options)
    return Test(float(found.statistic), float(found.pvalue))  # type: ignore[attr-defined]
