"""Stable-SPAM's parts before AdamW."""

import math

import pytest
import torch
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Step
from dsgd.methods.transform.adagn import AdaClip, AdaGN


def adagn(gamma1=0.7, gamma2=0.9, eps=1e-8, adaclip=False, gamma3=0.999, reset_every=None, shared_counter=False):
    return AdaGN(gamma1, gamma2, eps, adaclip, gamma3, reset_every, shared_counter)


def apply(part, *gradients, number=1):
    """The gradients after one step of ``part``, and its statistics as numbers."""
    parameters = [nn.Parameter(torch.zeros(len(g), dtype=torch.float64)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    statistics = part(parameters, torch.optim.AdamW(parameters), Step(number, 100))
    return [p.grad for p in parameters], {name: value.item() for name, value in statistics.items()}


class Reference:
    """AdaClip, AdaGN, reset and Adam on one tensor, step by step from the published order, in plain Python."""

    def __init__(self, adaclip, reset_every, shared, g1=0.7, g2=0.9, g3=0.999, eps=1e-8, betas=(0.9, 0.999)):
        self.adaclip, self.reset_every, self.shared = adaclip, reset_every, shared
        self.g1, self.g2, self.g3, self.eps, self.betas = g1, g2, g3, eps, betas
        self.largest = self.m = self.v = 0.0
        self.k_norm = self.k_adam = self.t = 0
        self.first = self.second = None

    def step(self, g, lr):
        """The change of the weights that the gradient ``g`` (a list) causes, without weight decay."""
        self.t, self.k_norm, self.k_adam = self.t + 1, self.k_norm + 1, self.k_adam + 1
        if self.adaclip:
            top = max(map(abs, g))
            self.largest = self.g3 * self.largest + (1 - self.g3) * top
            limit = self.largest / (1 - self.g3**self.k_norm)
            g = [x / top * limit if abs(x) > limit else x for x in g]
        n = math.sqrt(sum(x * x for x in g))
        self.m, self.v = self.g1 * self.m + (1 - self.g1) * n, self.g2 * self.v + (1 - self.g2) * n * n
        r = self.m / (1 - self.g1**self.k_norm) / (math.sqrt(self.v / (1 - self.g2**self.k_norm)) + self.eps)
        g = [x / n * r for x in g]
        if self.first is None or (self.reset_every and self.t % self.reset_every == 0):
            self.first, self.second = [0.0] * len(g), [0.0] * len(g)
            self.k_adam = 1
            if self.shared and self.t > 1:
                self.k_norm = 1
        b1, b2 = self.betas
        self.first = [b1 * a + (1 - b1) * x for a, x in zip(self.first, g, strict=True)]
        self.second = [b2 * a + (1 - b2) * x * x for a, x in zip(self.second, g, strict=True)]
        one, two = 1 - b1**self.k_adam, 1 - b2**self.k_adam
        return [-lr * (a / one) / (math.sqrt(b / two) + 1e-8) for a, b in zip(self.first, self.second, strict=True)]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("adaclip", "reset_every"), [(False, None), (True, None), (True, 3), (False, 3)])
def test_with_adamw_it_is_stable_spam_step_by_step(adaclip, reset_every, shared, fused):
    """Eight steps, one of them a spike in one entry, against the reference above."""
    generator = torch.Generator().manual_seed(2)
    steps = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    steps[4, 1] = 300.0
    weights = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weights], lr=0.1, weight_decay=0.0, fused=fused)
    part, reference = (
        adagn(adaclip=adaclip, reset_every=reset_every, shared_counter=shared),
        Reference(adaclip, reset_every, shared),
    )
    expected = torch.zeros(5, dtype=torch.float64)
    for number, gradient in enumerate(steps, start=1):
        weights.grad = gradient.clone()
        part([weights], optimizer, Step(number, 8))
        optimizer.step()
        expected += torch.tensor(reference.step(gradient.tolist(), 0.1), dtype=torch.float64)
        assert torch.allclose(weights.detach(), expected, rtol=1e-6, atol=1e-9), number


def test_the_first_step_sets_each_norm_to_one():
    after, statistics = apply(adagn(), [3.0, 4.0], [-1e-3])
    assert after[0].tolist() == pytest.approx([0.6, 0.8])
    assert after[1].item() == pytest.approx(-1.0, rel=1e-4)  # eps = 1e-8 beside a norm of 1e-3
    assert statistics["gradient_norm"] == pytest.approx(5.0, rel=1e-6)
    assert statistics["adagn/clipped_share"] == statistics["adagn/reset"] == statistics["adagn/skipped"] == 0


def test_a_spike_is_bounded_below_one():
    """(1 - 0.7)/√(1 - 0.9) = 0.949 long after the start."""
    part = adagn()
    part.norms.load_state_dict({"mean": torch.ones(1), "square": torch.ones(1), "count": torch.tensor([1000.0])})
    (after,), _ = apply(part, [1e9], number=2)
    assert after.item() == pytest.approx(0.3 / math.sqrt(0.1), rel=1e-6)


def test_adaclip_by_hand():
    """θ = 0.5, largest 4 then 8: M = 2, M̂ = 4; M = 1 + 4 = 5, M̂ = 5/0.75 = 20/3.

    So the first step is left alone; in the second 8 becomes 20/3 and -7.9 becomes -7.9/8 of that, while 6 and 2 stay.
    """
    clip = AdaClip(0.5)
    first = torch.tensor([4.0, 2.0], dtype=torch.float64)
    clip([first])
    assert first.tolist() == pytest.approx([4, 2])
    second = torch.tensor([8.0, -7.9, 6.0, 2.0], dtype=torch.float64)
    share = clip([second])
    assert second.tolist() == pytest.approx([20 / 3, -7.9 / 8 * 20 / 3, 6, 2])
    assert share.item() == 0.5


def test_adaclip_acts_before_the_norm():
    """The clipped gradient's norm is what the running moments see, and the clipped direction what is kept."""
    part, plain = adagn(adaclip=True, gamma3=0.5), adagn()
    for other in (part, plain):
        apply(other, [4.0, 3.0])
    (after,), statistics = apply(part, [8.0, 1.0])
    (expected,), _ = apply(plain, [20 / 3, 1.0])
    assert torch.allclose(after, expected)
    assert statistics["adagn/clipped_share"] == 0.5
    assert statistics["gradient_norm"] == pytest.approx(math.sqrt(65))  # before the clipping


@pytest.mark.parametrize("adaclip", [False, True])
@pytest.mark.parametrize("odd", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_a_zero_or_non_finite_gradient_stays_and_is_forgotten(odd, adaclip):
    with_gap, without = adagn(adaclip=adaclip), adagn(adaclip=adaclip)
    for part in (with_gap, without):
        apply(part, [3.0, 4.0])
    (left,), statistics = apply(with_gap, odd)
    assert torch.equal(torch.nan_to_num(left, nan=-7.0), torch.nan_to_num(torch.tensor(odd).double(), nan=-7.0))
    assert statistics["adagn/skipped"] == 1
    assert torch.equal(apply(with_gap, [9.0, 1.0])[0][0], apply(without, [9.0, 1.0])[0][0])


def test_a_reset_makes_adams_step_its_first():
    """With its moments and counter at 0, Adam's next step is lr · sign(g), whatever came before."""
    weights = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weights], lr=0.1, weight_decay=0.0)
    part = adagn(reset_every=3)
    resets = []
    for number in range(1, 5):
        weights.grad = torch.tensor([1.0, 1.0] if number < 3 else [-2.0, 1.0], dtype=torch.float64)
        before = weights.detach().clone()
        resets.append(part([weights], optimizer, Step(number, 10))["adagn/reset"].item())
        optimizer.step()
        if number == 3:
            assert (weights.detach() - before).tolist() == pytest.approx([0.1, -0.1], rel=1e-6)
    assert resets == [0, 0, 1, 0]
    assert optimizer.state[weights]["step"].item() == 2  # steps 3 and 4


def test_the_shared_counter_inflates_the_norms_after_a_reset():
    """Steady unit norms give r = 1 throughout; with k back at 1, the next correction is (1 - 0.9²)^½/(1 - 0.7²) = 0.85.

    The moments have nearly forgotten the start: m = v = 1 but for 0.7^40 and 0.9^40 = 0.015.
    """
    for shared, expected in ((False, 1.0), (True, math.sqrt(1 - 0.9**2) / (1 - 0.7**2))):
        part = adagn(reset_every=40, shared_counter=shared)
        for number in range(1, 42):
            (after,), _ = apply(part, [1.0], number=number)
        assert after.item() == pytest.approx(expected, rel=0.01)


def test_the_statistics_go_into_a_checkpoint(tmp_path):
    one, other = adagn(adaclip=True), adagn(adaclip=True)
    other.load_state_dict(one.state_dict())  # before any step too
    apply(one, [1.0, 2.0], [3.0])
    torch.save(one.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", map_location="cpu", weights_only=True))
    expected, got = (apply(part, [4.0, 1.0], [2.0], number=2)[0] for part in (one, other))
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert not torch.equal(got[0], apply(adagn(adaclip=True), [4.0, 1.0], [2.0])[0][0])


def test_built_from_its_config():
    part = build("transform", parts.AdaGN(adaclip=True, reset_every=5, gamma3=0.99))
    assert (part.norms.gamma1, part.norms.gamma2, part.norms.eps) == (0.7, 0.9, 1e-8)
    assert (part.clip.gamma, part.reset_every, part.shared_counter) == (0.99, 5, False)
    assert build("transform", parts.AdaGN()).clip is None
