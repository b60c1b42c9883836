"""Numbers with their uncertainty: pairs measured in turn, and the interval of a median."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A median and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


def interval(samples: Sequence[float], resamples: int = 2000) -> Interval:
    """Percentile bootstrap of the median (Efron 1979), from a stream of its own.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("nothing was measured")
    values = np.asarray(samples, dtype=np.float64)
    drawn = np.random.default_rng(0).choice(values, (resamples, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Interval(float(np.median(values)), float(low), float(high))


def paired(one: Callable[[], float], other: Callable[[], float], pairs: int) -> list[float]:
    """``one() / other()`` of neighbouring measurements, so that what slows the machine slows both.

    Each goes first in every second pair.
    """
    ratios = []
    for number in range(pairs):
        if number % 2:
            below, above = other(), one()
        else:
            above, below = one(), other()
        ratios.append(above / below)
    return ratios
