"""Fresh top blocks: which weights change, to what, and from which stream."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import RobertaConfig, RobertaForSequenceClassification

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.initialization.reinit_top import redraw
from dsgd.models import Classifier
from helpers import tiny_classifier

LAYERS = 3


def shaken(model):
    """Weights far from any initialization, so that what stays old can be told from what is fresh."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    return model


def reinit(model, blocks, seed=0):
    context = SimpleNamespace(generator=torch.Generator().manual_seed(seed))
    build("initialization", parts.ReinitTop(blocks=blocks))(model, context)
    return model


def old(module):
    return all((parameter == 7).all() for parameter in module.parameters())


def fresh(module):
    return all((parameter != 7).all() for parameter in module.parameters())


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_the_top_blocks_and_the_pooler_are_fresh_and_the_rest_is_not(blocks):
    model = reinit(shaken(tiny_classifier(layers=LAYERS)), blocks)
    assert [fresh(block) for block in model.blocks] == [False] * (LAYERS - blocks) + [True] * blocks
    assert [old(block) for block in model.blocks] == [True] * (LAYERS - blocks) + [False] * blocks
    assert fresh(model.pooler)
    assert old(model.embeddings)
    assert old(model.head)


def test_without_a_pooler_only_blocks_are_fresh():
    """RoBERTa's head is fresh from the start and is not drawn a second time."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    network = RobertaForSequenceClassification(RobertaConfig(vocab_size=50, max_position_embeddings=16, **sizes))
    model = reinit(shaken(Classifier(network)), 1)
    assert model.pooler is None
    assert fresh(model.blocks[1])
    assert old(model.blocks[0])
    assert old(model.head)


def test_fresh_weights_follow_bert_s_initialization():
    """N(0, 0.02²): over 90,000 numbers the deviation's relative error is about 0.25 %; biases 0, norms (1, 0)."""
    block = nn.ModuleDict({"dense": nn.Linear(300, 300), "norm": nn.LayerNorm(300)})
    redraw(block, 0.02, torch.Generator().manual_seed(0))
    assert block["dense"].weight.std().item() == pytest.approx(0.02, rel=0.01)
    assert abs(block["dense"].weight.mean().item()) < 3e-4
    for zero in (block["dense"].bias, block["norm"].bias):
        assert (zero == 0).all()
    assert (block["norm"].weight == 1).all()


def test_the_fresh_weights_come_from_the_context_s_stream_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (reinit(tiny_classifier(), 1, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    weight = "attention.self.query.weight"
    drawn = [model.blocks[-1].get_parameter(weight) for model in (first, again, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_more_blocks_than_there_are_is_an_error():
    with pytest.raises(ValueError, match=r"initialization\.blocks = 4: the model has 3 transformer blocks"):
        reinit(tiny_classifier(layers=LAYERS), 4)


def test_the_preset_also_lets_learning_rates_fall_with_depth_and_spares_the_head(train, run_of):
    """As the source's code: no weight decay on head and pooler, whatever the others have."""
    trainer = run_of("method=reinit", "trainer.weight_decay=0.1").config.trainer
    assert (trainer.layer_decay, trainer.weight_decay, trainer.head_weight_decay) == (0.95, 0.1, 0.0)
    assert run_of("method=fft").config.trainer.head_weight_decay is None
    train("method=reinit")
