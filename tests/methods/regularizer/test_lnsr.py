"""Noise stability of the last layers: by hand, by a second run of the blocks, and what it must leave alone."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import RobertaConfig, RobertaForSequenceClassification

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Batch
from dsgd.methods.regularizer.lnsr import mean_square, relative_noise
from dsgd.methods.regularizer.replay import Noise
from dsgd.models import Classifier
from helpers import random_batch, tiny_classifier
from shared import losses

SEED = 11
READINGS = ["blocks", "head"]


def lnsr(reading="blocks", seed=SEED, **fields):
    return build("regularizer", parts.LNSR(reading=parts.LNSRReading(reading), **fields), noise_seed=seed)


def terms(part, model, batch):
    """Logits and the part's terms, as the objective asks for them."""
    with part.watch(model):
        logits = model(**batch.inputs)
    return logits, part.per_example(model, batch, logits)


def tiny_roberta(dropout=0.0):
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = RobertaConfig(vocab_size=50, max_position_embeddings=16, num_labels=3, **sizes, **rates)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Classifier(RobertaForSequenceClassification(config)).double().train()


MODELS = {"bert": lambda dropout=0.0: tiny_classifier(layers=3, dropout=dropout), "roberta": tiny_roberta}


def first_noise(hidden, mask, rho):
    return relative_noise(hidden, mask, rho, Noise(SEED).next(torch.device("cpu")))


def masked_mean(squares, mask):
    """Over the features and the tokens that are no padding, by a loop."""
    return torch.stack([row[inside.bool()].mean() for row, inside in zip(squares, mask, strict=True)])


def test_the_blocks_term_is_the_formula_s():
    """Blocks 2 and 3 of 3 run by hand on the hidden states that transformers itself gives out."""
    model, batch = tiny_classifier(layers=3), random_batch()
    _, found = terms(lnsr(), model, batch)
    mask = batch.inputs["attention_mask"]
    hidden = model.network(**batch.inputs, output_hidden_states=True).hidden_states
    attend = mask[:, None, None, :].bool().expand(-1, -1, mask.shape[1], -1)
    z = hidden[1] + first_noise(hidden[1], mask, 0.05)
    expected = torch.zeros(8, dtype=torch.float64)
    for weight, block, clean in ((0.2, model.blocks[1], hidden[2]), (0.1, model.blocks[2], hidden[3])):
        z = block(z, attend)
        expected = expected + weight * masked_mean((z - clean) ** 2, mask)
    assert (expected > 0).all()
    assert torch.allclose(found, expected, rtol=1e-9)


def test_the_head_term_is_the_formula_s_for_bert():
    """dense and classifier of logits = classifier(tanh(dense(x))), x the first token's last hidden state."""
    model, batch = tiny_classifier(layers=3), random_batch()
    _, found = terms(lnsr("head"), model, batch)
    hidden = model.network(**batch.inputs, output_hidden_states=True).hidden_states[-1]
    noisy = hidden + first_noise(hidden, batch.inputs["attention_mask"], 0.05)
    assert torch.allclose(found, by_head(model.pooler.dense, model.head, hidden, noisy), rtol=1e-9)


def test_the_head_term_is_the_formula_s_for_roberta():
    model, batch = tiny_roberta(), random_batch()
    _, found = terms(lnsr("head"), model, batch)
    hidden = model.network(**batch.inputs, output_hidden_states=True).hidden_states[-1]
    noisy = hidden + first_noise(hidden, batch.inputs["attention_mask"], 0.05)
    assert torch.allclose(found, by_head(model.head.dense, model.head.out_proj, hidden, noisy), rtol=1e-9)


def by_head(dense, last, hidden, noisy):
    one, other = dense(hidden[:, 0]), dense(noisy[:, 0])
    first = (one - other).square().mean(1)
    second = (last(one.tanh()) - last(other.tanh())).square().mean(1)
    return 0.2 * first + 0.1 * second


@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("reading", READINGS)
def test_without_noise_the_term_is_zero_although_dropout_is_on(reading, architecture):
    """Other masks in the second branch would leave the size of dropout here."""
    _, found = terms(lnsr(reading, rho=0.0), MODELS[architecture](dropout=0.3), random_batch())
    assert (found == 0).all()
    _, noisy = terms(lnsr(reading), MODELS[architecture](dropout=0.3), random_batch())
    assert (noisy > 0).all()


@pytest.mark.parametrize("reading", READINGS)
def test_without_noise_the_term_is_zero_in_half_precision(reading):
    """Both branches run under the precision of the forward, which has ended when the second one starts."""
    model = tiny_classifier(layers=3, dropout=0.3, dtype=torch.float32)
    for rho in (0.0, 0.05):
        part = lnsr(reading, rho=rho)
        with part.watch(model), torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(**random_batch().inputs)
        found = part.per_example(model, random_batch(), logits)
        assert found.dtype == torch.float32
        assert bool((found == 0).all()) == (rho == 0)


@pytest.mark.parametrize("reading", READINGS)
def test_weights_of_zero_are_full_fine_tuning_bit_for_bit(reading):
    """Losses, gradients and the dropout stream, dropout on."""
    batch = random_batch()
    torch.manual_seed(0)
    plain = tiny_classifier(layers=3, dropout=0.3)
    loss = cross_entropy(plain(**batch.inputs), batch.labels, reduction="none")
    loss.sum().backward()
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = tiny_classifier(layers=3, dropout=0.3)
    logits, extra = terms(lnsr(reading, weights=[0.0, 0.0]), model, batch)
    regularized = cross_entropy(logits, batch.labels, reduction="none") + extra
    regularized.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(regularized, loss)
    for (name, parameter), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad), name


def test_both_branches_are_differentiated():
    """Against finite differences of the term in a weight of the last block and in one below the noise.

    The noise is held: it is drawn for the unmoved weights, and training cannot shrink it.
    """
    model, batch = tiny_classifier(layers=3), random_batch()
    places = [model.blocks[0].output.dense.bias, model.blocks[2].output.dense.bias]
    _, found = terms(lnsr(), model, batch)
    gradients = torch.autograd.grad(found.sum(), places)
    mask = batch.inputs["attention_mask"]
    attend = mask[:, None, None, :].bool().expand(-1, -1, mask.shape[1], -1)
    held = first_noise(model.network(**batch.inputs, output_hidden_states=True).hidden_states[1], mask, 0.05)

    @torch.no_grad()
    def term():
        x = model.network(**batch.inputs, output_hidden_states=True).hidden_states[1]
        one, other, total = x, x + held, 0.0
        for weight, block in ((0.2, model.blocks[1]), (0.1, model.blocks[2])):
            one, other = block(one, attend), block(other, attend)
            total += weight * masked_mean((one - other) ** 2, mask).sum()
        return total.item()

    step = 1e-5
    for place, gradient in zip(places, gradients, strict=True):
        with torch.no_grad():
            place[3] += step
            above = term()
            place[3] -= 2 * step
            below = term()
            place[3] += step
        assert gradient[3].item() == pytest.approx((above - below) / (2 * step), rel=1e-5)
        assert gradient[3].item() != 0


def test_the_noise_is_relative_to_its_token_and_absent_on_padding():
    """Root mean square 0.05 times the token's own, over 4000 features; a token ten times as large gets ten times it."""
    hidden = torch.randn(1, 3, 4000, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 10, 1])[:, None]
    mask = torch.tensor([[1, 1, 0]])
    noise = relative_noise(hidden, mask, 0.05, torch.Generator().manual_seed(0))
    share = noise.norm(dim=-1) / hidden.norm(dim=-1)
    assert share[0, :2].tolist() == pytest.approx([0.05, 0.05], rel=0.05)
    assert (noise[0, 2] == 0).all()


def test_the_mean_leaves_padding_out():
    """Squares (1 + 9)/2 = 5 and (4 + 4)/2 = 4 at two tokens, 5000 at a padded third: 4.5, and of the first alone 5."""
    one = torch.tensor([[[1.0, 3.0], [2.0, 2.0], [100.0, 0.0]]]).expand(2, -1, -1)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert mean_square(one, torch.zeros_like(one), mask).tolist() == [4.5, 5.0]
    assert mean_square(one[:, 0], torch.zeros(2, 2), mask).tolist() == [5.0, 5.0]


def test_ignored_examples_have_no_term():
    batch = random_batch()
    labels = batch.labels.clone()
    labels[2] = -100
    _, found = terms(lnsr(), tiny_classifier(layers=3), Batch(batch.inputs, labels))
    assert found[2] == 0
    assert (found > 0).sum() == 7


def test_one_weight_is_of_the_last_layer_alone():
    """And the noise then enters just below it."""
    model, batch = tiny_classifier(layers=3), random_batch()
    _, found = terms(lnsr(weights=[0.3]), model, batch)
    mask = batch.inputs["attention_mask"]
    below, above = model.network(**batch.inputs, output_hidden_states=True).hidden_states[-2:]
    attend = mask[:, None, None, :].bool().expand(-1, -1, mask.shape[1], -1)
    z = model.blocks[2](below + first_noise(below, mask, 0.05), attend)
    assert torch.allclose(found, 0.3 * masked_mean((z - above) ** 2, mask), rtol=1e-9)


@pytest.mark.parametrize(("reading", "layers", "there"), [("blocks", 1, 1), ("head", 2, 2)])
def test_more_weights_than_layers_is_an_error(reading, layers, there):
    weights = [0.1] * (there + 1)
    with (
        pytest.raises(ValueError, match=rf"regularizer\.weights = .*the model's {reading} are {there}"),
        lnsr(reading, weights=weights).watch(tiny_classifier(layers=layers)),
    ):
        pass


def test_the_noise_has_its_own_stream_which_goes_on_after_a_resumption():
    """Each forward has new noise; the third after a resumption at two is the uninterrupted third."""
    model, batch = tiny_classifier(layers=3), random_batch()
    whole, first, second = lnsr(), lnsr(), lnsr()
    before = torch.get_rng_state()
    found = [terms(whole, model, batch)[1] for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(found[0], found[1])
    for _ in range(2):
        terms(first, model, batch)
    second.load_state_dict(first.state_dict())
    assert torch.equal(terms(second, model, batch)[1], found[2])
    assert not torch.equal(terms(lnsr(seed=12), model, batch)[1], found[0])


def test_no_hook_stays_behind_even_after_an_error():
    model, batch = tiny_classifier(layers=3), random_batch()
    part, before = lnsr(), hooks_of(model)
    terms(part, model, batch)
    with pytest.raises(RuntimeError, match="in the forward"), part.watch(model):
        raise RuntimeError("in the forward")
    assert hooks_of(model) == before


def hooks_of(model):
    return [[*module._forward_hooks, *module._forward_pre_hooks] for module in model.modules()]


def test_micro_batches_have_their_own_noise_and_their_own_term():
    """Two halves of a batch, without noise on their padding, are not compared with each other's activations."""
    model, part = tiny_classifier(layers=3), lnsr()
    one, two = random_batch(seed=1), random_batch(seed=2)
    _, first = terms(part, model, one)
    _, second = terms(part, model, two)
    fresh = lnsr()
    fresh.load_state_dict({"drawn": 1})
    assert torch.equal(second, terms(fresh, model, two)[1])
    assert torch.equal(first, terms(lnsr(), model, one)[1])


def test_a_wrapper_as_of_several_processes_changes_nothing():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, **inputs):
            return self.module(**inputs)

    model, batch = tiny_classifier(layers=3), random_batch()
    assert torch.equal(terms(lnsr(), Wrapper(model), batch)[1], terms(lnsr(), model, batch)[1])


def test_a_run_without_weight_is_full_fine_tuning_bit_for_bit(train):
    """The whole training, dropout on; with the weights it is another one, and its term stands in the history."""
    plain = train("method=fft", "model.layers=2")
    assert losses(train("method=lnsr", "regularizer.weights=[0,0]", "model.layers=2")) == losses(plain)
    full = train("method=lnsr", "model.layers=2")
    assert losses(full) != losses(plain)
    assert all(record["train/regularizer"] > 0 for record in full.history if "train/loss" in record)
