"""The parts of methods on every text architecture, in multiple choice too."""

from types import SimpleNamespace

import pytest
import torch
from tiny_models import EVERY, batch_of, checkpoint, classifier, padded
from torch.nn.functional import cross_entropy

from dsgd.config import parts
from dsgd.methods import build

ADAPTERS = {"lora": parts.LoRA(r=4), "adalora": parts.AdaLoRA(initial_r=4, target_r=2), "ia3": parts.IA3()}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("name", EVERY)
def test_adapters_sit_in_every_block(name, adapter):
    """They start from the base model's output, or close to it where matrices are random, and train with the head."""
    model = classifier(checkpoint(name), choices=2, dropout=0.0)
    batch = padded(model, batch_of(choices=2))
    before = model(**batch.inputs)
    build("adapter", ADAPTERS[adapter], adapter_seed=0, total_steps=20)(model)
    assert torch.equal(model(**batch.inputs), before)
    training = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    blocks = {key.split(f"{model.architecture.blocks}.")[1].split(".")[0] for key in training if ".layer" in key}
    assert blocks == {"0", "1", "2"}
    head = {f"network.{model.architecture.head}.{key}" for key, _ in model.head.named_parameters()}
    assert head < training
    cross_entropy(model(**batch.inputs), batch.labels).backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("reading", ["blocks", "head"])
@pytest.mark.parametrize("name", EVERY)
def test_lnsr_replays_the_last_layers(name, reading, choices):
    """Without noise nothing differs although dropout is on: masks, rotary positions and causality are the first's."""
    weights = [0.1] if reading == "head" else [0.2, 0.1]
    model = classifier(checkpoint(name), choices, dropout=0.2)
    batch = padded(model, batch_of(choices=choices))
    for rho in (0.0, 0.05):
        config = parts.LNSR(reading=parts.LNSRReading(reading), weights=weights, rho=rho)
        part = build("regularizer", config, noise_seed=0)
        with part.watch(model):
            logits = model(**batch.inputs)
        terms = part.per_example(model, batch, logits)
        assert terms.shape == (4,)
        assert bool((terms == 0).all()) == (rho == 0)


@pytest.mark.parametrize("name", EVERY)
def test_r3f_compares_whole_examples(name):
    model = classifier(checkpoint(name), choices=2, dropout=0.0)
    batch = padded(model, batch_of(choices=2))
    part = build("regularizer", parts.R3F(epsilon=0.1), noise_seed=0)
    with part.watch(model):
        logits = model(**batch.inputs)
    terms = part.per_example(model, batch, logits)
    assert terms.shape == (4,)
    assert (terms > 0).all()


@pytest.mark.parametrize(("name", "choices"), [("roberta", 2), ("deberta-v2", 1), ("llama", 2), ("modernbert", 1)])
def test_noise_spares_what_is_not_pretrained(name, choices):
    """A fresh pooler belongs to that; a pretrained one, ModernBERT's, does not."""
    model = classifier(checkpoint(name), choices)
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    context = SimpleNamespace(generator=torch.Generator().manual_seed(0))
    build("initialization", parts.NoisyTune())(model, context)
    fresh = {parameter for module in model.fresh for parameter in module.parameters()}
    for key, parameter in model.named_parameters():
        if parameter.ndim == 2:  # biases and norms are constant here, and noise in proportion leaves them
            assert torch.equal(parameter, before[key]) == (parameter in fresh), key


@pytest.mark.parametrize("name", EVERY)
def test_the_top_is_drawn_anew(name):
    model = classifier(checkpoint(name), choices=2)
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    context = SimpleNamespace(generator=torch.Generator().manual_seed(0))
    build("initialization", parts.ReinitTop(blocks=1))(model, context)
    changed = {key for key, parameter in model.named_parameters() if not torch.equal(parameter, before[key])}
    blocks = f"network.{model.architecture.blocks}."
    assert {key.removeprefix(blocks).split(".")[0] for key in changed if key.startswith(blocks)} == {"2"}
    others = {key for key in changed if not key.startswith(blocks)}
    assert all(key.startswith(f"network.{model.architecture.pooler}.") for key in others)
    assert bool(others) == (model.pooler is not None)
