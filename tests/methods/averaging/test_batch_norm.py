"""BatchNorm statistics of averaged weights: estimated on the training split, gone when the trained weights return."""

import pytest
import torch
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.averaging.batch_norm import estimate_statistics, has_batch_norm
from dsgd.methods.contracts import Batch, Step


class Normalised(nn.Module):
    """A weight, then BatchNorm, dropout and a second weight that nothing normalises."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.norm = nn.BatchNorm1d(2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.norm(self.scale * x))


def batches(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [Batch({"x": 3 + torch.randn(size, 2, generator=generator)}, torch.zeros(size)) for size in sizes]


def test_the_mean_is_that_of_all_examples_whatever_the_batches():
    """The last batch is smaller, and its examples count no more than others."""
    model, seen = Normalised(), batches(8, 8, 3)
    estimate_statistics(model, seen)
    everything = torch.cat([batch.inputs["x"] for batch in seen])
    torch.testing.assert_close(model.norm.running_mean, everything.mean(0))


def test_the_variance_is_the_mean_of_the_batches_own():
    """Weighted by their sizes: 8/11 and 3/11; unbiased, as BatchNorm keeps it."""
    model, seen = Normalised(), batches(8, 3)
    estimate_statistics(model, seen)
    first, second = (batch.inputs["x"].var(0) for batch in seen)
    torch.testing.assert_close(model.norm.running_var, 8 / 11 * first + 3 / 11 * second)


@pytest.mark.parametrize("mode", [True, False])
def test_nothing_else_changes(mode):
    """Neither modes, momentum, the count of batches, gradients nor the random stream, dropout or not."""
    model = Normalised().train(mode)
    model.norm.eval()
    state = torch.get_rng_state()
    estimate_statistics(model, batches(4, 4))
    assert (model.training, model.dropout.training, model.norm.training) == (mode, mode, False)
    assert (model.norm.momentum, model.norm.num_batches_tracked.item()) == (0.1, 0)
    assert "norm.num_batches_tracked" in model.state_dict()
    assert model.scale.grad is None
    assert torch.equal(state, torch.get_rng_state())


def test_only_batch_norm_counts():
    assert has_batch_norm(Normalised())
    assert not has_batch_norm(nn.Sequential(nn.LayerNorm(2), nn.BatchNorm1d(2, track_running_stats=False)))


@pytest.mark.parametrize("config", [parts.SWA(checkpoints=2, last=[2]), parts.EMA(decay=0.5)], ids=["swa", "ema"])
def test_an_average_gets_statistics_of_its_own_and_gives_them_back(config):
    """The weight is 1 and then 3: averaged 2 by SWA and (1/4 · 1 + 1/2 · 3) / (3/4) = 7/3 by EMA."""
    seen = batches(16)
    part = build("averaging", config, total_steps=2, refresh=lambda model: estimate_statistics(model, seen))
    model = Normalised()
    for number, weight in enumerate((1.0, 3.0), start=1):
        model.scale.data.fill_(weight)
        model.norm.running_mean.fill_(10 * weight)
        part.update(model, Step(number, 2))
    average = 2 if config.name == "swa" else 7 / 3
    with part.result(model) as averaged:
        assert averaged.scale.item() == pytest.approx(average)
        torch.testing.assert_close(averaged.norm.running_mean, average * seen[0].inputs["x"].mean(0))
    assert model.scale.item() == 3.0
    assert model.norm.running_mean.tolist() == [30.0, 30.0]
