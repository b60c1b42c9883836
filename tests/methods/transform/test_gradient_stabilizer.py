"""GradientStabilizer: direction kept, norm from running statistics."""

import math

import pytest
import torch
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Step
from dsgd.methods.transform.gradient_stabilizer import GradientStabilizer, NormStatistics, correction


def stabilizer(gamma1=0.6, gamma2=0.999, eps=1e-12, bias_correction=True, clip=0.0):
    return GradientStabilizer(gamma1, gamma2, eps, bias_correction, clip)


def parameters_with(*gradients, dtype=torch.float64):
    found = []
    for gradient in gradients:
        gradient = gradient if gradient is None else torch.as_tensor(gradient, dtype=dtype)
        found.append(nn.Parameter(torch.zeros(() if gradient is None else gradient.shape, dtype=dtype)))
        found[-1].grad = None if gradient is None else gradient.clone()
    return found


def apply(part, *gradients, number=1, dtype=torch.float64):
    """The gradients after one step of ``part``, and its statistics as numbers."""
    parameters = parameters_with(*gradients, dtype=dtype)
    statistics = part(parameters, torch.optim.SGD(parameters, lr=1.0), Step(number, 100))
    return [p.grad for p in parameters], {name: value.item() for name, value in statistics.items()}


def prescribed(norms, gamma1, gamma2, eps=1e-12, corrected=True):
    """r after each of a tensor's norms, from the definition in plain Python."""
    m = v = 0.0
    found = []
    for k, n in enumerate(norms, start=1):
        m, v = gamma1 * m + (1 - gamma1) * n, gamma2 * v + (1 - gamma2) * n * n
        first, second = (1 - gamma1**k, 1 - gamma2**k) if corrected else (1, 1)
        found.append(m / first / (math.sqrt(v / second) + eps))
    return found


def test_the_first_step_keeps_directions_and_sets_each_norm_to_one():
    """METHODS 17 (7): whatever the scale; m = v² = n at k = 1."""
    before = [[3.0, 4.0], [1e-6, 0.0, -1e-6], [[1e5, 2e5], [0.0, 1.0]]]
    after, _ = apply(stabilizer(), *before)
    for one, other in zip(before, after, strict=True):
        one = torch.tensor(one, dtype=torch.float64)
        assert torch.allclose(other, one / one.norm(), rtol=1e-5)


def test_the_first_norm_is_one_in_fp32_as_well():
    """1 - 0.999 computed as a power in fp32 is wrong by 1e-5 already."""
    (after,), _ = apply(stabilizer(), [3.0, 4.0], dtype=torch.float32)
    assert after.norm().item() == pytest.approx(1.0, abs=1e-6)


def test_the_norm_after_is_r_at_every_step():
    """METHODS 17 (7): the norm after is r, here of norms 1, 2, 0.5, 100, 1."""
    part, norms = stabilizer(), [1.0, 2.0, 0.5, 100.0, 1.0]
    for number, (norm, r) in enumerate(zip(norms, prescribed(norms, 0.6, 0.999), strict=True), start=1):
        (after,), statistics = apply(part, [0.6 * norm, -0.8 * norm], number=number)
        assert after.tolist() == pytest.approx([0.6 * r, -0.8 * r], rel=1e-9)
        assert statistics["gradient_norm"] == pytest.approx(norm)
        assert statistics["stabilizer/norm_mean"] == pytest.approx(r)
        assert statistics["stabilizer/scale_median"] == pytest.approx(r / norm)


def test_the_second_step_by_hand():
    """γ1 = 0.5, γ2 = 0.75, norms 1 and 3: m = 1.75, m̂ = 7/3; v = 0.1875 + 2.25, v̂ = 39/7; r = 7/3 / √(39/7)."""
    part = stabilizer(gamma1=0.5, gamma2=0.75)
    apply(part, [1.0])
    (after,), _ = apply(part, [-3.0])
    assert after.item() == pytest.approx(-7 / 3 / math.sqrt(39 / 7))


def test_without_bias_correction():
    """Norm 2, γ1 = 0.6, γ2 = 0.99: m = 0.8, v = 0.04, r = 4."""
    (after,), _ = apply(stabilizer(gamma2=0.99, bias_correction=False), [2.0])
    assert after.item() == pytest.approx(4.0)


def test_a_spike_is_bounded_but_not_by_one():
    """After 20000 unit steps a spike of 1e9 gets (1 - 0.6)/√(1 - 0.999) = 12.65, and one of 1e12 the same."""
    steady = stabilizer()
    steady.load_state_dict({"mean": torch.ones(1), "square": torch.ones(1), "count": torch.tensor([20000.0])})
    for spike in (1e9, 1e12):
        part = stabilizer()
        part.load_state_dict(steady.state_dict())
        (after,), statistics = apply(part, [spike], number=3)
        assert after.item() == pytest.approx(0.4 / math.sqrt(0.001), rel=1e-3)
        assert after.item() == pytest.approx(12.649, abs=0.001)
        assert statistics["stabilizer/norm_max"] == pytest.approx(12.649, abs=0.001)


def test_early_spikes_are_bounded_more_tightly():
    """After 200 unit steps the second moment's correction is 1 - 0.999^201 = 0.182, and r = 12.65 √0.182 = 5.39."""
    part = stabilizer()
    part.load_state_dict(
        {
            "mean": torch.ones(1) * (1 - 0.6**200),
            "square": torch.ones(1) * (1 - 0.999**200),
            "count": torch.ones(1) * 200,
        }
    )
    (after,), _ = apply(part, [1e9])
    assert after.item() == pytest.approx(5.39, abs=0.01)


def test_tensors_have_statistics_of_their_own():
    """The second tensor is steady and stays at 1 while the first one's norm jumps."""
    part = stabilizer()
    apply(part, [1.0], [5.0])
    (jumped, steady), _ = apply(part, [10.0], [5.0])
    assert steady.item() == pytest.approx(1.0)
    assert jumped.item() == pytest.approx(prescribed([1, 10], 0.6, 0.999)[1])


@pytest.mark.parametrize("odd", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], None])
def test_a_zero_or_non_finite_gradient_stays_and_is_forgotten(odd):
    """The next norm is prescribed as if the odd step had not been; the other tensor is untouched by it."""
    part = stabilizer()
    apply(part, [3.0, 4.0], [1.0])
    (left, other), statistics = apply(part, odd, [2.0])
    assert statistics["stabilizer/skipped"] == 1
    if odd is not None:
        assert torch.equal(torch.nan_to_num(left, nan=-7.0), torch.nan_to_num(torch.tensor(odd).double(), nan=-7.0))
    assert other.item() == pytest.approx(prescribed([1, 2], 0.6, 0.999)[1])
    (after, _), statistics = apply(part, [6.0, 8.0], [1.0])
    assert after.norm().item() == pytest.approx(prescribed([5, 10], 0.6, 0.999)[1])
    assert statistics["stabilizer/skipped"] == 0


def test_a_non_finite_gradient_reaches_the_weights():
    """Hiding it would let a broken run go on; AdamW makes it a NaN weight, and the next loss ends the run."""
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([math.nan, 1.0])
    optimizer = torch.optim.AdamW([parameter])
    statistics = stabilizer()([parameter], optimizer, Step(1, 10))
    optimizer.step()
    assert parameter.isnan().any()
    assert statistics["gradient_norm"].isnan()


def test_clipping_comes_before():
    """Norms 3 and 4 together are 5; clipped to 1 they are 0.6 and 0.8, from which the second step's r follows."""
    part = stabilizer(clip=1.0)
    apply(part, [0.06], [0.08])  # 0.1 together: not clipped
    after, statistics = apply(part, [3.0], [4.0])
    expected = [prescribed(norms, 0.6, 0.999)[1] for norms in ([0.06, 0.6], [0.08, 0.8])]
    assert [g.item() for g in after] == pytest.approx(expected, rel=1e-5)
    assert statistics["gradient_norm"] == pytest.approx(5.0)  # before the clipping


def test_a_non_finite_gradient_is_not_clipped_away():
    after, _ = apply(stabilizer(clip=1.0), [math.inf, 1.0], [1.0])
    assert not after[0].isfinite().all()


def test_the_statistics_go_into_a_checkpoint(tmp_path):
    """Saved and loaded as a run does it, another object goes on with the same numbers."""
    one, other = stabilizer(), stabilizer()
    other.load_state_dict(one.state_dict())  # before any step too
    apply(one, [1.0, 2.0], [3.0])
    torch.save(one.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", map_location="cpu", weights_only=True))
    expected, got = (apply(part, [4.0, 1.0], [2.0], number=2)[0] for part in (one, other))
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert not torch.equal(got[0], apply(stabilizer(), [4.0, 1.0], [2.0])[0][0])


def test_correction_is_one_for_no_memory_and_exact_near_one():
    assert correction(0.0, torch.tensor([1.0, 5.0])).tolist() == [1, 1]
    assert correction(0.999, torch.tensor(1.0)).item() == pytest.approx(0.001, rel=1e-6)
    assert correction(0.6, torch.tensor(3.0)).item() == pytest.approx(1 - 0.216)


def test_no_memory_at_all_means_unit_norms():
    """γ1 = γ2 = 0: r = n/n."""
    norms = torch.tensor([0.5, 7.0])
    statistics = NormStatistics(0.0, 0.0, 1e-12)
    statistics.update(2 * norms)
    assert (statistics.update(norms).factors * norms).tolist() == pytest.approx([1, 1])


def test_built_from_its_config():
    part = build("transform", parts.GradientStabilizer(gamma1=0.5, clip=2.0))
    assert (part.norms.gamma1, part.norms.gamma2, part.norms.eps, part.clip) == (0.5, 0.999, 1e-12, 2.0)
