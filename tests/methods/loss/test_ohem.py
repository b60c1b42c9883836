"""OHEM: the mean over the share of a window's examples with the highest losses."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.loss import IGNORED
from dsgd.methods.contracts import Step
from dsgd.methods.loss.ohem import OHEM, highest, number_kept

STEP = Step(1, 10)


def logits_of(losses):
    """Two-class logits (z, 0) whose cross-entropy against class 0 is as given."""
    return torch.tensor([[-math.log(math.expm1(loss)), 0.0] for loss in losses], dtype=torch.float64)


def test_values_by_hand():
    """Losses 3, 1, 2, 0.1, 0.2 and keep = 1/2: ceil(2.5) = 3 stay and weigh 5/3, so that the sum over m is their mean.

    Class 0 loses where ℓ > ln 2, so the three kept are all wrong, and of the other two both are correct.
    """
    output = OHEM(0.5).per_example(logits_of([3, 1, 2, 0.1, 0.2]), torch.zeros(5).long(), STEP)
    assert output.losses.tolist() == pytest.approx([5, 5 / 3, 10 / 3, 0, 0])
    assert output.losses.sum().item() / 5 == pytest.approx((3 + 1 + 2) / 3)
    assert (output.statistics["ohem/kept"], output.statistics["ohem/kept_wrong"]) == (3, 3)
    assert (output.statistics["wrong"], output.statistics["correct"]) == (3, 2)


def test_the_highest_losses_stay_even_where_they_are_correct():
    """Losses 0.1, 0.2, 0.3, all correct, and 2: with keep = 1/2 the wrong one and the 0.3 stay."""
    output = OHEM(0.5).per_example(logits_of([0.1, 2, 0.3, 0.2]), torch.zeros(4).long(), STEP)
    assert output.losses.tolist() == pytest.approx([0, 4, 0.6, 0])
    assert (output.statistics["ohem/kept"], output.statistics["ohem/kept_wrong"]) == (2, 1)


def test_gradient_is_that_of_the_mean_over_the_kept():
    """Sorted and cut by hand, then differentiated: the dropped rows get zeros."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 5, dtype=torch.float64, generator=generator).requires_grad_()
    labels = torch.randint(5, (20,), generator=generator)
    plain = cross_entropy(logits, labels, reduction="none")
    (expected,) = torch.autograd.grad(plain.sort().values[-6:].mean(), logits)
    (found,) = torch.autograd.grad(OHEM(0.3).per_example(logits, labels, STEP).losses.sum() / 20, logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-16)
    assert (found == 0).all(dim=1).sum() == 14


def test_keeping_all_is_cross_entropy_bit_for_bit():
    logits, labels = torch.randn(7, 3, dtype=torch.float64), torch.arange(7) % 3
    assert torch.equal(
        OHEM(1.0).per_example(logits, labels, STEP).losses, cross_entropy(logits, labels, reduction="none")
    )


@pytest.mark.parametrize(
    ("keep", "m", "kept"), [(0.55, 20, 11), (0.5, 5, 3), (0.1, 30, 3), (1 / 3, 9, 3), (0.001, 1, 1), (0.7, 0, 0)]
)
def test_the_number_kept_is_rounded_up_without_rounding_errors(keep, m, kept):
    """0.55 · 20 = 11.000000000000002 in floating point, of which the ceiling is 12."""
    assert number_kept(torch.tensor(m), keep) == kept


def test_of_equal_losses_the_first_stay():
    losses, valid = torch.tensor([1.0, 2.0, 1.0, 1.0]), torch.ones(4, dtype=torch.bool)
    assert highest(losses, valid, torch.tensor(3)).tolist() == [True, True, True, False]


def test_ignored_examples_are_neither_kept_nor_counted():
    """Two of the four are valid, so keep = 1/2 keeps one of them, at weight 2, and not the two of m = 4."""
    labels = torch.tensor([IGNORED, 0, IGNORED, 0])
    output = OHEM(0.5).per_example(logits_of([9, 1, 9, 0.5]), labels, STEP)
    assert output.losses.tolist() == pytest.approx([0, 2, 0, 0])


def test_a_nan_is_never_dropped():
    """It must reach the loss, or a failed run would go on."""
    losses = torch.tensor([1.0, math.nan, 2.0])
    assert highest(losses, torch.ones(3, dtype=torch.bool), torch.tensor(1)).tolist() == [False, True, False]
