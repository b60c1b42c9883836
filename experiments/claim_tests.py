"""The tests that decide claims: each compares two lists of samples and says how large the effect is and how sure.

The lists hold one sample a task; with several, averages over tasks are compared. A positive effect is in favour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from experiments.samples import Moments, Sample
from experiments.statistics import binomial_interval, brown_forsythe, probability_of_improvement, welch


class Outcome(NamedTuple):
    """Of one comparison; ``p`` is two-sided, NaN where there are too few runs to tell."""

    effect: float
    p: float
    text: str


Samples = Sequence[Sample]
Test = Callable[[Samples, Samples, float], Outcome]  # (of, than, limit)


def higher_mean(of: Samples, than: Samples, _limit: float) -> Outcome:
    """Welch's test on mean accuracies."""
    effect, text = mean_gain(of, than), ""
    if len(of) == 1 and of[0].accuracies and than[0].accuracies:
        text = f", better in {probability_of_improvement(of[0].accuracies, than[0].accuracies):.0%} of pairs of runs"
    return Outcome(effect, _welch_of_averages(of, than), f"{effect:+.2f} points{text}")


def smaller_spread(of: Samples, than: Samples, _limit: float) -> Outcome:
    """Brown–Forsythe's test on standard deviations of accuracy; over tasks, on accuracies less their task's median.

    The test compares mean distances from the median: where these and the standard deviations, which one far run can
    decide, order the sides differently, it speaks for neither.
    """
    effect = std_fall(of, than)
    sides = [np.concatenate([_centred(sample) for sample in side]) for side in (of, than)]
    test = brown_forsythe(*sides)
    if math.isnan(effect) or math.isnan(test.p):
        return Outcome(effect, math.nan, "STD unknown" if math.isnan(effect) else f"STD {0 - effect:+.2f} points")
    near, far = (float(np.mean(np.abs(side - np.median(side)))) for side in sides)
    return Outcome(effect, test.p if (near < far) == (effect > 0) else 1.0, f"STD {0 - effect:+.2f} points")


def fewer_failures(of: Samples, than: Samples, _limit: float) -> Outcome:
    """Fisher's exact test on the numbers of failed runs: collapsed, degenerate or without a result."""
    from scipy.stats import fisher_exact

    (failed, ended), (other_failed, other_ended) = _failures(of), _failures(than)
    text = f"{failed}/{ended} against {other_failed}/{other_ended} failed"
    if not ended or not other_ended:
        return Outcome(math.nan, math.nan, text)
    table = [[failed, ended - failed], [other_failed, other_ended - other_failed]]
    return Outcome(other_failed / other_ended - failed / ended, float(fisher_exact(table).pvalue), text)


def none_fails(of: Samples, _than: Samples, _limit: float) -> Outcome:
    """No run fails: one failure refutes it; as many planned runs as the paper's without one support it."""
    return _counted(of, by_a_failure=-1)


def some_fail(of: Samples, _than: Samples, _limit: float) -> Outcome:
    """Some run fails: one failure supports it; as many planned runs as the paper's without one refute it."""
    return _counted(of, by_a_failure=1)


def at_most_times_as_slow(of: Samples, than: Samples, limit: float) -> Outcome:
    """Welch's test on the logarithms of training times, against a ratio of ``limit``."""
    times, others = ([np.log(sample.seconds) for sample in side] for side in (of, than))
    if not all(len(time) for time in [*times, *others]):
        return Outcome(math.nan, math.nan, "no times")
    ratio = math.exp(fmean(time.mean() for time in times) - fmean(time.mean() for time in others))
    p = welch(np.concatenate(times), np.concatenate(others) + math.log(limit)).p
    return Outcome(limit - ratio, p, f"{ratio:.2f} times the training time")


def at_least_times_as_slow(of: Samples, than: Samples, limit: float) -> Outcome:
    """The same with the other side."""
    effect, p, text = at_most_times_as_slow(of, than, limit)
    return Outcome(-effect, p, text)


TESTS: dict[str, Test] = {
    "higher_mean": higher_mean,
    "smaller_spread": smaller_spread,
    "fewer_failures": fewer_failures,
    "none_fails": none_fails,
    "some_fail": some_fail,
    "at_most_times_as_slow": at_most_times_as_slow,
    "at_least_times_as_slow": at_least_times_as_slow,
}

#: Runs without a failure say that none fails where the interval of the rate ends below: at the paper's ten, 31 %.
RARE = 1 / 3

OF_ONE = ("none_fails", "some_fail")  # tests without a second side


def mean_gain(of: Sequence[Moments], than: Sequence[Moments]) -> float:
    """By how many points the average of the means is higher."""
    return fmean(side.mean for side in of) - fmean(side.mean for side in than)


def std_fall(of: Sequence[Moments], than: Sequence[Moments]) -> float:
    """By how many points the average of the standard deviations is lower."""
    return fmean(side.std for side in than) - fmean(side.std for side in of)


#: What printed means and STDs alone can say of a test.
PRINTED_EFFECTS: dict[str, Callable[[Sequence[Moments], Sequence[Moments]], float]] = {
    "higher_mean": mean_gain,
    "smaller_spread": std_fall,
}


def _welch_of_averages(of: Samples, than: Samples) -> float:
    """P of equal averages of independent means; with one sample a side this is Welch's test (Satterthwaite 1946)."""
    from scipy.stats import t

    sides = [*of, *than]
    counts = [len(sample.accuracies) for sample in sides]
    if min(counts) < 2:
        return math.nan
    variances = [sample.std**2 / count / len(of) ** 2 for sample, count in zip(sides, counts, strict=True)]
    if sum(variances) == 0:
        return math.nan
    freedom = sum(variances) ** 2 / sum(v**2 / (count - 1) for v, count in zip(variances, counts, strict=True))
    return float(2 * t.sf(abs(mean_gain(of, than)) / math.sqrt(sum(variances)), freedom))


def _centred(sample: Sample) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.asarray(sample.accuracies, dtype=np.float64)
    return values - np.median(values) if len(values) else values


def _failures(samples: Samples) -> tuple[int, int]:
    return sum(sample.failures for sample in samples), sum(sample.ended for sample in samples)


def _counted(samples: Samples, by_a_failure: int) -> Outcome:
    failed, ended = _failures(samples)
    low, high = binomial_interval(failed, ended)
    complete = ended == sum(sample.planned for sample in samples)
    decided = failed > 0 or (complete and high <= RARE)
    text = f"{failed}/{ended} failed, 95 % interval {low:.0%} to {high:.0%}"
    return Outcome(by_a_failure if failed else -by_a_failure, 0.0 if decided else math.nan, text)
