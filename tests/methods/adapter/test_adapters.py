"""What holds for LoRA, AdaLoRA and (IA)³ alike: what trains, where they sit, and where their weights come from."""

import pytest
import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForSequenceClassification,
    RobertaConfig,
    RobertaForMultipleChoice,
    RobertaForSequenceClassification,
)

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.adapter.base import TARGETS
from dsgd.models import Classifier
from dsgd.optimization import parameter_depths
from helpers import random_batch, tiny_classifier

SMALL = {"lora": parts.LoRA(r=4), "adalora": parts.AdaLoRA(initial_r=4, target_r=2), "ia3": parts.IA3()}
ADAPTERS = list(SMALL)


def adapt(model, config, seed=3, total_steps=20):
    return build("adapter", config, adapter_seed=seed, total_steps=total_steps)(model)


def small(name, **changes):
    config = SMALL[name]
    return type(config)(**{**vars(config), **changes})


def trainable(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def tiny_roberta(kind=RobertaForSequenceClassification):
    config = RobertaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    return Classifier(kind(config))


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (parts.LoRA(), 24 * 2 * 8 * (1024 + 1024) + 1025),
        (parts.AdaLoRA(), 24 * 2 * 64 * (1024 + 1024 + 1) + 1025),
        (parts.IA3(), 24 * (1024 + 1024 + 1024 + 4096) + 1025),
    ],
    ids=ADAPTERS,
)
def test_roberta_large_has_the_paper_s_trainable_counts(config, count):
    """METHODS 17 (4): 787,457, 6,295,553 and 173,057, a Linear(1024, 1) head among them; no weight is allocated."""
    large = RobertaConfig(
        vocab_size=50265,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=514,
        type_vocab_size=1,
    )
    with torch.device("meta"):
        model = Classifier(RobertaForMultipleChoice(large), choices=2)
    adapted = adapt(model, config)
    assert count in (787_457, 6_295_553, 173_057)
    assert sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad) == count


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_first_step_starts_from_the_base_model_s_output(name):
    model, batch = tiny_classifier(), random_batch()
    before = model(**batch.inputs)
    assert torch.equal(adapt(model, small(name))(**batch.inputs), before)


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_adapter_and_the_whole_head_train_and_nothing_else(name):
    """Of RoBERTa the head is two layers; all that is adapted lies in a transformer block."""
    model = tiny_roberta()
    pretrained = {name for name, _ in model.named_parameters()}
    adapted = adapt(model, small(name))
    assert adapted is model
    found = trainable(model)
    head = {f"network.classifier.{layer}.{kind}" for layer in ("dense", "out_proj") for kind in ("weight", "bias")}
    assert found & pretrained == head
    added = found - pretrained
    assert all(name.startswith("network.roberta.encoder.layer.") for name in added)
    assert {name.split(".")[4] for name in added} == {"0", "1"}


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_model_s_named_places_are_still_there(name):
    """Layer-wise rates, noise and observers reach for them; the adapter of block l has block l's depth."""
    model = tiny_classifier()
    adapt(model, small(name))
    assert len(model.blocks) == 2
    assert isinstance(model.head, nn.Linear)
    depths = parameter_depths(model)
    for parameter in trainable(model):
        expected = 3 if parameter.startswith("network.classifier") else int(parameter.split(".")[4]) + 1
        assert depths[parameter] == expected


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_pooler_is_frozen_unless_it_is_asked_for(name):
    pooler = {"network.bert.pooler.dense.weight", "network.bert.pooler.dense.bias"}
    frozen, trained = tiny_classifier(), tiny_classifier()
    adapt(frozen, small(name))
    adapt(trained, small(name, train_pooler=True))
    assert trainable(trained) == trainable(frozen) | pooler
    assert not trainable(frozen) & pooler


def test_a_pooler_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"adapter\.train_pooler = true: this roberta has no pooler"):
        adapt(tiny_roberta(), small("lora", train_pooler=True))


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_unknown_architecture_is_named_with_the_adapter(name):
    model = tiny_classifier()
    model.network.config.model_type = "mamba"
    with pytest.raises(ValueError, match=f"adapter={name} knows no place in a mamba"):
        adapt(model, small(name))


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_are_fp32(name):
    model = adapt(tiny_classifier(dtype=torch.float32), small(name))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["lora", "adalora"])
def test_the_seed_alone_decides_the_weights_and_the_global_stream_stays(name):
    def weights(seed):
        model = adapt(tiny_classifier(), small(name), seed=seed)
        return [parameter for key, parameter in model.named_parameters() if "lora_A" in key]

    state = torch.get_rng_state()
    first = weights(3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert all(map(torch.equal, first, weights(3)))
    assert not any(map(torch.equal, first, weights(4)))


@pytest.mark.parametrize(
    ("configuration", "kind"),
    [(LlamaConfig, LlamaForSequenceClassification), (Qwen2Config, Qwen2ForSequenceClassification)],
)
def test_decoders_have_the_layers_that_the_table_names(configuration, kind):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    network = kind(configuration(vocab_size=50, num_hidden_layers=1, **sizes))
    block = network.model.layers[0]
    for layers in TARGETS[network.config.model_type]:
        assert layers
        assert all(isinstance(block.get_submodule(layer), nn.Linear) for layer in layers)


def test_dsgd_trains_lora_s_weights_and_the_head_at_lora_s_rate(train):
    """One block of MiniLM: 2·8·(384 + 384) and a Linear(384, 5); the first of 4 steps is at the peak."""
    folder = train("method=dsgd", "adapter=lora")
    metrics = folder.metrics
    assert metrics["method"].startswith("dsgd+lora[debug=tiny")
    assert metrics["trainable_parameters"] == 2 * 8 * 768 + 384 * 5 + 5
    steps = [record for record in folder.history if "train/loss" in record]
    assert steps[0]["train/lr"] == pytest.approx(3e-4)
    assert [record["train/gamma"] for record in steps] == [0.25, 0.5, 0.75, 1.0]
    assert steps[0]["lora/update_norm"] > 0
