"""Random C: γ falls on as many examples as are correct, whichever they are."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.loss import IGNORED, weighted_losses
from dsgd.methods.contracts import Step
from dsgd.methods.loss.random_correct import RandomCorrect, random_subset
from dsgd.schedules import LinearSchedule, StaticSchedule


def draw(examples=20):
    """Twelve correct examples, six wrong ones and two ignored."""
    labels = torch.arange(examples) % 4
    logits = 3 * torch.nn.functional.one_hot(labels, 4).double() + torch.rand(examples, 4, dtype=torch.float64)
    labels[12:] = (labels[12:] + 1) % 4
    labels[18:] = IGNORED
    return logits, labels


def test_as_many_weigh_gamma_as_are_correct():
    """Weights read off as the quotient by the plain losses: 12 of 18 are 0.3, the others 1."""
    logits, labels = draw()
    output = RandomCorrect(LinearSchedule(10)).per_example(logits, labels, Step(3, 10))
    weights = output.losses / cross_entropy(logits, labels, reduction="none")
    assert sorted(weights[:18].tolist()) == pytest.approx([0.3] * 12 + [1.0] * 6)
    assert output.is_correct.tolist() == [True] * 12 + [False] * 8
    chosen = weights[:12] < 0.5
    assert output.statistics["random_correct/chosen_correct"] == chosen.sum()
    assert 0 < chosen.sum() < 12


def test_each_valid_example_is_as_likely():
    """1000 draws of 3 of 6: each of the six comes 500 times, ± 5σ = 5·√(1000·½·½) = 79; the ignored never."""
    torch.manual_seed(0)
    valid = torch.tensor([True, False, True, True, True, False, True, True])
    draws = torch.stack([random_subset(valid, torch.tensor(3)) for _ in range(1000)])
    assert (draws.sum(dim=1) == 3).all()
    counts = draws.sum(dim=0)
    assert not counts[~valid].any()
    assert ((counts[valid] - 500).abs() < 79).all()


def test_the_global_generator_decides_so_that_a_resumed_run_goes_on():
    logits, labels = draw()
    part, step = RandomCorrect(StaticSchedule(0.5)), Step(1, 10)
    torch.manual_seed(0)
    first, second = (part.per_example(logits, labels, step).losses for _ in range(2))
    torch.manual_seed(0)
    assert torch.equal(part.per_example(logits, labels, step).losses, first)
    assert not torch.equal(first, second)


def test_gamma_one_is_cross_entropy_bit_for_bit():
    logits, labels = draw()
    losses = RandomCorrect(StaticSchedule(1.0)).per_example(logits, labels, Step(1, 10)).losses
    assert torch.equal(losses, cross_entropy(logits, labels, reduction="none"))


def test_ignored_examples_are_never_chosen_and_stay_at_zero():
    """Even where their logits are NaN: 12 of the 18 others weigh 0, so that six losses are left."""
    logits, labels = draw()
    logits[18:] = float("nan")
    leaf = logits.requires_grad_()
    losses = RandomCorrect(StaticSchedule(0.0)).per_example(leaf, labels, Step(1, 10)).losses
    losses.sum().backward()
    assert losses[18:].tolist() == [0, 0]
    assert not leaf.grad[18:].any()
    assert (losses != 0).sum() == 6


@pytest.mark.parametrize("correct", [0, 18])
def test_one_empty_group_leaves_nothing_to_choose(correct):
    """All correct: all weigh γ; all wrong: none does. Both are DSGD bit for bit."""
    logits, labels = draw()
    labels[:18] = logits[:18].argmax(dim=1) if correct else logits[:18].argmin(dim=1)
    losses = RandomCorrect(StaticSchedule(0.3)).per_example(logits, labels, Step(1, 10)).losses
    assert torch.equal(losses, weighted_losses(logits, labels, 0.3).losses)
    assert weighted_losses(logits, labels, 0.3).statistics["correct"] == correct


def test_gamma_is_shown_to_the_history():
    assert RandomCorrect(LinearSchedule(10)).gamma(Step(3, 10)) == pytest.approx(0.3)
