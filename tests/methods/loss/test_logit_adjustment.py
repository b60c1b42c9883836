"""Logit adjustment: cross-entropy of z + τ log π."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.methods.contracts import Step
from dsgd.methods.loss.logit_adjustment import LogitAdjustment, log_prior

STEP = Step(1, 10)


def draw():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 3, dtype=torch.float64, generator=generator), torch.randint(3, (12,), generator=generator)


def test_values_by_hand():
    """Logits (0, 0), prior (3/4, 1/4), τ = 1: the shifted softmax is the prior, so ℓ = ln 4/3 and ln 4."""
    output = LogitAdjustment(1.0, [30, 10]).per_example(torch.zeros(2, 2).double(), torch.tensor([0, 1]), STEP)
    assert output.losses.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])


def test_verdicts_go_by_the_raw_logits():
    """z = (0, 1) says class 1; shifted by ln 3/4 and ln 1/4, that is by ln 3 > 1, it says class 0."""
    output = LogitAdjustment(1.0, [30, 10]).per_example(torch.tensor([[0.0, 1.0]]), torch.tensor([1]), STEP)
    assert output.is_correct.tolist() == [True]
    assert (output.statistics["wrong"], output.statistics["logit_adjustment/wrong"]) == (0, 1)
    assert output.statistics["loss_correct"].item() == pytest.approx(math.log1p(math.exp(-1)))


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_it_is_the_pairwise_form(tau):
    """The paper's other form: log(1 + Σ_{k≠y} (π_k/π_y)^τ exp(z_k - z_y)), summed class by class."""
    (logits, labels), prior = draw(), [0.5, 0.3, 0.2]
    expected = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        others = [k for k in range(3) if k != label]
        ratio = [(prior[k] / prior[label]) ** tau * math.exp(row[k] - row[label]) for k in others]
        expected.append(math.log1p(sum(ratio)))
    output = LogitAdjustment(tau, [50, 30, 20]).per_example(logits, labels, STEP)
    assert output.losses.tolist() == pytest.approx(expected, rel=1e-12)


def test_the_raw_logits_learn_balanced_posteriors():
    """Minimised at equal inputs, z differs from the log frequencies by the prior: argmax z ignores how rare a class is.

    With labels in the prior's own shares the gradient at z = 0 is zero, where cross-entropy's is not.
    """
    logits, labels = torch.zeros(4, 2, dtype=torch.float64, requires_grad=True), torch.tensor([0, 0, 0, 1])
    output = LogitAdjustment(1.0, [3, 1]).per_example(logits, labels, STEP)
    (adjusted,) = torch.autograd.grad(output.losses.sum(), logits)
    (plain,) = torch.autograd.grad(cross_entropy(logits, labels, reduction="sum"), logits)
    assert adjusted.sum(dim=0).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert plain.sum(dim=0).tolist() == pytest.approx([-1, 1])


def test_tau_zero_is_cross_entropy_bit_for_bit():
    logits, labels = draw()
    for counts in ([50, 30, 20], [5, 0, 1]):
        losses = LogitAdjustment(0.0, counts).per_example(logits, labels, STEP).losses
        assert torch.equal(losses, cross_entropy(logits, labels, reduction="none"))


def test_equal_counts_are_cross_entropy():
    logits, labels = draw()
    losses = LogitAdjustment(1.0, [7, 7, 7]).per_example(logits, labels, STEP).losses
    torch.testing.assert_close(losses, cross_entropy(logits, labels, reduction="none"), rtol=1e-12, atol=0)


def test_a_class_without_examples_counts_as_one():
    assert log_prior([3, 0]).exp().tolist() == pytest.approx([3 / 4, 1 / 4])
