"""Windows over several tasks: mixed in proportion, or each of one task."""

import numpy as np
import pytest
import torch

from dsgd.batches import total_steps, windows
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.schema import Trainer
from dsgd.methods.contracts import Batch


class Rows:
    """Examples of two tasks, 30 and 70 of them; batches carry row numbers as their inputs."""

    def __init__(self):
        self.tasks = np.repeat([0, 1], [30, 70])
        self.labels = np.arange(100) % 2

    def __len__(self):
        return 100

    def batch(self, rows, _augmentation=None):
        return Batch({"row": torch.as_tensor(rows)}, torch.as_tensor(self.labels[rows]))


def rows_of(window):
    return np.concatenate([batch.inputs["row"].numpy() for batch in window.batches])


def of_one_task(total, first=1, rank=0, **trainer):
    return list(windows(Rows(), Trainer(batch_size=8, **trainer), 1, total, first, rank, homogeneous=True))


def test_mixed_windows_are_those_of_the_joined_examples():
    """Shuffled together: 13 windows of 8 hold each of the 100 once, and say which tasks are in them."""
    found = list(windows(Rows(), Trainer(batch_size=8), seed=1, total=13))
    assert sorted(np.concatenate([rows_of(window) for window in found])) == list(range(100))
    for window in found:
        assert window.tasks == tuple(np.unique(Rows().tasks[rows_of(window)]))
    assert (0, 1) in [window.tasks for window in found]


def test_a_homogeneous_window_is_of_one_task():
    for window in of_one_task(40):
        assert window.tasks in {(0,), (1,)}
        assert set(Rows().tasks[rows_of(window)]) == set(window.tasks)
        assert window.size == len(rows_of(window))


def test_tasks_are_drawn_in_proportion_to_their_examples():
    """3000 draws at 0.3: the share's standard deviation is √(0.3 · 0.7/3000) = 0.0084."""
    share = np.mean([window.tasks == (0,) for window in of_one_task(3000)])
    assert share == pytest.approx(0.3, abs=3 * 0.0084)


@pytest.mark.parametrize(("task", "sizes"), [(0, [8, 8, 8, 6]), (1, [8] * 8 + [6])])
def test_each_task_goes_through_epochs_of_its_own(task, sizes):
    """30 examples in windows of 8: 8, 8, 8, 6, each example once; then again in another order."""
    own = [rows_of(window) for window in of_one_task(60) if window.tasks == (task,)]
    assert len(own) >= 2 * len(sizes)
    first, second = own[: len(sizes)], own[len(sizes) : 2 * len(sizes)]
    assert [len(rows) for rows in first] == sizes
    for epoch in (first, second):
        assert sorted(np.concatenate(epoch)) == np.flatnonzero(Rows().tasks == task).tolist()
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))


def test_a_resumed_run_sees_the_windows_that_were_left():
    whole, rest = of_one_task(20), of_one_task(20, first=8)
    assert [rows_of(window).tolist() for window in rest] == [rows_of(window).tolist() for window in whole[7:]]


def test_processes_share_a_window_of_one_task():
    ranks = [of_one_task(6, rank=rank, processes=2) for rank in range(2)]
    for one, other in zip(*ranks, strict=True):
        assert one.tasks == other.tasks
        assert one.size == other.size == len(rows_of(one)) + len(rows_of(other))


def test_another_seed_draws_other_tasks():
    def tasks(seed):
        return [w.tasks for w in windows(Rows(), Trainer(batch_size=8), seed, 30, homogeneous=True)]

    assert tasks(1) == tasks(1) != tasks(2)


def test_steps_are_counted_over_all_tasks():
    """METHODS 15: 8 epochs of ⌈(3668 + 2490)/20⌉ = 308 steps."""
    (run,) = expand(read_command(["task=multitask", "task.tasks=[mrpc,rte]", "model=roberta_large"]))
    assert total_steps(3668 + 2490, run.config) == 8 * 308
