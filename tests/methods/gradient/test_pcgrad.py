"""PCGrad between W and C."""

import pytest
import torch
from objectives import Penalty, flat, gradients_by, objective_of, plain_gradients
from torch import nn
from torchjd.aggregation import PCGrad as PCGradOfTorchJD

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Step, Window
from dsgd.methods.gradient.pcgrad import PCGrad, projection_factors
from dsgd.methods.gradient.two_groups import inner_products
from helpers import random_batch, tiny_classifier, window_of


class Fixed(nn.Module):
    """One parameter whose group gradients are given."""

    def __init__(self, wrong, correct):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(len(wrong), dtype=torch.float64))
        self.groups = [{"weight": torch.tensor(g, dtype=torch.float64)} for g in (wrong, correct)]

    def group_gradients(self, model, window):
        return tuple(self.groups)

    def add_penalty(self, model):
        pass


def combined(part, wrong, correct, size=1):
    """What ``part`` leaves of two given group gradients; and its statistics."""
    given = Fixed(wrong, correct)
    statistics = part(given, Window([], size, Step(1, 1)), given)
    return given.weight.grad, statistics


def conflicting_pairs(count=20, length=7):
    generator = torch.Generator().manual_seed(3)
    wrong = torch.randn(count, length, generator=generator, dtype=torch.float64)
    correct = torch.randn(count, length, generator=generator, dtype=torch.float64) - wrong
    return [
        pair for pair in zip(wrong.tolist(), correct.tolist(), strict=True) if torch.dot(*map(torch.tensor, pair)) < 0
    ]


def test_pinned_values():
    """g_W = (3, 0), g_C = (-2, 2): d = -6, factors 1 + 6/9 and 1 + 6/8, sum (5, 0) + (-3.5, 3.5) = (1.5, 3.5)."""
    gradient, statistics = combined(PCGrad("correct"), [3.0, 0.0], [-2.0, 2.0])
    assert gradient.tolist() == pytest.approx([1.5, 3.5])
    assert statistics["pcgrad/cosine"].item() == pytest.approx(-6 / (3 * 8**0.5))
    assert statistics["pcgrad/conflict"].item() == 1
    assert statistics["pcgrad/wrong_factor"].item() == pytest.approx(5 / 3)
    assert statistics["pcgrad/correct_factor"].item() == pytest.approx(7 / 4)


def test_the_printed_variant_divides_by_the_norm():
    """Same pair: factors 1 + 6/3 = 3 and 1 + 6/√8 = 1 + 1.5 √2, sum (9, 0) + (-2 - 3√2, 2 + 3√2)."""
    gradient, _ = combined(PCGrad("printed"), [3.0, 0.0], [-2.0, 2.0])
    more = 3 * 2**0.5
    assert gradient.tolist() == pytest.approx([7 - more, 2 + more])


def test_the_sum_is_divided_by_the_window_once():
    """(1.5, 3.5) over m = 4, however many of them are in W."""
    gradient, _ = combined(PCGrad("correct"), [3.0, 0.0], [-2.0, 2.0], size=4)
    assert gradient.tolist() == pytest.approx([0.375, 0.875])


@pytest.mark.parametrize("pair", conflicting_pairs())
def test_a_projected_group_opposes_the_other_no_more(pair):
    """METHODS 17 (6): each group alone, projected, has inner product >= -1e-6 with the other's original.

    The projected g_W is g_W - (d/|g_C|²) g_C, in which g_C's share is what its factor exceeds 1 by.
    """
    wrong, correct = (torch.tensor(g, dtype=torch.float64) for g in pair)
    a, b = projection_factors(inner_products({"w": wrong}, {"w": correct}), exponent=1.0)
    assert (wrong + (b - 1) * correct) @ correct >= -1e-6
    assert (correct + (a - 1) * wrong) @ wrong >= -1e-6


@pytest.mark.parametrize("pair", [*conflicting_pairs(), ([1.0, 2.0], [0.5, 0.1]), ([1.0, 0.0], [0.0, 1.0])])
def test_agrees_with_torchjd(pair):
    """Its aggregator sums the projected rows, as the groups' sums are summed here; the mean would be half of it."""
    expected = PCGradOfTorchJD()(torch.tensor(pair, dtype=torch.float64))
    assert torch.allclose(combined(PCGrad("correct"), *pair)[0], expected, rtol=1e-9)


def test_equal_norms_keep_the_plain_direction():
    """|g_W| = |g_C| = 5, d = 9 - 16 = -7, cos = -7/25 = -0.28: the plain sum (6, 0) times 1 - cos = 1.28."""
    gradient, _ = combined(PCGrad("correct"), [3.0, 4.0], [3.0, -4.0])
    assert gradient.tolist() == pytest.approx([1.28 * 6.0, 0.0])


@pytest.mark.parametrize("variant", ["correct", "printed"])
@pytest.mark.parametrize(("wrong", "correct"), [([0.0, 0.0], [1.0, -2.0]), ([1.0, -2.0], [0.0, 0.0])])
def test_an_empty_group_leaves_the_mean_gradient(variant, wrong, correct):
    gradient, statistics = combined(PCGrad(variant), wrong, correct, size=2)
    assert gradient.tolist() == [0.5, -1.0]
    assert statistics["pcgrad/conflict"].item() == 0
    assert statistics["pcgrad/cosine"].isnan()


def test_without_conflict_it_is_full_fine_tuning():
    """The identity, to 1e-12 in float64, on a real model and a window whose groups agree."""
    model, objective = tiny_classifier(), objective_of()
    window = agreeing_window(model, objective)
    altered, statistics = gradients_by(PCGrad("correct"), model, window, objective)
    assert statistics["pcgrad/conflict"] == 0
    assert 0 < statistics["pcgrad/cosine"] < 1
    assert torch.allclose(flat(altered), flat(plain_gradients(model, window, objective)), atol=1e-12)


def agreeing_window(model, objective):
    windows = (window_of(random_batch(seed=seed)) for seed in range(40))
    return next(window for window in windows if cosine(model, window, objective) > 0)


def conflicting_window(model, objective):
    windows = (window_of(random_batch(seed=seed)) for seed in range(40))
    return next(window for window in windows if cosine(model, window, objective) < -0.05)


def cosine(model, window, objective):
    return gradients_by(PCGrad("correct"), model, window, objective)[1]["pcgrad/cosine"]


def test_groups_are_those_of_the_model():
    """Against autograd: the gradients of the two sums of cross-entropies, projected as the formula says."""
    model, objective = tiny_classifier(), objective_of()
    window = conflicting_window(model, objective)
    (batch,) = window.batches
    logits = model(**batch.inputs)
    losses = nn.functional.cross_entropy(logits, batch.labels, reduction="none")
    hit = logits.argmax(1) == batch.labels
    names = [name for name, _ in model.named_parameters()]
    wrong, correct = (
        dict(zip(names, torch.autograd.grad(losses[which].sum(), model.parameters(), retain_graph=True), strict=True))
        for which in (~hit, hit)
    )
    w, c = flat(wrong), flat(correct)
    d = w @ c
    expected = (w - d / (c @ c) * c + c - d / (w @ w) * w) / len(batch.labels)
    altered, statistics = gradients_by(PCGrad("correct"), model, window, objective)
    assert statistics["pcgrad/conflict"] == 1
    assert torch.allclose(flat(altered), expected, atol=1e-12)
    assert not torch.allclose(flat(altered), flat(plain_gradients(model, window, objective)), atol=1e-4)


def test_accumulation_projects_the_window_once():
    """The groups are summed over the micro-batches first; projecting each one's would give another sum."""
    model, objective = tiny_classifier(), objective_of()
    whole = conflicting_window(model, objective)
    (batch,) = whole.batches
    cut = [type(batch)({name: x[rows] for name, x in batch.inputs.items()}, batch.labels[rows])
           for rows in (slice(0, 3), slice(3, None))]  # fmt: skip
    one, _ = gradients_by(PCGrad("correct"), model, whole, objective)
    other, _ = gradients_by(PCGrad("correct"), model, window_of(*cut), objective)
    assert torch.allclose(flat(one), flat(other), atol=1e-12)


def test_the_penalty_is_added_after_the_projection():
    """Its gradient, the bias itself, is neither projected nor divided by m."""
    model = tiny_classifier()
    nn.init.constant_(model.head.bias, 2.0)
    window = conflicting_window(model, objective_of())
    without, _ = gradients_by(PCGrad("correct"), model, window, objective_of())
    with_penalty, _ = gradients_by(PCGrad("correct"), model, window, objective_of(adapter=Penalty()))
    difference = {name: with_penalty[name] - gradient for name, gradient in without.items()}
    bias = difference.pop("network.classifier.bias")
    assert torch.allclose(bias, torch.full_like(bias, 2.0))
    assert flat(difference).abs().max() == 0


def test_only_what_trains_gets_a_gradient():
    model = tiny_classifier()
    model.embeddings.requires_grad_(False)
    altered, _ = gradients_by(PCGrad("correct"), model, window_of(random_batch()), objective_of())
    assert set(altered) == {name for name, p in model.named_parameters() if p.requires_grad}


def test_built_from_its_config():
    assert build("gradient", parts.PCGrad()).exponent == 1.0
    assert build("gradient", parts.PCGrad(variant=parts.PCGradVariant.printed)).exponent == 0.5
