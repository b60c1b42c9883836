"""From a split to optimiser windows: which examples form step t, on which process, in which micro-batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from dsgd.data import Examples
from dsgd.methods.contracts import Batch, Step, Window

if TYPE_CHECKING:
    from dsgd.config.schema import Config, Trainer

IGNORED = -100

#: What a further forward and backward costs on a CPU beside its tokens, in tokens: weights are read and gradients added
#: once more. Of 0, 16, …, 128, steps of minilm on MRPC were fastest from 32 on, 16 % faster than whole batches.
PART_COST = 64


def steps_per_epoch(examples: int, trainer: Trainer) -> int:
    """Optimiser steps of one epoch, the last, partial window included."""
    return math.ceil(examples / window_size(trainer))


def total_steps(examples: int, config: Config) -> int:
    """T: optimiser steps of the whole run."""
    trainer = config.trainer
    steps = trainer.max_steps or trainer.epochs * steps_per_epoch(examples, trainer)
    return min(steps, config.debug.max_steps or steps)


def window_size(trainer: Trainer) -> int:
    """Examples of one full optimiser step over all micro-batches and processes."""
    return trainer.batch_size * trainer.accumulation * trainer.processes


def windows(
    split: Examples,
    trainer: Trainer,
    seed: int,
    total: int,
    first: int = 1,
    rank: int = 0,
    *,
    homogeneous: bool = False,
    by_length: bool = False,
) -> Iterator[Window]:
    """This process's windows for steps ``first`` to ``total``.

    Every process draws the same order from ``seed``; epoch e has its own permutation, so that a resumed run needs to
    replay nothing. ``Window.size`` counts the valid labels of all processes. A process whose share makes several
    micro-batches sorts it by length; with ``by_length`` it cuts the sorted share wherever that saves padding. With
    ``homogeneous`` each window is of one task, drawn in proportion to the tasks' examples, as jiant's
    ``ProportionalMultiTaskSampler`` does, and each task goes through epochs of its own.
    """
    tasks = tasks_of(split)
    rows_of = _of_one_task(tasks, trainer, seed, total) if homogeneous else _of_all(len(split), trainer, seed)
    for number in range(first, total + 1):
        rows = rows_of(number)
        valid = int((split.labels[rows] != IGNORED).sum())
        augmentation = np.random.default_rng([seed, number, rank, 1])
        batches = _micro_batches(split, rows[rank :: trainer.processes], rows, trainer, augmentation, by_length)
        present = tuple(np.unique(tasks[rows]).tolist()) if len(tasks) else ()
        yield Window(batches, valid, Step(number, total), present)


def tasks_of(split: Examples) -> np.ndarray:
    """Each example's task (n,) int64 where ``split`` joins several, else (0,)."""
    tasks: np.ndarray = getattr(split, "tasks", np.zeros(0, np.int64))
    return tasks


def evaluation_batches(split: Examples, batch_size: int, rank: int = 0, processes: int = 1) -> Iterator[np.ndarray]:
    """Row numbers of this process's evaluation batches, sorted by length so that little is padding."""
    order = np.argsort(split.lengths, kind="stable")[rank::processes]
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _of_all(examples: int, trainer: Trainer, *seed: int) -> Callable[[int], np.ndarray]:
    """Optimiser step → rows of its window, the last one of an epoch partial."""
    per_epoch, size = steps_per_epoch(examples, trainer), window_size(trainer)

    def rows(number: int) -> np.ndarray:
        epoch, position = divmod(number - 1, per_epoch)
        order: np.ndarray = np.random.default_rng([*seed, epoch]).permutation(examples)
        return order[position * size : (position + 1) * size]

    return rows


def _of_one_task(tasks: np.ndarray, trainer: Trainer, seed: int, total: int) -> Callable[[int], np.ndarray]:
    """The same where all rows of a window are of one task; of a task in its k-th turn the window is its k-th."""
    names, counts = np.unique(tasks, return_counts=True)
    # Words of a seed that no other stream has; those that are missing are zeros.
    drawn = np.random.default_rng([seed, 0, 0, 2]).choice(names, total, p=counts / len(tasks))
    members = {task: np.flatnonzero(tasks == task) for task in names}
    orders = {task: _of_all(len(own), trainer, seed, 0, int(task), 3) for task, own in members.items()}

    def rows(number: int) -> np.ndarray:
        task = drawn[number - 1]
        turn = int((drawn[:number] == task).sum())
        chosen: np.ndarray = members[task][orders[task](turn)]
        return chosen

    return rows


def _micro_batches(
    split: Examples,
    mine: np.ndarray,
    rows: np.ndarray,
    trainer: Trainer,
    augmentation: np.random.Generator,
    by_length: bool,
) -> list[Batch]:
    if len(mine) == 0:  # fewer examples than processes: take part in the exchange of gradients with an ignored one
        batch = split.batch(rows[:1])
        return [Batch(batch.inputs, torch.full_like(batch.labels, IGNORED))]
    size = trainer.batch_size
    if by_length or len(mine) > size:
        mine = _longest_first(split, mine)
    cuts = _cheapest_cuts(split.lengths[mine], size) if by_length else range(size, len(mine), size)
    return [split.batch(part, augmentation) for part in np.split(mine, list(cuts))]


def _longest_first(split: Examples, rows: np.ndarray) -> np.ndarray:
    """The same rows sorted by length, so that micro-batches hold little padding and the first needs the most memory.

    Exact, because the window's losses are summed and divided once: only the order of additions changes, and which
    random numbers of dropout an example gets.
    """
    ordered: np.ndarray = rows[np.argsort(-split.lengths[rows], kind="stable")]
    return ordered


def _cheapest_cuts(lengths: np.ndarray, most: int) -> list[int]:
    """Where to cut a share whose ``lengths`` (n,) fall, for the least padded tokens and ``PART_COST`` for each part.

    The shortest path over the places between examples; no part has more than ``most`` of them.
    """
    costs, cut_before = np.zeros(len(lengths) + 1), [0]
    for end in range(1, len(lengths) + 1):
        starts = np.arange(max(0, end - most), end)
        through = costs[starts] + (end - starts) * lengths[starts] + PART_COST
        best = int(through.argmin())
        costs[end] = through[best]
        cut_before.append(int(starts[best]))
    cuts, end = [], cut_before[-1]
    while end > 0:
        cuts.append(end)
        end = cut_before[end]
    return cuts[::-1]
