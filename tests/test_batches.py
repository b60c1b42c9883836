"""Optimiser windows: every example once an epoch, the same examples whatever the split into micro-batches or ranks."""

from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

from dsgd import batches
from dsgd.batches import PART_COST, evaluation_batches, steps_per_epoch, total_steps, windows
from dsgd.config.schema import Debug, Trainer
from dsgd.data.text import Split
from dsgd.methods.contracts import Batch


class Rows:
    """A split whose batches carry row numbers as their inputs."""

    def __init__(self, count):
        self.labels = np.arange(count) % 3
        self.lengths = (np.arange(count) * 7) % 5

    def __len__(self):
        return len(self.labels)

    def batch(self, rows, _augmentation=None):
        return Batch({"row": torch.as_tensor(rows)}, torch.as_tensor(self.labels[rows]))


def all_rows(window):
    return [row for batch in rows_of(window) for row in batch]


def rows_of(window):
    return [batch.inputs["row"].tolist() for batch in window.batches]


def test_an_epoch_holds_every_example_once_and_the_last_window_its_rest():
    """23 examples in windows of 10: 10, 10, 3."""
    found = list(windows(Rows(23), Trainer(batch_size=10), seed=1, total=3))
    assert [window.size for window in found] == [10, 10, 3]
    assert sorted(row for window in found for batch in rows_of(window) for row in batch) == list(range(23))


def test_ignored_examples_do_not_count_in_m():
    """Labels of -100 are in a window's batches, and the loss is divided by the others' number."""
    split = Rows(23)
    split.labels[[0, 5, 7, 22]] = -100
    found = list(windows(split, Trainer(batch_size=10), seed=1, total=3))
    for window in found:
        assert window.size == sum(int((batch.labels != -100).sum()) for batch in window.batches)
    assert sum(window.size for window in found) == 19


def test_epochs_differ_and_seeds_differ():
    one = [rows_of(window) for window in windows(Rows(20), Trainer(batch_size=20), seed=1, total=2)]
    other = [rows_of(window) for window in windows(Rows(20), Trainer(batch_size=20), seed=2, total=1)]
    assert one[0] != one[1]
    assert one[0] != other[0]


def test_accumulation_splits_the_same_window():
    whole = windows(Rows(23), Trainer(batch_size=10), seed=1, total=3)
    split = windows(Rows(23), Trainer(batch_size=5, accumulation=2), seed=1, total=3)
    for one, other in zip(whole, split, strict=True):
        assert one.size == other.size
        assert sorted(all_rows(one)) == sorted(all_rows(other))
        assert all(len(batch) <= 5 for batch in rows_of(other))


def test_micro_batches_of_one_window_go_from_long_to_short():
    """Rows 0…4 have the lengths 0 2 4 1 3 (7i mod 5); equally long ones keep the order of the draw."""
    split = Rows(10)
    trainer = Trainer(batch_size=4, accumulation=3)
    (window,) = windows(split, trainer, seed=1, total=1)
    drawn = all_rows(next(windows(split, Trainer(batch_size=10), seed=1, total=1)))
    assert all_rows(window) == sorted(drawn, key=lambda row: -split.lengths[row])
    assert [len(batch) for batch in rows_of(window)] == [4, 4, 2]


def test_a_single_micro_batch_keeps_the_order_of_the_draw():
    drawn = np.random.default_rng([1, 0]).permutation(20)[:10]
    (window,) = windows(Rows(20), Trainer(batch_size=10), seed=1, total=1)
    assert all_rows(window) == drawn.tolist()


def test_sorted_micro_batches_compute_less_padding():
    """Eight texts of 1, 9, 1, 9, … tokens: as drawn both pairs of four are padded to 9 (72 tokens); sorted 36 + 4."""
    sizes = np.array([[1], [9]] * 4)
    split = Split(
        labels=np.zeros(8, np.int64),
        index=np.arange(8),
        starts=np.zeros((8, 1), np.int64),
        sizes=sizes,
        flat={"input_ids": np.arange(9, dtype=np.int32)},
        padding={"input_ids": 0},
    )
    (window,) = windows(split, Trainer(batch_size=4, accumulation=2), seed=1, total=1)
    assert [batch.inputs["input_ids"].numel() for batch in window.batches] == [36, 4]
    (whole,) = windows(split, Trainer(batch_size=8), seed=1, total=1)
    assert whole.batches[0].inputs["input_ids"].numel() == 72


def test_sorting_by_length_leaves_the_window_s_loss_and_gradient(monkeypatch):
    """Twelve texts of 1 to 12 tokens in float64: as one micro-batch, and in four sorted ones of different widths."""
    lengths = np.random.default_rng(0).permutation(12) + 1
    split = Split(
        labels=np.arange(12) % 3,
        index=np.arange(12),
        starts=(lengths.cumsum() - lengths)[:, None],
        sizes=lengths[:, None],
        flat={"input_ids": np.random.default_rng(1).integers(1, 20, lengths.sum())},
        padding={"input_ids": 0},
    )
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=3, **sizes)).double().eval()

    def loss_and_gradient(trainer, by_length=False):
        model.zero_grad()
        (window,) = windows(split, trainer, seed=1, total=1, by_length=by_length)
        total = 0.0
        for batch in window.batches:
            loss = cross_entropy(model(**batch.inputs).logits, batch.labels, reduction="sum") / window.size
            loss.backward()
            total += loss.item()
        return len(window.batches), total, [parameter.grad.clone() for parameter in model.parameters()]

    monkeypatch.setattr(batches, "PART_COST", 7)
    count, loss, gradient = loss_and_gradient(Trainer(batch_size=12))
    assert count == 1
    sorted_ones, by_length = (Trainer(batch_size=3, accumulation=4), False, 4), (Trainer(batch_size=12), True, 3)
    for trainer, cuts_by_length, expected in (sorted_ones, by_length):
        more, same_loss, same_gradient = loss_and_gradient(trainer, cuts_by_length)
        assert more == expected
        assert same_loss == pytest.approx(loss, rel=1e-12)
        for one, other in zip(gradient, same_gradient, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("most", [9, 4, 2])
def test_a_share_is_cut_where_it_costs_least(most):
    """Against all 256 ways to cut nine texts; a part pays ``PART_COST`` tokens and no part is larger than ``most``."""
    lengths = np.array([200, 190, 90, 85, 80, 60, 30, 12, 10])

    def cost(cuts):
        edges = [0, *cuts, 9]
        return sum((b - a) * lengths[a] + PART_COST for a, b in pairwise(edges))

    ways = [cuts for count in range(9) for cuts in combinations(range(1, 9), count)]
    allowed = [cuts for cuts in ways if max(b - a for a, b in pairwise([0, *cuts, 9])) <= most]
    found = batches._cheapest_cuts(lengths, most)
    assert cost(found) == min(map(cost, allowed))
    assert tuple(found) in allowed


def test_texts_of_one_length_stay_together():
    assert batches._cheapest_cuts(np.full(20, 32), 20) == []


def test_a_share_split_by_length_holds_the_same_examples():
    split, trainer = Rows(40), Trainer(batch_size=20)
    split.lengths = np.where(np.arange(40) % 4, 10, 500)
    for one, other in zip(windows(split, trainer, 1, 2), windows(split, trainer, 1, 2, by_length=True), strict=True):
        assert sorted(all_rows(one)) == sorted(all_rows(other))
        assert one.size == other.size
        assert [set(split.lengths[rows]) for rows in rows_of(other)] == [{500}, {10}]


@pytest.mark.parametrize("count", [23, 21])  # 21: the last window has one example, so one of two ranks has none
def test_ranks_share_the_same_window(count):
    alone = list(windows(Rows(count), Trainer(batch_size=10), seed=1, total=3))
    trainer = Trainer(batch_size=5, processes=2)
    ranks = [list(windows(Rows(count), trainer, seed=1, total=3, rank=rank)) for rank in range(2)]
    for whole, first, second in zip(alone, *ranks, strict=True):
        assert first.size == second.size == whole.size
        valid = [
            row
            for window in (first, second)
            for batch in window.batches
            for row, label in zip(batch.inputs["row"].tolist(), batch.labels.tolist(), strict=True)
            if label != -100
        ]
        assert sorted(valid) == sorted(all_rows(whole))
        assert all(window.batches for window in (first, second))


def test_a_resumed_run_gets_the_windows_it_had_not_seen():
    whole = [rows_of(window) for window in windows(Rows(23), Trainer(batch_size=10), seed=1, total=6)]
    rest = [rows_of(window) for window in windows(Rows(23), Trainer(batch_size=10), seed=1, total=6, first=5)]
    assert rest == whole[4:]


def test_the_clock_counts_partial_windows_and_obeys_its_caps():
    """23 examples in windows of 10 are 3 steps an epoch; 2 epochs are 6."""
    trainer = Trainer(batch_size=5, accumulation=2, epochs=2)
    assert steps_per_epoch(23, trainer) == 3

    def steps(max_steps=None, debug=None):
        config = SimpleNamespace(
            trainer=Trainer(batch_size=5, accumulation=2, epochs=2, max_steps=max_steps), debug=Debug(max_steps=debug)
        )
        return total_steps(23, config)

    assert (steps(), steps(max_steps=50), steps(debug=4), steps(max_steps=50, debug=4)) == (6, 50, 4, 4)


@pytest.mark.parametrize("processes", [1, 2])
def test_evaluation_sees_every_example_once_in_order_of_length(processes):
    split = Rows(23)
    found = [rows for rank in range(processes) for rows in evaluation_batches(split, 4, rank, processes)]
    assert sorted(np.concatenate(found).tolist()) == list(range(23))
    for rows in found:
        assert (np.diff(split.lengths[rows]) >= 0).all()
