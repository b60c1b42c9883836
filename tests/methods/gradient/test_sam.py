"""Sharpness-aware minimisation."""

import pytest
import torch
from objectives import flat, gradients, gradients_by, objective_of, plain_gradients
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Batch, LossOutput
from dsgd.methods.gradient.sam import SAM, climb
from helpers import random_batch, tiny_classifier, window_of


class Quadratic(nn.Module):
    """One weight vector; an example's logits are the weights, whatever the input."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights, dtype=torch.float64))

    def forward(self, inputs):
        return self.weights.expand(len(inputs), -1)


class HalfSquares:
    """Half of Σ_k (k + 1) z_k² per example: its gradient is diag(1, 2, ...) z."""

    def per_example(self, logits, labels, step):
        curvature = torch.arange(1, logits.shape[1] + 1, dtype=logits.dtype)
        return LossOutput((logits**2 * curvature).sum(1) / 2, labels == 0, {})


def test_a_quadratic_by_hand():
    """θ = (3, 2), gradient diag(1, 2) θ = (3, 4), norm 5; ρ = 0.5: e = (0.3, 0.4), gradient at θ + e = (3.3, 4.8)."""
    model = Quadratic([3.0, 2.0])
    window = window_of(Batch({"inputs": torch.zeros(4)}, torch.zeros(4, dtype=torch.long)))
    found, statistics = gradients_by(SAM(rho=0.5), model, window, objective_of(HalfSquares()))
    assert found["weights"].tolist() == pytest.approx([3.3, 4.8])
    assert statistics == {"sam/gradient_norm": pytest.approx(5.0)}
    assert model.weights.tolist() == [3.0, 2.0]


def test_the_climb_has_length_rho_over_all_parameters_together():
    """Gradients (3) and (4): norm 5, so the parameters move by 0.1 · 3/5 and 0.1 · 4/5."""
    one, two = (nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    one.grad, two.grad = torch.full_like(one, 3.0), torch.full_like(two, 4.0)
    assert climb([one, two], 0.1).item() == 5
    assert (one.item(), two.item()) == pytest.approx((1.06, 1.08))
    assert one.grad is two.grad is None


def test_a_zero_gradient_moves_nothing():
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.zeros(2)
    climb([parameter], 0.1)
    assert parameter.tolist() == [1, 1]


def test_the_weights_come_back_bit_for_bit():
    """In fp32, where adding and subtracting the climb would round; a weight of 1e-12 beside a climb of 10."""
    model = tiny_classifier(dtype=torch.float32)
    with torch.no_grad():
        model.head.weight.fill_(1e-12)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    SAM(rho=10.0)(model, window_of(random_batch()), objective_of())
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_rho_towards_zero_is_plain():
    model, objective, window = tiny_classifier(), objective_of(), window_of(random_batch())
    plain = flat(plain_gradients(model, window, objective))
    distances = [
        (flat(gradients_by(SAM(rho), model, window, objective)[0]) - plain).norm().item() for rho in (1e-2, 1e-4, 1e-6)
    ]
    assert distances[0] > 1e-5
    assert distances[1] == pytest.approx(distances[0] / 100, rel=0.1)  # first order in ρ
    assert distances[2] < 1e-3 * distances[0]


def test_both_looks_see_the_same_dropout_masks():
    """With dropout the limit ρ → 0 is only plain's gradient where the second look repeats the first one's masks."""
    model, objective, window = tiny_classifier(dropout=0.4), objective_of(), window_of(random_batch(), random_batch(4))
    torch.manual_seed(0)
    plain = flat(plain_gradients(model, window, objective))
    other = flat(plain_gradients(model, window, objective))
    assert (plain - other).norm() > 0.01
    torch.manual_seed(0)
    looked_twice = flat(gradients_by(SAM(1e-9), model, window, objective)[0])
    assert torch.allclose(looked_twice, plain, atol=1e-8)


def test_the_random_stream_goes_on_as_after_one_look():
    """So that a run's later masks do not depend on the method."""
    model, objective, window = tiny_classifier(dropout=0.4), objective_of(), window_of(random_batch())
    torch.manual_seed(0)
    plain_gradients(model, window, objective)
    after_plain = torch.get_rng_state()
    torch.manual_seed(0)
    gradients_by(SAM(0.05), model, window, objective)
    assert torch.equal(torch.get_rng_state(), after_plain)


def test_accumulation_climbs_once_for_the_window():
    model, objective = tiny_classifier(), objective_of()
    batch = random_batch()
    cut = [Batch({name: x[rows] for name, x in batch.inputs.items()}, batch.labels[rows])
           for rows in (slice(0, 3), slice(3, None))]  # fmt: skip
    whole, _ = gradients_by(SAM(0.5), model, window_of(batch), objective)
    split, _ = gradients_by(SAM(0.5), model, window_of(*cut), objective)
    assert torch.allclose(flat(whole), flat(split), atol=1e-10)
    assert (flat(whole) - flat(plain_gradients(model, window_of(batch), objective))).norm() > 1e-3


def test_the_history_sees_the_first_look_alone():
    model, objective, window = tiny_classifier(), objective_of(), window_of(random_batch())
    plain_gradients(model, window, objective)
    once = objective.collect()
    SAM(5.0)(model, window, objective)
    twice = objective.collect()
    assert {name: value.item() for name, value in once.items()} == {name: v.item() for name, v in twice.items()}


def test_frozen_parameters_stay():
    model = tiny_classifier()
    model.embeddings.requires_grad_(False)
    SAM(0.05)(model, window_of(random_batch()), objective_of())
    assert set(gradients(model)) == {name for name, p in model.named_parameters() if p.requires_grad}


def test_built_from_its_config():
    assert build("gradient", parts.SAM(rho=0.1)).rho == 0.1
