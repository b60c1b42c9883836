"""Focal loss: -α (1 - p)^γ log p, of the true class's p and α."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.methods.contracts import Step
from dsgd.methods.loss.focal import Focal, class_factors, modulation

STEP = Step(1, 10)


def focal(gamma=2.0, alpha=None, alpha_by_class=None, classes=3):
    return Focal(gamma, alpha, alpha_by_class, [1] * classes)


def draw(classes=3, examples=20):
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(examples, classes, dtype=torch.float64, generator=generator)
    return logits, torch.randint(classes, (examples,), generator=generator)


def result(loss, logits, labels):
    leaf = logits.clone().requires_grad_()
    output = loss.per_example(leaf, labels, STEP)
    output.losses.sum().backward()
    return output, leaf.grad


def test_values_by_hand():
    """Logits (0, ln 3): p = 1/4 and 3/4. γ = 2, α = 1/4.

    Label 1: 1/4 · (1/4)² · ln 4/3; label 0: (1 - 1/4) · (3/4)² · ln 4. The factors add up to 1/64 + 27/64.
    """
    logits = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    output, _ = result(focal(2.0, 0.25, classes=2), logits, torch.tensor([1, 0]))
    assert output.losses.tolist() == pytest.approx([math.log(4 / 3) / 64, 27 / 64 * math.log(4)])
    assert output.statistics["focal/weight"].item() == pytest.approx(28 / 64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gamma_zero_without_alpha_is_cross_entropy_bit_for_bit(dtype):
    """METHODS 17 (11), gradient included."""
    logits, labels = draw()
    logits[0] = torch.tensor([0.0, 60.0, 0.0])  # p = 1 within precision: the clamp acts
    labels[0] = 1
    logits = logits.to(dtype)
    output, grad = result(focal(gamma=0.0), logits, labels)
    leaf = logits.clone().requires_grad_()
    expected = cross_entropy(leaf, labels, reduction="none")
    expected.sum().backward()
    assert torch.equal(output.losses, expected)
    assert torch.equal(grad, leaf.grad)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(
    ("options", "factors"),
    [
        ({"classes": 3}, [1, 1, 1]),
        ({"classes": 3, "alpha": 0.3}, [0.3, 0.3, 0.3]),
        ({"classes": 2, "alpha": 0.3}, [0.7, 0.3]),
        ({"classes": 2, "alpha": 0.3, "alpha_by_class": [5, 0.5]}, [5, 0.5]),
    ],
)
def test_value_and_gradient_are_the_formula_s(gamma, options, factors):
    """The formula literally, in float64, differentiated by autograd: also through (1 - p)^γ, and p knows no α."""
    logits, labels = draw(options["classes"])
    leaf = logits.clone().requires_grad_()
    p = leaf.softmax(dim=1)[torch.arange(len(labels)), labels]
    expected = -torch.tensor(factors, dtype=torch.float64)[labels] * (1 - p) ** gamma * p.log()
    expected.sum().backward()
    output, grad = result(focal(gamma, **options), logits, labels)
    torch.testing.assert_close(output.losses, expected, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(grad, leaf.grad, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("gamma", [0.1, 0.5])
def test_certainty_has_a_finite_gradient_below_gamma_one(gamma):
    """At p = 1 the slope of (1 - p)^γ is infinite; with the clamp at 1e-6 it counts as flat."""
    output, grad = result(focal(gamma), torch.tensor([[0.0, 200.0, 0.0]]), torch.tensor([1]))
    assert output.losses.item() == 0
    assert grad.isfinite().all()
    assert modulation(torch.zeros(1, dtype=torch.float64), gamma).item() == pytest.approx(1e-6**gamma)


def test_alpha_is_of_class_one_and_of_all_classes_beyond_two():
    assert class_factors(None, None, 2) == [1, 1]
    assert class_factors(0.25, None, 2) == [0.75, 0.25]
    assert class_factors(0.25, None, 3) == [0.25, 0.25, 0.25]
    assert class_factors(0.25, [3.0, 1.0], 2) == [3, 1]


@pytest.mark.parametrize("by_class", [[1.0, 2.0], [1.0, 2.0, -3.0], [1.0, 2.0, math.nan], []])
def test_a_list_of_another_length_or_sign_is_refused_by_key(by_class):
    with pytest.raises(ValueError, match=r"loss\.alpha_by_class = \[.*\]: must be 3 numbers"):
        focal(alpha_by_class=by_class)
