"""CAGrad between W and C."""

import math

import mpmath
import pytest
import torch
from objectives import Penalty, flat, gradients_by, objective_of, plain_gradients
from scipy.optimize import minimize_scalar
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.gradient.cagrad import CAGrad, conflict_averse_factors, share_of_wrong
from dsgd.methods.gradient.two_groups import inner_products
from helpers import random_batch, tiny_classifier, window_of


def pairs():
    """Agreeing, opposing, of unequal length; nearly collinear ones too."""
    generator = torch.Generator().manual_seed(5)

    def draw(count):
        return torch.randn(count, 4, generator=generator, dtype=torch.float64)

    wrong, correct = draw(24), draw(24) * torch.logspace(-2, 2, 24, dtype=torch.float64)[:, None]
    correct[:6] = -wrong[:6] * 0.8 + 0.01 * draw(6)
    correct[6:9] = 2 * wrong[6:9] + 0.01 * draw(3)
    return list(zip(wrong, correct, strict=True))


def direction(wrong, correct, c):
    """2d of two gradients, and x."""
    products = inner_products({"w": wrong}, {"w": correct})
    share = share_of_wrong(products, c)
    a, b = conflict_averse_factors(products, c, share)
    return a * wrong + b * correct, share.item()


@pytest.mark.parametrize("c", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("wrong", "correct"), pairs())
def test_the_share_is_where_scipy_finds_the_minimum(wrong, correct, c):
    """F(x) = g_x·g_0 + c |g_0| |g_x| over [0, 1], searched without the closed form."""
    mean = (wrong + correct) / 2

    def objective(x):
        mixed = x * wrong + (1 - x) * correct
        return (mixed @ mean + c * mean.norm() * mixed.norm()).item()

    found = minimize_scalar(objective, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
    best = min((found.x, 0.0, 1.0), key=objective)
    _, share = direction(wrong, correct, c)
    assert share == pytest.approx(best, abs=1e-5)
    assert objective(share) <= objective(best) + 1e-9


@pytest.mark.parametrize(("wrong", "correct"), pairs())
def test_no_direction_as_near_serves_the_worse_off_group_better(wrong, correct):
    """The definition: d maximises min(g_W·d, g_C·d) over |d - g_0| <= c |g_0|; 3000 others are tried."""
    c, mean = 0.5, (wrong + correct) / 2
    d = direction(wrong, correct, c)[0] / 2
    assert (d - mean).norm() <= c * mean.norm() * (1 + 1e-9)
    generator = torch.Generator().manual_seed(0)
    away = torch.randn(3000, 4, generator=generator, dtype=torch.float64)
    radius = torch.rand(3000, 1, generator=generator, dtype=torch.float64) ** 0.1
    others = mean + c * mean.norm() * radius * away / away.norm(dim=1, keepdim=True)
    worst = torch.minimum(others @ wrong, others @ correct)
    assert torch.minimum(d @ wrong, d @ correct) >= worst.max() - 1e-12


def test_pinned_values():
    """g_W = (1, 1), g_C = (-1, 1), c = 0.5: by symmetry x = 1/2, g_x = g_0 = (0, 1), d = 1.5 g_0, twice that (0, 3)."""
    found, share = direction(torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 1.0]), 0.5)
    assert share == pytest.approx(0.5)
    assert found.tolist() == pytest.approx([0, 3], abs=1e-6)


def test_an_end_of_the_interval():
    """g_W = (1, 0), g_C = (10, 0): g_x is shortest and least along g_0 at x = 1; d = 1.5 g_0 = (8.25, 0)."""
    found, share = direction(torch.tensor([1.0, 0.0]), torch.tensor([10.0, 0.0]), 0.5)
    assert share == 1
    assert found.tolist() == pytest.approx([2 * 1.5 * 5.5, 0])


@pytest.mark.parametrize(("wrong", "correct"), [([0.0, 0.0], [2.0, 1.0]), ([2.0, 1.0], [0.0, 0.0])])
def test_an_empty_group_leaves_the_plain_sum(wrong, correct):
    found, _ = direction(torch.tensor(wrong), torch.tensor(correct), 0.5)
    assert found.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("factor", [-1.0, -0.5, 1.0])
def test_collinear_groups_stay_finite(factor):
    """The line of the g_x passes through 0, or is a point."""
    wrong = torch.tensor([0.3, -0.7, 0.1])
    found, share = direction(wrong, factor * wrong, 0.5)
    assert found.isfinite().all()
    assert 0 <= share <= 1
    if factor == 1:  # one vector twice: d = g_0 + c |g_0| g_0/|g_0| = 1.5 g_0
        assert torch.allclose(found, 3 * wrong)


@pytest.mark.parametrize("scale", [1e-8, 1e6])
def test_the_share_does_not_depend_on_the_unit(scale):
    """In fp32: scaling both gradients scales the direction."""
    wrong, correct = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([0.5, -1.0, 0.3])
    found, share = direction(wrong, correct, 0.4)
    scaled, other = direction(scale * wrong, scale * correct, 0.4)
    assert share == pytest.approx(other, rel=1e-4)
    assert torch.allclose(scaled / scale, found, rtol=1e-4)


@pytest.mark.parametrize("ratio", [1.0, 1.0003, 1e-2, 6e-4, 1e-5, 1e-7])
@pytest.mark.parametrize("cosine", [0.6, 0.0, -0.9, -0.9999, -0.9999999])
def test_float32_gradients_give_the_exact_direction_whatever_their_ratio(ratio, cosine):
    """A small group is the worse-off one, so its factor is large; against many digits of the same formula."""
    generator = torch.Generator().manual_seed(1)
    correct, aside = torch.randn(2, 4000, generator=generator)
    aside = aside - correct * (aside @ correct) / (correct @ correct)
    aside = aside * correct.norm() / aside.norm()
    wrong = ratio * (cosine * correct + math.sqrt(1 - cosine**2) * aside)
    products = inner_products({"w": wrong}, {"w": correct})
    share = share_of_wrong(products, 0.5)
    a, b = conflict_averse_factors(products, 0.5, share)
    dot, ww, cc = (mpmath.fsum(x * y for x, y in zip(*pair, strict=True)) for pair in (
        (wrong.tolist(), correct.tolist()), (wrong.tolist(), wrong.tolist()), (correct.tolist(), correct.tolist())
    ))  # fmt: skip
    g_0 = mpmath.sqrt(ww + cc + 2 * dot) / 2

    def slope(x):
        mixed = mpmath.sqrt(x**2 * ww + (1 - x) ** 2 * cc + 2 * x * (1 - x) * dot)
        along = (x * ww - (1 - x) * cc + (1 - 2 * x) * dot) / mixed
        return (ww - cc) / 2 + 0.5 * g_0 * along

    low, high = mpmath.mpf(0), mpmath.mpf(1)  # the slope rises
    for _ in range(45):
        low, high = ((low + high) / 2, high) if slope((low + high) / 2) < 0 else (low, (low + high) / 2)
    x = high
    pull = 2 * 0.5 * g_0 / mpmath.sqrt(x**2 * ww + (1 - x) ** 2 * cc + 2 * x * (1 - x) * dot)
    assert a.item() == pytest.approx(float(1 + pull * x), rel=1e-5)
    assert b.item() == pytest.approx(float(1 + pull * (1 - x)), rel=1e-5)


def test_gradients_that_cancel_down_to_their_rounding_stay_plain():
    """-0.3 times another, rounded to float32, and c > 1: what is left of g_x is that rounding, and no direction."""
    wrong = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    products = inner_products({"w": wrong}, {"w": -0.3 * wrong})
    factors = conflict_averse_factors(products, 1.5, share_of_wrong(products, 1.5))
    assert [factor.item() for factor in factors] == [1.0, 1.0]


def test_c_zero_is_full_fine_tuning():
    model, objective = tiny_classifier(), objective_of()
    window = window_of(random_batch(), random_batch(3, seed=2))
    altered, _ = gradients_by(CAGrad(c=0.0), model, window, objective)
    assert torch.allclose(flat(altered), flat(plain_gradients(model, window, objective)), atol=1e-12)


def test_on_a_model_it_is_the_mean_plus_c_times_its_length():
    """Plain is 2 g_0/m and this 2 d/m, so |d - g_0| = c |g_0| is a distance of c times plain's norm."""
    model, objective = tiny_classifier(), objective_of()
    window = window_of(random_batch(), random_batch(3, seed=2))
    plain = flat(plain_gradients(model, window, objective))
    altered, statistics = gradients_by(CAGrad(c=0.5), model, window, objective)
    assert (flat(altered) - plain).norm() == pytest.approx(0.5 * plain.norm())
    assert set(statistics) == {
        "cagrad/cosine", "cagrad/share_of_wrong", "cagrad/wrong_factor", "cagrad/correct_factor",
    }  # fmt: skip
    assert all(map(math.isfinite, statistics.values()))
    factors = statistics["cagrad/wrong_factor"] - 1, statistics["cagrad/correct_factor"] - 1
    assert factors[0] / sum(factors) == pytest.approx(statistics["cagrad/share_of_wrong"])


def test_the_penalty_is_added_after():
    model = tiny_classifier()
    nn.init.constant_(model.head.bias, 2.0)
    window = window_of(random_batch())
    without, _ = gradients_by(CAGrad(0.5), model, window, objective_of())
    with_penalty, _ = gradients_by(CAGrad(0.5), model, window, objective_of(adapter=Penalty()))
    assert (flat(with_penalty) - flat(without)).sum().item() == pytest.approx(2.0 * model.head.bias.numel())


def test_built_from_its_config():
    assert build("gradient", parts.CAGrad(c=0.4)).c == 0.4
