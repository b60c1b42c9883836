"""The injected-spike control."""

import pytest
import torch
from objectives import flat, gradients_by, objective_of, plain_gradients

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.gradient.spikes import Spikes
from helpers import random_batch, tiny_classifier, window_of


@pytest.mark.parametrize(("number", "factor"), [(1, 1.0), (2, 1000.0), (3, 1.0), (5, 1000.0)])
def test_the_gradient_is_multiplied_at_the_chosen_steps_alone(number, factor):
    model, objective = tiny_classifier(), objective_of()
    window = window_of(random_batch(), number=number)
    spiked, statistics = gradients_by(Spikes([2, 5], 1000.0), model, window, objective)
    assert statistics == {"spikes/factor": factor}
    assert torch.equal(flat(spiked), factor * flat(plain_gradients(model, window, objective)))


def test_the_loss_in_the_history_has_no_spike():
    model, objective = tiny_classifier(), objective_of()
    window = window_of(random_batch(), number=2)
    plain_gradients(model, window, objective)
    plain = objective.collect()["loss"]
    Spikes([2], 1000.0)(model, window, objective)
    assert objective.collect()["loss"] == plain


def test_built_from_its_config():
    part = build("gradient", parts.Spikes(steps=[3], factor=10.0))
    assert (part.steps, part.factor) == ({3}, 10.0)
