"""Confidence weights: 1 - p of the true class, as constants."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from dsgd.methods.contracts import Step
from dsgd.methods.loss.confidence import Confidence

STEP = Step(1, 10)


def test_values_by_hand():
    """Logits (0, ln 3): p = 1/4 and 3/4. Label 1 weighs 1/4 with ℓ = ln 4/3, label 0 weighs 3/4 with ℓ = ln 4."""
    logits = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    output = Confidence().per_example(logits, torch.tensor([1, 0]), STEP)
    assert output.losses.tolist() == pytest.approx([math.log(4 / 3) / 4, 3 * math.log(4) / 4])
    assert output.statistics["confidence/weight"].item() == pytest.approx(1)


def test_no_gradient_runs_through_the_weights():
    """∂/∂z = (1 - p_y)(p - onehot(y)): the closed form of cross-entropy's gradient times a constant."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 4, dtype=torch.float64, generator=generator).requires_grad_()
    labels = torch.randint(4, (20,), generator=generator)
    Confidence().per_example(logits, labels, STEP).losses.sum().backward()
    p = logits.detach().softmax(dim=1)
    weights = 1 - p[torch.arange(20), labels]
    expected = weights[:, None] * (p - one_hot(labels, 4))
    torch.testing.assert_close(logits.grad, expected, rtol=1e-10, atol=1e-14)


def test_weights_are_the_same_at_every_step_and_for_right_and_wrong():
    """Unlike DSGD's: p of the true class is 0.4 both where it wins against 0.3 and 0.3 and where 0.6 beats it."""
    three = torch.tensor([[0.4, 0.3, 0.3], [0.4, 0.6, 1e-12]], dtype=torch.float64).log()
    part, labels = Confidence(), torch.zeros(2).long()
    first, last = (part.per_example(three, labels, Step(number, 10)) for number in (1, 10))
    assert first.is_correct.tolist() == [True, False]
    assert first.losses.tolist() == pytest.approx([-0.6 * math.log(0.4)] * 2)
    assert torch.equal(first.losses, last.losses)
