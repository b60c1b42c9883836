"""Ensembles of finished runs, computed from their stored predictions: votes, averages, draws from a pool. Torch-free.

Source: the ensembles ENS×N of arXiv 2604.27987, section 5, which are majority votes. A member whose run collapsed
stays in; one with non-finite logits is a failed run, of which there are no predictions to vote with.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsgd.evaluation import NonFinitePredictions, Predictions
from dsgd.runs import scan
from dsgd.summary import predictions_of

Labels = npt.NDArray[np.int64]  # (n,), a class for each example
_log = logging.getLogger(__name__)


def members_of(results: Path, cell_id: str) -> list[Predictions]:
    """The pool: stored predictions of one cell's finished runs under ``results``, in the order of their folders.

    Damaged ones are left out with a warning.
    """
    found = []
    for folder in scan(results):
        if (folder.read("identity.json") or {}).get("cell_id") == cell_id and folder.state == "finished":
            try:
                found.append(predictions_of(folder))
            except (OSError, ValueError) as error:
                _log.warning("%s; left out of the ensemble", error)
    return found


def majority_vote(members: Sequence[Predictions]) -> Labels:
    """The class that most members predict.

    Of classes with equally many votes the one with the larger sum of all members' probabilities wins, and of those
    with the same sum the lowest. The members' order does not matter.

    Raises:
        ValueError: no member, or members of which two differ in the examples, their labels or the classes.
        NonFinitePredictions: a member has a non-finite logit.
    """
    return _vote(_ballots(members))


def probability_average(members: Sequence[Predictions]) -> Labels:
    """The class of the highest mean probability, of several the lowest; raises as ``majority_vote`` does."""
    return _highest(_ballots(members).probabilities)


def logit_average(members: Sequence[Predictions]) -> Labels:
    """The class of the highest mean logit, of several the lowest; raises as ``majority_vote`` does.

    Unlike a vote, it lets one member with large logits decide.
    """
    _require_agreement(members)
    return _highest(np.stack([member.scores.astype(np.float64) for member in members]))


def as_predictions(labels: Labels, member: Predictions) -> Predictions:
    """An ensemble's classes in the form that metrics and status are computed from, with 1 for 0 as its logits.

    Args:
        labels: (n,), what a function above gives.
        member: any member, for the examples and the classes.
    """
    scores = np.zeros_like(member.scores)
    scores[np.arange(len(labels)), labels] = 1
    return replace(member, scores=scores)


@dataclass(frozen=True, eq=False)
class Sample:
    """Ensembles drawn from one pool.

    Attributes:
        members: (draws, size), positions in the pool, ascending in each row.
        overlap: members that two of the ensembles share, the mean over all pairs; NaN for a single one. Where it is
            large, the spread over the ensembles says little about that of independent ones.
    """

    members: npt.NDArray[np.int64]
    overlap: float


def sample_ensembles(pool: Sequence[Any], size: int, draws: int, seed: int) -> Sample:
    """Draw ``draws`` ensembles, each without replacement inside, independently of one another.

    Raises:
        ValueError: ``size`` is not between 1 and the pool's, or ``draws`` below 1.
    """
    _check_size(pool, size)
    if draws < 1:
        raise ValueError(f"draws = {draws}: must be at least 1")
    generator = np.random.default_rng(seed)
    members = np.stack([np.sort(generator.permutation(len(pool))[:size]) for _ in range(draws)])
    return Sample(members, overlap(members))


def overlap(members: npt.NDArray[np.int64]) -> float:
    """Shared members of two rows of ``members`` (draws, size), the mean over all pairs; NaN for a single row."""
    draws = len(members)
    if draws < 2:
        return math.nan
    # A member that c ensembles have is shared by c (c - 1) / 2 of the pairs.
    counts = np.bincount(members.ravel())
    return float((counts * (counts - 1)).sum() / (draws * (draws - 1)))


@dataclass(frozen=True)
class Expectation:
    """Accuracy of the majority vote over the ensembles of one size.

    Attributes:
        mean: in [0, 1], as the others.
        std: of the population of ensembles (divisor: their number), not of independent repetitions.
        min: the worst.
        max: the best.
        ensembles: how many were looked at.
        exact: whether these are all that the pool holds, or else random draws.
    """

    mean: float
    std: float
    min: float
    max: float
    ensembles: int
    exact: bool


def exact_expectation(pool: Sequence[Predictions], size: int, limit: int = 2000, seed: int = 0) -> Expectation:
    """Accuracy over all subsets of ``size`` members, or over ``limit`` random draws where there are more subsets.

    Raises:
        ValueError: as ``majority_vote`` and ``sample_ensembles`` do.
    """
    _check_size(pool, size)
    ballots, truth = _ballots(pool), pool[0].labels
    exact = math.comb(len(pool), size) <= limit
    subsets: Iterable[Sequence[int]] = itertools.combinations(range(len(pool)), size)
    if not exact:
        subsets = sample_ensembles(pool, size, limit, seed).members.tolist()
    found = np.array([np.mean(_vote(ballots.of(subset)) == truth) for subset in subsets])
    return Expectation(
        float(found.mean()), float(found.std()), float(found.min()), float(found.max()), len(found), exact
    )


def failed_rate(size: int, failure_rate: float) -> float:
    """Probability that more than half of ``size`` independent members failed, each with ``failure_rate``.

    It predicts how many ensembles fail if a failed majority is what fails an ensemble: failed members that predict
    different classes are outvoted by fewer sound ones.

    Raises:
        ValueError: ``size`` below 1 or ``failure_rate`` outside [0, 1].
    """
    if size < 1:
        raise ValueError(f"size = {size}: must be at least 1")
    if not 0 <= failure_rate <= 1:
        raise ValueError(f"failure_rate = {failure_rate}: must lie in [0, 1]")
    return math.fsum(
        math.comb(size, failed) * failure_rate**failed * (1 - failure_rate) ** (size - failed)
        for failed in range(size // 2 + 1, size + 1)
    )


def smallest_stable_size(failure_rate: float, tolerance: float = 0.01, largest: int = 99) -> int | None:
    """The smallest odd number of members at which ``failed_rate`` is at most ``tolerance``, or None up to ``largest``.

    Where every second run or more fails, a vote does not help, and there is none.

    Raises:
        ValueError: ``failure_rate`` outside [0, 1].
    """
    sizes = range(1, largest + 1, 2)
    return next((size for size in sizes if failed_rate(size, failure_rate) <= tolerance), None)


class _Ballots(NamedTuple):
    """What P members say of n examples: classes (P, n) and probabilities (P, n, K)."""

    votes: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]

    def of(self, members: Sequence[int]) -> _Ballots:
        """The ballots of some of them."""
        chosen = list(members)
        return _Ballots(self.votes[chosen], self.probabilities[chosen])


def _ballots(members: Sequence[Predictions]) -> _Ballots:
    _require_agreement(members)
    return _Ballots(
        np.stack([member.predictions for member in members]), np.stack([member.probabilities for member in members])
    )


def _vote(ballots: _Ballots) -> Labels:
    _, n, k = ballots.probabilities.shape
    counts = np.zeros((n, k), dtype=np.int64)
    for votes in ballots.votes:
        counts[np.arange(n), votes] += 1
    leads = counts == counts.max(axis=1, keepdims=True)
    labels = leads.argmax(axis=1)
    tied = np.flatnonzero(leads.sum(axis=1) > 1)
    labels[tied] = np.where(leads[tied], _sum(ballots.probabilities[:, tied]), -np.inf).argmax(axis=1)
    return np.asarray(labels, dtype=np.int64)


def _highest(scores: npt.NDArray[np.float64]) -> Labels:
    """Of ``scores`` (P, n, K), the class with the highest sum, (n,)."""
    return np.asarray(_sum(scores).argmax(axis=1), dtype=np.int64)


def _sum(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Over the members, sorted, so that rounding neither depends on their order nor breaks the tie of equal sets."""
    total: npt.NDArray[np.float64] = np.sort(scores, axis=0).sum(axis=0)
    return total


def _require_agreement(members: Sequence[Predictions]) -> None:
    if not members:
        raise ValueError("an ensemble needs at least one member")
    first = members[0]
    for position, member in enumerate(members):
        if member.classes != first.classes:
            raise ValueError(f"member {position} has classes {member.classes}, member 0 has {first.classes}")
        if len(member.index) != len(first.index):
            raise ValueError(f"member {position} has {len(member.index)} examples, member 0 has {len(first.index)}")
        for name in ("index", "labels"):
            differ = int((getattr(member, name) != getattr(first, name)).sum())
            if differ:
                raise ValueError(f"member {position} differs from member 0 in the {name} of {differ} examples")
        if not np.isfinite(member.scores).all():
            raise NonFinitePredictions(f"member {position} has non-finite logits: its run failed")


def _check_size(pool: Sequence[Any], size: int) -> None:
    if not 1 <= size <= len(pool):
        raise ValueError(f"size = {size}: must lie between 1 and the pool's {len(pool)} members")
