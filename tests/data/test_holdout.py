"""A part of the training split in the evaluation split's place."""

import numpy as np
import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.data import load_task
from dsgd.data.splits import stratified_shares
from dsgd.models import load_preprocessor


@pytest.fixture(scope="module")
def splits():
    """The packaged digits, whole and with a tenth held out."""

    def load(*overrides):
        (run,) = expand(read_command(["task=digits", "model=vit_digits", *overrides]))
        config = run.config
        return load_task(config.task, config.data, load_preprocessor(config.model), subset_seed=0)

    return load(), load("task.holdout=0.1"), load("task.holdout=0.1", "task.split_seed=1")


def test_held_out_and_kept_rows_part_the_training_split(splits):
    whole, held, _ = splits
    kept, out = set(held.train.index), set(held.evaluation.index)
    assert not kept & out
    assert kept | out == set(whole.train.index)
    assert not out & set(whole.evaluation.index)


def test_each_class_gives_its_share():
    """10 % of 40 and of 20 rows are 4 and 2; a class of 3 gives one."""
    labels = np.repeat([0, 1, 2], [40, 20, 3])
    _, rows = stratified_shares(labels, range(63), 0.1, seed=0)
    assert np.bincount(labels[rows]).tolist() == [4, 2, 1]


def test_the_split_has_a_seed_of_its_own(splits):
    _, held, other = splits
    assert set(held.evaluation.index) != set(other.evaluation.index)


def test_a_holdout_is_another_run():
    whole, held = expand(read_command(["-m", "task.holdout=0,0.1"]))
    assert whole.id != held.id
    assert held.label == "dsgd[holdout=0.1]"
