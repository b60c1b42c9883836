"""Noise on the pretrained weights: how much, where, from which stream; and what the published snippet does instead."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dsgd.config import parts
from dsgd.execution import execute
from dsgd.methods import build
from dsgd.models import build_model
from dsgd.runs import folder_of
from helpers import random_batch, tiny_classifier
from shared import ROOT

LAMBDA = 0.15


def noisytune(**fields):
    return build("initialization", parts.NoisyTune(**fields))


def context(seed=0):
    return SimpleNamespace(generator=torch.Generator().manual_seed(seed))


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


class Pair(nn.Module):
    """Named tensors as a whole model, one of them tied, and a head."""

    def __init__(self, **tensors):
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor))
        self.tied = next(self.parameters())
        self.head = nn.Linear(2, 1)
        self.fresh = [self.head]


def test_noise_is_the_source_s_share_of_each_tensor_s_deviation():
    """METHODS 17 (5): U(-λ/2, λ/2) has deviation λ/√12, 4.33 % for λ = 0.15; nothing is beyond ±λ/2 or NaN."""
    torch.manual_seed(0)
    before = {"small": 0.01 * torch.randn(200, 300), "large": 5 + 3 * torch.randn(60_000)}
    model = Pair(**{name: tensor.clone() for name, tensor in before.items()})
    noisytune()(model, context())
    for name, tensor in before.items():
        relative = (getattr(model, name).detach() - tensor) / tensor.std()
        assert relative.std().item() == pytest.approx(LAMBDA / 12**0.5, rel=0.05)
        assert relative.abs().max().item() == pytest.approx(LAMBDA / 2, rel=0.01)
        assert abs(relative.mean().item()) < 0.001


def test_every_pretrained_tensor_that_varies_changes_and_none_is_nan():
    """METHODS 17 (5) on a real architecture: BERT's biases and norms are constant at the start, and stay."""
    model = tiny_classifier()
    before = weights(model)
    noisytune()(model, context())
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all()
        stays = before[name].std() == 0 or "classifier" in name
        assert torch.equal(parameter, before[name]) == stays, name
    assert sum(parameter.ndim > 1 for parameter in model.parameters()) > 10


@pytest.mark.filterwarnings("ignore:std\\(\\)")  # of the head's one bias
def test_pinned_values():
    """W = (1, 3): deviation 1 over n, so W + λ (u - 1/2) with the stream's own u; √2 over n - 1 in the snippet."""
    u = torch.rand(2, generator=torch.Generator().manual_seed(7))
    for variant, deviation in (("correct", 1.0), ("literal", 2**0.5)):
        model = Pair(only=torch.tensor([1.0, 3.0]))
        noisytune(variant=parts.NoiseVariant(variant))(model, context(seed=7))
        expected = torch.tensor([1.0, 3.0]) + LAMBDA * (u - 0.5) * deviation
        assert model.only.tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_tied_tensor_changes_once():
    """Twice the noise would have √2 times the deviation; the bound λ/2 would be broken too."""
    model = Pair(only=torch.randn(10_000))
    before = model.only.detach().clone()
    noisytune()(model, context())
    assert model.tied is model.only
    assert ((model.only - before) / before.std()).abs().max() <= LAMBDA / 2 * 1.01


def test_one_element_and_constant_tensors_stay():
    model = Pair(varied=torch.randn(4), single=torch.tensor([3.0]), constant=torch.full((5,), 0.1))
    noisytune()(model, context())
    assert model.single.item() == 3.0
    assert torch.equal(model.constant, torch.full((5,), 0.1))


def test_noise_comes_from_the_context_s_stream_alone():
    changed = []
    for seed, state in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(state)
        before = torch.get_rng_state()
        model = tiny_classifier()
        noisytune()(model, context(seed))
        assert torch.equal(torch.get_rng_state(), before)
        changed.append(model.embeddings.word_embeddings.weight.detach())
    assert torch.equal(changed[0], changed[1])
    assert not torch.equal(changed[0], changed[2])


def test_no_intensity_is_no_change():
    model = tiny_classifier()
    before = weights(model)
    noisytune(intensity=0.0)(model, context())
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.filterwarnings("ignore:std\\(\\)")
def test_the_published_snippet_turns_a_single_output_s_bias_into_nan():
    """The head Linear(16, 1) has a bias of one element, whose unbiased deviation is 0/0."""
    batch = random_batch()
    literal, correct = tiny_classifier(num_classes=1), tiny_classifier(num_classes=1)
    noisytune(variant=parts.NoiseVariant.literal)(literal, context())
    noisytune()(correct, context())
    assert [name for name, p in literal.named_parameters() if p.isnan().any()] == ["network.classifier.bias"]
    assert literal(**batch.inputs).isnan().all()
    assert correct(**batch.inputs).isfinite().all()


def test_the_published_snippet_disturbs_the_head_too():
    model = tiny_classifier()
    before = model.head.weight.detach().clone()
    noisytune(variant=parts.NoiseVariant.literal)(model, context())
    assert not torch.equal(model.head.weight, before)


class SharedBias(nn.Linear):
    """A head with a one-element tensor, as a scorer of multiple choice has: one bias for all outputs."""

    def __init__(self, width, outputs):
        super().__init__(width, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))


@pytest.fixture
def one_element(monkeypatch):
    """Runs whose head holds a tensor of one element."""

    def build_one(model, num_classes, seed, *others):
        classifier = build_model(model, num_classes, seed, *others)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            classifier.network.classifier = SharedBias(classifier.head.in_features, num_classes)
        return classifier

    monkeypatch.setattr("dsgd.training.build_model", build_one)


@pytest.mark.filterwarnings("ignore:std\\(\\)")
def test_the_literal_preset_fails_as_non_finite_on_a_one_element_tensor(one_element, run_of, train):
    """It must not end as an accuracy; the method itself trains on the same model."""
    assert (ROOT / "conf/method/noisytune_literal.yaml").exists()
    run = run_of("method=noisytune_literal")
    assert execute(run) == "failed"
    assert folder_of(run).reason.startswith("non-finite")
    train("method=noisytune")
