"""Parameter groups, depths and the learning rate."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from dsgd.config.schema import Trainer
from dsgd.models import Classifier
from dsgd.optimization import make_lr_schedule, make_optimizer, parameter_depths, parameter_groups, trainable


@pytest.fixture
def model():
    config = BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    return Classifier(BertForSequenceClassification(config))


def test_biases_and_norms_do_not_decay_and_all_else_does(model):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in parameter_groups(model, Trainer(weight_decay=0.1)):
        for parameter in group["params"]:
            exempt = names[id(parameter)].endswith("bias") or "LayerNorm" in names[id(parameter)]
            assert group["weight_decay"] == (0.0 if exempt else 0.1), names[id(parameter)]


def test_every_trainable_parameter_is_in_one_group(model):
    model.embeddings.requires_grad_(False)
    grouped = [id(p) for group in parameter_groups(model, Trainer()) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in trainable(model))


def test_layer_decay_falls_from_the_head_to_the_embeddings(model):
    """Two blocks: head and pooler at lr, block 2 at 0.5 lr, block 1 at 0.25 lr, embeddings at 0.125 lr."""
    depths = parameter_depths(model)
    rates = {}
    for group in parameter_groups(model, Trainer(lr=1.0, layer_decay=0.5)):
        for name, parameter in model.named_parameters():
            if any(parameter is other for other in group["params"]):
                rates[depths[name]] = group["lr"]
    assert rates == {0: 0.125, 1: 0.25, 2: 0.5, 3: 1.0}


def test_without_layer_decay_there_are_two_groups(model):
    assert len(parameter_groups(model, Trainer())) == 2


def test_the_rate_warms_up_and_falls_to_zero(model):
    """T = 20, warm-up int(0.1 · 20) = 2: rates of steps 1…20 are 0, 1/2, then (20 − t + 1)/18 from step 3."""
    trainer = Trainer(lr=1.0, warmup=0.1)
    optimizer = make_optimizer(model, trainer)
    schedule = make_lr_schedule(optimizer, trainer, 20)
    rates = []
    for _ in range(20):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0, 0.5] + [(21 - t) / 18 for t in range(3, 21)])
    assert schedule.get_last_lr()[0] == 0


def test_the_warm_up_is_rounded_down(model):
    """T = 19, warm-up int(0.1 · 19) = int(1.9) = 1: step 1 is at 0 and step 2 at the full rate."""
    optimizer = make_optimizer(model, Trainer(lr=1.0))
    schedule = make_lr_schedule(optimizer, Trainer(lr=1.0, warmup=0.1), 19)
    rates = []
    for _ in range(3):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0, 1, 17 / 18])


def test_head_and_pooler_may_have_a_weight_decay_of_their_own(model):
    """The matrices above the blocks alone; null leaves them with the others."""
    above = {id(parameter) for module in model.top for parameter in module.parameters()}
    decays = {
        (id(parameter) in above, parameter.ndim > 1): group["weight_decay"]
        for group in parameter_groups(model, Trainer(weight_decay=0.1, head_weight_decay=0.0))
        for parameter in group["params"]
    }
    assert decays == {(True, True): 0.0, (True, False): 0.0, (False, True): 0.1, (False, False): 0.0}
    assert {group["weight_decay"] for group in parameter_groups(model, Trainer(weight_decay=0.1))} == {0.0, 0.1}


def test_adamw_corrects_its_bias(model):
    """The first step of AdamW without weight decay is lr · sign(g) only if both moments are corrected."""
    optimizer = make_optimizer(model, Trainer(lr=0.1, weight_decay=0.0))
    weight = model.head.weight
    before = weight.detach().clone()
    weight.grad = torch.linspace(-3, 4, weight.numel()).reshape(weight.shape)
    optimizer.step()
    assert torch.allclose(before - weight, 0.1 * weight.grad.sign(), atol=1e-5)
