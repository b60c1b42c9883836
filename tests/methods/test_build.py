"""From a part's dataclass to the part, and the two losses that every run starts from."""

import sys
from dataclasses import dataclass
from enum import Enum
from types import ModuleType

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.config import parts
from dsgd.loss import weighted_losses
from dsgd.methods import build
from dsgd.methods.contracts import Step
from dsgd.methods.loss.cross_entropy import CrossEntropy
from dsgd.methods.loss.dsgd import DSGD
from dsgd.schedules import LinearSchedule

STEP = Step(3, 10)


class Colour(Enum):
    red = "the red one"


@dataclass
class Probe(parts.Part):
    name: str = "probe"
    size: int = 3
    colour: Colour = Colour.red


@pytest.fixture
def probe(monkeypatch):
    """A part of slot ``gradient`` that keeps what it is called with."""

    class Part:
        def __init__(self, size, colour, seed, missing="its own default"):
            self.received = (size, colour, seed, missing)

    module = ModuleType("dsgd.methods.gradient.probe")
    module.Probe = Part
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Part


@pytest.fixture
def batch():
    """Logits and labels: correct, wrong, tied, ignored."""
    return torch.tensor([[2.0, 0.0], [2.0, 0.0], [1.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1, 0, -100])


def test_fields_and_wanted_context_reach_the_part(probe):
    """The name stays behind, an enum arrives as its value, and context that the part does not name is dropped."""
    part = build("gradient", Probe(size=5), seed=7, model="nobody asks for it")
    assert type(part) is probe
    assert part.received == (5, "the red one", 7, "its own default")


def test_context_may_not_shadow_a_field(probe):
    with pytest.raises(TypeError, match="size"):
        build("gradient", Probe(), seed=7, size=4)


def test_missing_context_is_named(probe):
    with pytest.raises(TypeError, match="seed"):
        build("gradient", Probe())


def test_unknown_part_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"dsgd\.methods\.loss\.focl"):
        build("loss", parts.CrossEntropy(name="focl"))
    with pytest.raises(AttributeError, match="Probe"):
        build("loss", Probe(name="dsgd"))


def test_dsgd_is_the_reference_loss_at_its_schedule(batch):
    config = parts.DSGD(label_smoothing=0.1, ties=parts.Ties.argmax, normalization=parts.Normalization.per_group)
    part = build("loss", config, schedule=LinearSchedule(10, 0.5), total_steps=10)
    assert type(part) is DSGD
    assert part.gamma(STEP) == pytest.approx(0.15)
    output = part.per_example(*batch, STEP)
    expected = weighted_losses(*batch, 0.5 * (3 / 10), label_smoothing=0.1, ties="argmax", normalization="per_group")
    assert torch.equal(output.losses, expected.losses)
    assert output.is_correct.tolist() == [True, False, True, False]
    assert output.statistics == expected.statistics


def test_cross_entropy_is_torchs_and_needs_no_schedule(batch):
    part = build("loss", parts.CrossEntropy(label_smoothing=0.1), schedule=LinearSchedule(10))
    assert type(part) is CrossEntropy
    output = part.per_example(*batch, STEP)
    assert torch.equal(output.losses, cross_entropy(*batch, reduction="none", label_smoothing=0.1))


def test_both_losses_report_the_same_statistics(batch):
    """They describe the logits, not the weights: one correct, two wrong of which one tied, none non-finite."""
    plain = build("loss", parts.CrossEntropy()).per_example(*batch, STEP)
    scaled = build("loss", parts.DSGD(), schedule=LinearSchedule(10)).per_example(*batch, STEP)
    assert plain.statistics == scaled.statistics
    assert torch.equal(plain.is_correct, scaled.is_correct)
    counts = {key: value.item() for key, value in plain.statistics.items() if not key.startswith("loss")}
    assert counts == {"wrong": 2, "correct": 1, "ties": 1, "nonfinite": 0}
    assert not torch.equal(plain.losses, scaled.losses)
