"""Symmetric divergence under noisy embeddings: by hand, by a second forward, and what it must leave alone."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Batch
from dsgd.methods.regularizer.r3f import symmetric_divergence
from dsgd.methods.regularizer.replay import Noise
from helpers import random_batch, tiny_classifier
from shared import losses

SEED = 11
EPSILON = 0.01


def r3f(seed=SEED, epsilon=EPSILON, **fields):
    return build("regularizer", parts.R3F(epsilon=epsilon, **{"shared_dropout": True, **fields}), noise_seed=seed)


def terms(part, model, batch):
    """Logits and the part's terms, as the objective asks for them."""
    with part.watch(model):
        logits = model(**batch.inputs)
    return logits, part.per_example(model, batch, logits)


def disturbed_logits(model, batch, detach=True):
    """The noisy forward, its embeddings handed over by hand."""
    embedded = model.network.get_input_embeddings()(batch.inputs["input_ids"])
    generator = Noise(SEED).next(torch.device("cpu"))
    noise = EPSILON * (2 * torch.rand(embedded.shape, generator=generator, dtype=embedded.dtype) - 1)
    assert noise.abs().max() <= EPSILON
    clean = embedded.detach() if detach else embedded
    return model.network(inputs_embeds=clean + noise, attention_mask=batch.inputs["attention_mask"]).logits


def test_pinned_divergence():
    """p = (3/4, 1/4), q = (1/4, 3/4): KL(p‖q) = KL(q‖p) = 3/4 ln 3 - 1/4 ln 3 = ln 3 / 2, so ln 3."""
    ln3 = torch.tensor(3.0).log().item()
    one, other = torch.tensor([[ln3, 0.0]]), torch.tensor([[5.0, 5.0 + ln3]])
    assert symmetric_divergence(one, other).item() == pytest.approx(ln3)
    assert symmetric_divergence(one, one).item() == 0


def test_the_divergence_is_torch_s_in_both_directions():
    one, other = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_p, log_q = one.log_softmax(-1), other.log_softmax(-1)
    both = kl_div(log_q, log_p.exp(), reduction="none") + kl_div(log_p, log_q.exp(), reduction="none")
    assert torch.allclose(symmetric_divergence(one, other), both.sum(-1), rtol=1e-9)
    assert torch.equal(symmetric_divergence(one, other), symmetric_divergence(other, one))


def test_half_precision_is_raised_first():
    one, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0078125, 0.0]])  # neighbours in bfloat16
    found = symmetric_divergence(one.bfloat16(), other.bfloat16())
    assert found.dtype == torch.float32
    assert torch.equal(found, symmetric_divergence(one, other))


def test_the_term_and_its_gradient_are_the_formula_s():
    """The noisy embeddings are constants: the word embeddings learn from the clean branch alone."""
    model, batch = tiny_classifier(), random_batch()
    _, found = terms(r3f(weight=0.7), model, batch)
    expected = 0.7 * symmetric_divergence(model(**batch.inputs), disturbed_logits(model, batch))
    assert (expected > 0).all()
    assert torch.allclose(found, expected, rtol=1e-9)
    weights = list(model.parameters())
    of_found = torch.autograd.grad(found.sum(), weights)
    of_expected = torch.autograd.grad(expected.sum(), weights)
    assert all(torch.allclose(one, two, rtol=1e-7, atol=1e-14) for one, two in zip(of_found, of_expected, strict=True))
    attached = symmetric_divergence(model(**batch.inputs), disturbed_logits(model, batch, detach=False))
    words = model.token_embeddings.weight
    (differing,) = torch.autograd.grad(0.7 * attached.sum(), [words])
    (mine,) = torch.autograd.grad(terms(r3f(weight=0.7), model, batch)[1].sum(), [words])
    assert not torch.allclose(mine, differing, rtol=1e-3)


def test_without_noise_the_term_is_zero_although_dropout_is_on():
    """Other masks in the second branch would leave the size of dropout here."""
    model = tiny_classifier(dropout=0.3)
    assert (terms(r3f(epsilon=0.0), model, random_batch())[1] == 0).all()
    assert (terms(r3f(), model, random_batch())[1] > 0).all()


def test_by_default_each_pass_has_its_own_masks():
    """As published: without noise the term is then the size of dropout, and without dropout it is zero."""
    assert (terms(r3f(epsilon=0.0, shared_dropout=False), tiny_classifier(dropout=0.3), random_batch())[1] > 0).all()
    assert (terms(r3f(epsilon=0.0, shared_dropout=False), tiny_classifier(), random_batch())[1] == 0).all()
    assert parts.R3F().shared_dropout is False


def test_a_weight_of_zero_is_full_fine_tuning_bit_for_bit():
    """Losses, gradients and the dropout stream, dropout on."""
    batch = random_batch()
    torch.manual_seed(0)
    plain = tiny_classifier(dropout=0.3)
    loss = cross_entropy(plain(**batch.inputs), batch.labels, reduction="none")
    loss.sum().backward()
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = tiny_classifier(dropout=0.3)
    logits, extra = terms(r3f(weight=0.0), model, batch)
    assert extra is None
    regularized = cross_entropy(logits, batch.labels, reduction="none")
    regularized.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(regularized, loss)
    for (name, parameter), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad), name


def test_ignored_examples_have_no_term():
    batch = random_batch()
    labels = batch.labels.clone()
    labels[2] = -100
    _, found = terms(r3f(), tiny_classifier(), Batch(batch.inputs, labels))
    assert found[2] == 0
    assert (found > 0).sum() == 7


def test_the_noise_has_its_own_stream_which_goes_on_after_a_resumption():
    """Each forward has new noise; the third after a resumption at two is the uninterrupted third."""
    model, batch = tiny_classifier(), random_batch()
    whole, first, second = r3f(), r3f(), r3f()
    before = torch.get_rng_state()
    found = [terms(whole, model, batch)[1] for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(found[0], found[1])
    for _ in range(2):
        terms(first, model, batch)
    second.load_state_dict(first.state_dict())
    assert torch.equal(terms(second, model, batch)[1], found[2])
    assert not torch.equal(terms(r3f(seed=12), model, batch)[1], found[0])


def test_no_hook_stays_behind_even_after_an_error():
    model, part, batch = tiny_classifier(), r3f(), random_batch()
    before = [list(module._forward_hooks) for module in model.modules()]
    terms(part, model, batch)
    with part.watch(model):
        logits = model(**batch.inputs)
    with pytest.raises(ValueError, match="input_ids"):
        part.per_example(model, Batch({}, batch.labels), logits)
    assert [list(module._forward_hooks) for module in model.modules()] == before


def test_the_second_forward_is_not_the_wrapper_s():
    """DDP's own second forward would overwrite the buffers that the first one's graph needs."""

    class Wrapper(nn.Module):
        calls = 0

        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, **inputs):
            self.calls += 1
            return self.module(**inputs)

    wrapper, batch = Wrapper(tiny_classifier()), random_batch()
    _, found = terms(r3f(), wrapper, batch)
    assert wrapper.calls == 1
    assert torch.equal(found, terms(r3f(), wrapper.module, batch)[1])


def test_a_run_without_weight_is_full_fine_tuning_bit_for_bit(train):
    """The whole training, dropout on; with the weight its term stands in the history."""
    plain = train("method=fft")
    assert losses(train("method=r3f", "regularizer.weight=0")) == losses(plain)
    full = train("method=r3f", "regularizer.epsilon=0.1")
    assert losses(full) != losses(plain)
    assert all(record["train/regularizer"] > 0 for record in full.history if "train/loss" in record)
