"""LDAM: margins that shrink with the fourth root of the class's size, then class-balanced weights."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.config import parts
from dsgd.loss import IGNORED
from dsgd.methods.contracts import Step
from dsgd.methods.loss.class_balanced import class_weights
from dsgd.methods.loss.ldam import LDAM, class_margins

EARLY, LATE = Step(1, 10), Step(10, 10)


def ldam(counts, max_margin=0.5, scale=1.0, beta=0.9999, deferred=0.8):
    return LDAM(max_margin, scale, beta, deferred, counts)


def draw():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 3, dtype=torch.float64, generator=generator), torch.randint(3, (12,), generator=generator)


def test_margins_by_hand():
    """n = (16, 81, 1): n^(-1/4) = 1/2, 1/3, 1; the rarest gets the whole 0.6."""
    assert class_margins([16, 81, 1], 0.6).tolist() == pytest.approx([0.3, 0.2, 0.6])
    assert torch.equal(class_margins([16, 0], 0.6), class_margins([16, 1], 0.6))


def test_values_by_hand():
    """n = (16, 1), largest margin ln 3. Logits (0, ln 3), label 1: less ln 3 they are (0, 0), so ℓ = ln 2.

    Label 0, margin ln 3 / 2: logits (-ln √3, ln 3), ℓ = ln(1 + 3√3).
    """
    logits = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    output = ldam([16, 1], max_margin=math.log(3)).per_example(logits, torch.tensor([1, 0]), EARLY)
    assert output.losses.tolist() == pytest.approx([math.log(2), math.log(1 + 3 * math.sqrt(3))])


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_value_and_gradient_are_the_formula_s(scale):
    """-log of exp(s(z_y - Δ_y)) over itself plus Σ_{k≠y} exp(s z_k), in float64, times the weights after deferral."""
    (logits, labels), counts = draw(), [50, 20, 5]
    leaf, rows = logits.clone().requires_grad_(), torch.arange(12)
    delta = torch.tensor([0.5 * (5 / count) ** 0.25 for count in counts], dtype=torch.float64)
    true = (scale * (leaf[rows, labels] - delta[labels])).exp()
    others = (scale * leaf).exp().sum(dim=1) - (scale * leaf[rows, labels]).exp()
    for step, weights in ((EARLY, torch.ones(3).double()), (LATE, class_weights(counts, 0.9999))):
        expected = -weights[labels] * (true / (true + others)).log()
        (gradient,) = torch.autograd.grad(expected.sum(), leaf, retain_graph=True)
        ours = logits.clone().requires_grad_()
        output = ldam(counts, scale=scale).per_example(ours, labels, step)
        output.losses.sum().backward()
        torch.testing.assert_close(output.losses, expected, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(ours.grad, gradient, rtol=1e-7, atol=1e-9)
        assert output.statistics["ldam/weight"].item() == pytest.approx(weights[labels].sum().item())


def test_verdicts_go_by_the_logits_without_margins():
    """z = (0, 0.4) says class 1; its margin of 0.5 turns that. z = (0, 0.6) clears it; the ignored row has no say."""
    logits = torch.tensor([[0.0, 0.4], [0.0, 0.6], [0.0, 0.4]])
    output = ldam([1, 1]).per_example(logits, torch.tensor([1, 1, IGNORED]), EARLY)
    assert output.is_correct.tolist() == [True, True, False]
    assert (output.statistics["correct"], output.statistics["ldam/within_margin"]) == (2, 1)


def test_a_vanishing_margin_is_cross_entropy():
    logits, labels = draw()
    losses = ldam([50, 20, 5], max_margin=1e-12).per_example(logits, labels, EARLY).losses
    torch.testing.assert_close(losses, cross_entropy(logits, labels, reduction="none"), rtol=1e-9, atol=1e-9)


def test_the_default_scale_leaves_the_gradient_of_linear_heads_its_size():
    """Σ|∂ℓ/∂z| of one example is at most 2 s: 2 for cross-entropy and the default, 60 for the scale of cosine heads."""
    logits, labels = torch.tensor([[0.0, 20.0]], dtype=torch.float64), torch.tensor([0])
    default = parts.LDAM()
    for scale, size in ((default.scale, 2), (30.0, 60)):
        leaf = logits.clone().requires_grad_()
        ldam([5, 5], default.max_margin, scale).per_example(leaf, labels, EARLY).losses.sum().backward()
        assert leaf.grad.abs().sum().item() == pytest.approx(size)
