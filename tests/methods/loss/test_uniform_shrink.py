"""Uniform shrink: every example weighs the mean of DSGD's weights."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.loss import IGNORED, weighted_losses
from dsgd.methods.contracts import Step
from dsgd.methods.loss.uniform_shrink import UniformShrink
from dsgd.schedules import LinearSchedule, StaticSchedule


def test_values_by_hand():
    """Three wrong and one correct of m = 4, γ = 0.2: the weight is (3 + 0.2)/4 = 0.8; the ignored row counts nowhere.

    Logits (0, ln 3): label 0 is wrong with ℓ = ln 4, label 1 correct with ℓ = ln 4/3.
    """
    logits = torch.tensor([[0.0, math.log(3)]] * 5, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 0, IGNORED])
    output = UniformShrink(LinearSchedule(10)).per_example(logits, labels, Step(2, 10))
    wrong, correct = 0.8 * math.log(4), 0.8 * math.log(4 / 3)
    assert output.losses.tolist() == pytest.approx([wrong, wrong, correct, wrong, 0])
    assert output.statistics["uniform_shrink/weight"].item() == pytest.approx(3.2)


def test_the_weight_is_the_mean_of_dsgd_s():
    """DSGD's weights read off its losses, one by one."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(30, 3, dtype=torch.float64, generator=generator)
    labels = torch.randint(3, (30,), generator=generator)
    plain = cross_entropy(logits, labels, reduction="none")
    mean = (weighted_losses(logits, labels, 0.3).losses / plain).mean()
    output = UniformShrink(StaticSchedule(0.3)).per_example(logits, labels, Step(1, 10))
    assert 0.3 < mean < 1
    torch.testing.assert_close(output.losses, mean * plain, rtol=1e-12, atol=0)


def test_the_gradient_keeps_cross_entropy_s_direction():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(30, 3, dtype=torch.float64, generator=generator).requires_grad_()
    labels = torch.randint(3, (30,), generator=generator)
    (plain,) = torch.autograd.grad(cross_entropy(logits, labels, reduction="sum"), logits)
    output = UniformShrink(StaticSchedule(0.0)).per_example(logits, labels, Step(1, 10))
    (ours,) = torch.autograd.grad(output.losses.sum(), logits)
    torch.testing.assert_close(ours, output.statistics["wrong"].item() / 30 * plain, rtol=1e-12, atol=0)


def test_gamma_one_is_cross_entropy_bit_for_bit():
    logits, labels = torch.randn(7, 3, dtype=torch.float64), torch.arange(7) % 3
    losses = UniformShrink(StaticSchedule(1.0)).per_example(logits, labels, Step(1, 10)).losses
    assert torch.equal(losses, cross_entropy(logits, labels, reduction="none"))


def test_gamma_is_shown_to_the_history():
    assert UniformShrink(LinearSchedule(10)).gamma(Step(3, 10)) == pytest.approx(0.3)
