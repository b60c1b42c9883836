"""The moving average: its weights, its start, its way back."""

import copy

import pytest
import torch
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.averaging.ema import newest_share
from dsgd.methods.contracts import Step
from helpers import tiny_classifier
from shared import losses


def ema(**fields):
    return build("averaging", parts.EMA(**fields))


def followed(part, values, first=1, model=None):
    """A model of one weight that takes ``values``, one a step from ``first`` on."""
    model = model or nn.Linear(1, 1, bias=False)
    for number, value in enumerate(values, start=first):
        with torch.no_grad():
            model.weight.fill_(value)
        part.update(model, Step(number, 100))
    return model


def average(part, model):
    with part.result(model):
        return model.weight.item()


def test_pinned_values():
    """β = 1/2 over 8, 4, 6: weights 1/4, 1/2, 1 over 7/4, so (2 + 2 + 6) · 4/7 = 40/7; of 8, 4 alone (4 + 4) · 2/3."""
    for values, expected in (([8.0], 8.0), ([8.0, 4.0], 16 / 3), ([8.0, 4.0, 6.0], 40 / 7)):
        part = ema(decay=0.5)
        assert average(part, followed(part, values)) == pytest.approx(expected)


def test_agrees_with_the_corrected_recursion():
    """m_t = β m_{t-1} + (1 - β) θ_t from m_0 = 0, then divided by 1 - β^t."""
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    part, m = ema(), 0.0
    model = followed(part, values, model=nn.Linear(1, 1, bias=False, dtype=torch.float64))
    for value in values:
        m = 0.999 * m + 0.001 * value
    assert average(part, model) == pytest.approx(m / (1 - 0.999**50), rel=1e-9)


def test_the_average_of_a_constant_is_the_constant():
    """Exactly, and from the first step on."""
    model, part = tiny_classifier(dtype=torch.float32), ema()
    before = copy.deepcopy(model.state_dict())
    for number in range(1, 30):
        part.update(model, Step(number, 30))
        with part.result(model):
            assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_first_step_counts_wholly_and_late_ones_by_the_decay():
    assert newest_share(0.999, 1) == 1
    assert newest_share(0.9, 2) == pytest.approx(1 / 1.9)
    assert newest_share(0.999, 100_000) == pytest.approx(0.001)


def test_no_decay_is_the_last_step():
    part = ema(decay=0.0)
    assert average(part, followed(part, [8.0, 4.0, 6.0])) == 6.0


def test_the_trained_weights_return_exactly():
    part = ema(decay=0.5)
    model = followed(part, [8.0, 4.1])
    before = model.weight.detach().clone()
    with part.result(model):
        assert not torch.equal(model.weight, before)
    assert torch.equal(model.weight, before)
    assert part.variants(model) == {}


def test_the_average_does_not_follow_later_changes_of_the_weights():
    part = ema(decay=0.5)
    model = followed(part, [8.0])
    with torch.no_grad():
        model.weight.fill_(0.0)
    assert average(part, model) == 8.0


def test_frozen_weights_are_not_kept():
    model, part = nn.Linear(2, 2), ema()
    model.bias.requires_grad_(False)
    part.update(model, Step(1, 10))
    assert list(part.state_dict()["average"]) == ["weight"]


def test_a_resumed_average_is_the_uninterrupted_one():
    whole, first, second = ema(decay=0.9), ema(decay=0.9), ema(decay=0.9)
    model = followed(whole, [1.0, 2.0, 5.0, 3.0])
    followed(first, [1.0, 2.0])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    other = followed(second, [5.0, 3.0], first=3)
    assert average(whole, model) == average(second, other)


def test_a_run_is_evaluated_with_the_average(train):
    """The steps are FFT's own; only what is evaluated at the end differs."""
    plain, averaged = train("method=fft"), train("method=ema")
    assert losses(plain) == losses(averaged)
    assert (plain.path / "predictions.parquet").read_bytes() != (averaged.path / "predictions.parquet").read_bytes()
