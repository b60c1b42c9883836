"""γ_t: end points, direction, clamping, errors, and how much weight each shape leaves to the correct examples."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest

from dsgd.schedules import CosineSchedule, DescendingSchedule, LinearSchedule, StaticSchedule, make_schedule

MOVING = [LinearSchedule, DescendingSchedule, CosineSchedule]
TOTALS = [1, 2, 3, 7, 49, 200, 1250]
TAUS = [0.0, 0.1, 0.3, 0.5, 0.7, 1.0]


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("tau", TAUS)
def test_last_step_is_exact(total, tau):
    """τ·T/T in floating point may miss τ (0.7·3/3 does), so the end points are compared without tolerance."""
    assert LinearSchedule(total, tau)(total) == tau
    assert CosineSchedule(total, tau)(total) == tau
    assert DescendingSchedule(total, tau)(total) == 0.0


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("tau", TAUS)
def test_every_step_against_exact_fractions(total, tau):
    """Linear and descending are rational in t, so fractions give them exactly: τ t/T, and both add up to τ."""
    for step in range(1, total + 1):
        exact = Fraction(tau) * step / total
        assert LinearSchedule(total, tau)(step) == pytest.approx(float(exact), rel=1e-15)
        assert DescendingSchedule(total, tau)(step) == pytest.approx(float(Fraction(tau) - exact), rel=1e-15)


def test_cosine_by_hand():
    """T = 6, τ = 0.8: cos(π/3) = 1/2, cos(π/2) = 0, cos(2π/3) = −1/2 give 0.4 · (1/2, 1, 3/2)."""
    schedule = CosineSchedule(6, 0.8)
    assert [schedule(2), schedule(3), schedule(4)] == pytest.approx([0.2, 0.4, 0.6])


def test_first_step_is_above_zero_when_rising():
    """Step 1 of 200 carries τ/T: a 0-based step would give 0 there."""
    assert LinearSchedule(200, 0.5)(1) == 0.0025
    assert CosineSchedule(200, 0.5)(1) == pytest.approx(0.5 * math.sin(math.pi / 400) ** 2)


@pytest.mark.parametrize("schedule", [kind(200, 0.7) for kind in MOVING], ids=lambda schedule: type(schedule).__name__)
def test_strictly_monotonic_and_within_range(schedule):
    values = [schedule(step) for step in range(1, 201)]
    differences = [later - earlier for earlier, later in pairwise(values)]
    sign = -1 if isinstance(schedule, DescendingSchedule) else 1
    assert all(sign * difference > 0 for difference in differences)
    assert all(0 <= value <= 0.7 for value in values)


@pytest.mark.parametrize("kind", MOVING)
def test_steps_outside_are_clamped(kind):
    schedule = kind(10, 0.9)
    assert schedule(0) == schedule(-3) == schedule(1)
    assert schedule(11) == schedule(10**9) == schedule(10)


def test_static_never_moves():
    assert {StaticSchedule(0.3)(step) for step in (0, 1, 5, 10**9)} == {0.3}


@pytest.mark.parametrize(
    ("kind", "share"), [(LinearSchedule, 1 / 3), (CosineSchedule, 1 / 2 - 2 / math.pi**2), (DescendingSchedule, 2 / 3)]
)
def test_cumulative_weight_under_linear_decay(kind, share):
    """Σ γ lr / Σ lr for lr ∝ 1 − x, large T: 2∫(1−x)γ(x)dx with γ = x, (1−cos πx)/2 and 1−x.

    Linear 2(1/2 − 1/3) = 1/3; descending 2·1/3; cosine 1/2 − ∫(1−x)cos πx dx = 1/2 − 2/π² = 0.297.
    """
    total = 20_000
    schedule = kind(total)
    rates = [1 - (step - 1) / total for step in range(1, total + 1)]
    weighted = sum(rate * schedule(step) for step, rate in enumerate(rates, start=1))
    assert weighted / sum(rates) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("kind", MOVING)
@pytest.mark.parametrize("total", [0, -1, 2.5, 100.0, "100"])
def test_bad_total_steps(kind, total):
    with pytest.raises(ValueError, match=r"total_steps = .*: must be a whole number of at least 1"):
        kind(total)


@pytest.mark.parametrize("value", [-0.1, 1.0001, math.nan, math.inf])
def test_bad_tau_and_gamma(value):
    for kind in MOVING:
        with pytest.raises(ValueError, match=r"tau = .*: must lie in \[0, 1\]"):
            kind(10, value)
    with pytest.raises(ValueError, match=r"gamma = .*: must lie in \[0, 1\]"):
        StaticSchedule(value)


def test_by_name():
    """Each name reads its own settings only: a static γ ignores τ, a moving shape ignores γ."""
    assert make_schedule("linear", 10, 0.5, 0.1) == LinearSchedule(10, 0.5)
    assert make_schedule("descending", 10, 0.5, 0.1) == DescendingSchedule(10, 0.5)
    assert make_schedule("cosine", 10, 0.5, 0.1) == CosineSchedule(10, 0.5)
    assert make_schedule("static", 10, 0.5, 0.1) == StaticSchedule(0.1)
    assert LinearSchedule(10, 0.5) != CosineSchedule(10, 0.5)


@pytest.mark.parametrize(("name", "near"), [("liner", "linear"), ("cosin", "cosine"), ("ascending", "linear")])
def test_unknown_name_lists_the_names_and_the_nearest(name, near):
    pattern = f"schedule.name = '{name}': must be one of linear, descending, cosine, static; did you mean {near}?"
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared below
        make_schedule(name, 10, 1.0, 1.0)
    assert str(caught.value) == pattern


def test_unknown_name_like_no_other_gets_no_suggestion():
    with pytest.raises(ValueError, match=r"must be one of linear, descending, cosine, static$"):
        make_schedule("xyz", 10, 1.0, 1.0)
