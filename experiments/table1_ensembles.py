"""What ensembles of Table 1's methods gain and cost: accuracy, failures and size (the paper's section 5.2).

python -m experiments.table1_ensembles
python -m experiments.table1_ensembles --experiment table1        with the ten runs of Table 1 as the pool
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import pandas as pd

from dsgd.ensembles import Expectation, exact_expectation, failed_rate
from dsgd.evaluation import Predictions, status
from experiments import command
from experiments.bagging import SIZES, accuracy, drawn_from, pool_of, thresholds_of, votes
from experiments.cells import Record, finished, groups_of
from experiments.names import ensemble_title, method_title, model_title, task_title
from experiments.statistics import binomial_interval
from experiments.tables import Entry, Table, Value

CAPTION = "Table 1, ensembles. Majority votes over N of the finished runs of one model, task and method."

NOTES = (
    "Members: finished/planned runs; of the finished ones, how many failed to learn (collapsed or degenerate) and the "
    "exact 95 % interval of that rate.",
    "Drawn: as many ensembles as runs are planned, each without replacement inside: accuracy in %, mean ± sample "
    "standard deviation; how many members two of them share on average. Where that is near N they are almost the same "
    "ensemble, and their spread says nothing of that of independent ones.",
    "Expected: accuracy over all subsets of the pool, or over 252 random ones where there are more (the number of "
    "fives out of ten), with the worst and the best.",
    "Failed: drawn ensembles that collapsed or are degenerate, and the share to expect if a majority of failed members "
    "is what fails an ensemble.",
    "Above best: drawn ensembles that beat the best single member.",
)

LIMIT = math.comb(10, 5)


@dataclass(frozen=True, eq=False)
class Pool:
    """The finished runs of one model, task and method."""

    model: str
    task: str
    label: str
    runs: Sequence[Record]

    @cached_property
    def members(self) -> list[Predictions]:
        """Their stored predictions."""
        return pool_of(self.runs)

    @cached_property
    def failed(self) -> int:
        """Members that learned nothing."""
        return sum(run["status"] != "successful" for run in finished(self.runs))

    @property
    def failure_rate(self) -> float | None:
        """None without a run."""
        done = len(finished(self.runs))
        return self.failed / done if done else None

    @property
    def best(self) -> float | None:
        """Accuracy of the best member, in %."""
        return max((100 * run["accuracy"] for run in finished(self.runs)), default=None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those that the planned runs suffice for."""
        return tuple(size for size in SIZES[str(self.runs[0]["preset"])] if size <= len(self.runs))


@dataclass(frozen=True)
class Ensembles:
    """What a pool's ensembles of one size do; None where the pool is too small for any."""

    drawn: int
    mean: float | None = None  # %
    std: float | None = None
    overlap: float | None = None  # members
    failed: int | None = None
    expected_failed: float | None = None  # in [0, 1]
    above_best: int | None = None
    expected: float | None = None  # %
    least: float | None = None  # over the same subsets
    most: float | None = None
    exact: bool | None = None


def draw(name: str, frame: pd.DataFrame) -> Table:
    """The table of the runs that ``collect`` found."""
    pools = [pool for pool in _pools(frame) if pool.sizes]
    measured = {(pool, size): measure(pool, size) for pool in pools for size in pool.sizes}
    return Table(
        name=name,
        caption=CAPTION,
        head=["Model", "Task", "Members", "Best", "Ensemble", "Drawn", "Shared", "Expected", "Failed", "Above best"],
        groups=[_group(pool, measured) for pool in pools],
        notes=[*NOTES, *_smallest_sizes(pools, measured)],
        records=[_record(pool, size, found) for (pool, size), found in measured.items()],
    )


def measure(pool: Pool, size: int) -> Ensembles:
    """Draw ensembles and judge them."""
    drawn = votes(pool.members, size, len(pool.runs))
    sample = drawn_from(pool.members, size, len(pool.runs))
    if sample is None or pool.best is None or pool.failure_rate is None:
        return Ensembles(0)
    accuracies = pd.Series([accuracy(ensemble) for ensemble in drawn])
    thresholds = thresholds_of(finished(pool.runs)[0])
    expectation: Expectation = exact_expectation(pool.members, size, LIMIT)
    return Ensembles(
        drawn=len(drawn),
        mean=float(accuracies.mean()),
        std=None if len(drawn) < 2 else float(accuracies.std(ddof=1)),
        overlap=None if math.isnan(sample.overlap) else sample.overlap,
        failed=sum(status(ensemble, thresholds) != "successful" for ensemble in drawn),
        expected_failed=failed_rate(size, pool.failure_rate),
        above_best=int((accuracies > pool.best).sum()),
        expected=100 * expectation.mean,
        least=100 * expectation.min,
        most=100 * expectation.max,
        exact=expectation.exact,
    )


def _pools(frame: pd.DataFrame) -> Iterator[Pool]:
    for (model, label), tasks in groups_of(frame).items():
        for task, runs in tasks.items():
            if runs[0]["preset"] in SIZES:
                yield Pool(model, task, label, runs)


def _smallest_sizes(pools: Sequence[Pool], measured: Mapping[tuple[Pool, int], Ensembles]) -> Iterator[str]:
    """The paper's threshold: from which size on no drawn ensemble failed."""
    for pool in pools:
        sound = [size for size in pool.sizes if measured[pool, size].failed == 0]
        tried = [size for size in pool.sizes if measured[pool, size].drawn]
        if tried:
            answer = f"{sound[0]}" if sound else f"none up to {tried[-1]}"
            where = f"{model_title(pool.model)}, {task_title(pool.task)}, {method_title(pool.label)}"
            yield f"Smallest size without a failed ensemble: {where}: {answer}."


def _group(pool: Pool, measured: Mapping[tuple[Pool, int], Ensembles]) -> list[list[Entry]]:
    first = [Entry(model_title(pool.model)), Entry(task_title(pool.task)), _members(pool), Entry(_number(pool.best))]
    blank = [Entry("")] * len(first)
    return [
        [*(first if size == pool.sizes[0] else blank), *_entries(pool, size, measured[pool, size])]
        for size in pool.sizes
    ]


def _members(pool: Pool) -> Entry:
    done = len(finished(pool.runs))
    interval = binomial_interval(pool.failed, done)
    rate = f", {pool.failed} failed to learn [{interval.low:.0%}, {interval.high:.0%}]" if done else ""
    return Entry(f"{method_title(pool.label)} {done}/{len(pool.runs)}", rate.removeprefix(", "))


def _entries(pool: Pool, size: int, found: Ensembles) -> list[Entry]:
    if not found.drawn:
        return [Entry(ensemble_title(pool.label, size)), *[Entry("—")] * 5]
    return [
        Entry(ensemble_title(pool.label, size)),
        Entry(f"{_number(found.mean)} ± {_number(found.std)}", f"{found.drawn}×"),
        Entry(_number(found.overlap)),
        Entry(_number(found.expected), f"[{_number(found.least)}, {_number(found.most)}]"),
        Entry(f"{found.failed}/{found.drawn}", f"expected {found.expected_failed:.0%}"),
        Entry(f"{found.above_best}/{found.drawn}"),
    ]


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _record(pool: Pool, size: int, found: Ensembles) -> dict[str, Value]:
    return {
        "model": pool.model,
        "task": pool.task,
        "method": pool.label,
        "planned": len(pool.runs),
        "pool": len(pool.members),
        "members_failed": pool.failed,
        "best_member": pool.best,
        "size": size,
        **{field.name: getattr(found, field.name) for field in fields(found)},
    }


if __name__ == "__main__":
    sys.exit(command.main("table1_ensembles", draw))
