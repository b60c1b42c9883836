"""Both groups' gradients out of one backward, against two explicit ones."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    BertConfig,
    LlamaConfig,
    Qwen3Config,
    RobertaConfig,
)

import dsgd
from dsgd.group_gradients import GroupGradients

N, LENGTH = 7, 6


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def tokens(rows=N, seed=1):
    """Token ids and a mask; the padding is on the right."""
    ids = torch.randint(3, 50, (rows, LENGTH), generator=rng(seed))
    lengths = torch.randint(2, LENGTH + 1, (rows,), generator=rng(seed + 1))
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return {"input_ids": torch.where(mask == 1, ids, 1), "attention_mask": mask}


TINY = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 16, "pad_token_id": 1, "num_labels": 3}  # fmt: skip
GROUPED = {"num_key_value_heads": 1}


def network(kind, seed=0, **options):
    """Random weights in float64 and training mode, with dropout where the architecture has it."""
    configs = {"bert": BertConfig, "roberta": RobertaConfig, "llama": LlamaConfig, "qwen3": Qwen3Config}
    more = {"llama": GROUPED, "qwen3": {**GROUPED, "head_dim": 8}}.get(kind, {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(configs[kind](**TINY, **more, **options))
        for parameter in model.parameters():  # also those that start as 0 or 1
            nn.init.normal_(parameter, std=0.3)
    return model.double().train()


def half(n=N):
    """Some of both groups, in no order; what is right does not matter to the arithmetic."""
    return torch.arange(n) * 3 % 5 < 2


def both(model, forward, is_correct, **options):
    """One backward with ``GroupGradients``, and two ordinary ones through another forward with the same masks."""
    torch.manual_seed(5)
    with GroupGradients(model, **options) as groups:
        losses = forward()
    found = groups.backward(losses, is_correct)
    torch.manual_seed(5)
    losses = forward()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    expected = []
    for members in (~is_correct, is_correct):
        cotangent = members.to(losses.dtype)
        each = torch.autograd.grad(losses, list(named.values()), cotangent, retain_graph=True, allow_unused=True)
        expected.append({n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named.items(), each)})
    return groups, found, expected


def assert_same(found, expected, relative=1e-10):
    for of_group, wanted in zip(found, expected, strict=True):
        assert list(of_group) == list(wanted)
        whole = torch.stack([gradient.norm() for gradient in wanted.values()]).norm()
        for name, gradient in wanted.items():
            assert of_group[name].dtype == gradient.dtype
            error = (of_group[name] - gradient).norm()
            # A key's bias has no gradient but rounding, so its scale is the whole gradient's.
            assert error <= relative * max(gradient.norm(), 1e-3 * whole), name


def text_losses(model, inputs, labels):
    return cross_entropy(model(**inputs).logits.float() if False else model(**inputs).logits, labels, reduction="none")


@pytest.mark.parametrize("kind", ["bert", "roberta", "llama", "qwen3"])
def test_text_models_need_one_backward(kind):
    model, inputs, labels = network(kind), tokens(), torch.arange(N) % 3
    groups, found, expected = both(model, lambda: text_losses(model, inputs, labels), half())
    assert groups.fallback == []
    assert_same(found, expected)


def test_exported_by_the_package():
    assert dsgd.GroupGradients is GroupGradients
