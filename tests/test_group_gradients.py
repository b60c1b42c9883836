"""Both groups' gradients out of one backward, against two explicit ones."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from timm.models.vision_transformer import VisionTransformer
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


def plain(model, forward, is_correct):
    """Two ordinary backward passes through one forward."""
    losses = forward()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    groups = []
    for members in (~is_correct, is_correct):
        cotangent = members.to(losses.dtype)
        each = torch.autograd.grad(losses, list(named.values()), cotangent, retain_graph=True, allow_unused=True)
        pairs = zip(named.items(), each, strict=True)
        groups.append({name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs})
    return groups


def split(model, forward, is_correct, **options):
    """The same with ``GroupGradients``, and the parameters that fell back."""
    with GroupGradients(model, **options) as groups:
        losses = forward()
    return groups.backward(losses, is_correct), groups.fallback


def compare(model, forward, is_correct=None, relative=1e-10):
    """Assert that both agree, under the same dropout masks; returns the parameters that fell back."""
    is_correct = half() if is_correct is None else is_correct
    torch.manual_seed(5)
    found, fallback = split(model, forward, is_correct)
    torch.manual_seed(5)
    expected = plain(model, forward, is_correct)
    assert all(parameter.grad is None for parameter in model.parameters())
    for of_group, wanted in zip(found, expected, strict=True):
        assert list(of_group) == list(wanted)
        whole = torch.stack([gradient.norm() for gradient in wanted.values()]).norm()
        for name, gradient in wanted.items():
            assert of_group[name].dtype == gradient.dtype
            # A key's bias has no gradient but rounding, so the whole gradient gives the scale.
            error = (of_group[name] - gradient).norm() / max(gradient.norm(), 1e-3 * whole, 1e-300)
            assert error <= relative, name
    return fallback


def losses_of(model, inputs, labels=None):
    """A forward of a transformers model, as a function of nothing."""
    labels = torch.arange(N) % 3 if labels is None else labels
    return lambda: cross_entropy(model(**inputs).logits, labels, reduction="none")


# --- models that need one backward ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "roberta", "llama", "qwen3"])
def test_text_models(kind):
    model = network(kind)
    assert compare(model, losses_of(model, tokens())) == []


@pytest.mark.parametrize("is_correct", [torch.zeros(N).bool(), torch.ones(N).bool()])
def test_an_empty_group_is_zero(is_correct):
    model = network("bert")
    assert compare(model, losses_of(model, tokens()), is_correct) == []
    found, _ = split(model, losses_of(model, tokens()), is_correct)
    assert all(not gradient.any() for gradient in found[int(not is_correct[0])].values())


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_one_example(kind):
    model = network(kind)
    assert compare(model, losses_of(model, tokens(1), torch.tensor([2])), torch.tensor([False])) == []


def test_multiple_choice_has_several_rows_an_example():
    config = BertConfig(**TINY)
    model = AutoModelForMultipleChoice.from_config(config).double().train()
    inputs = {name: x.view(N, 2, LENGTH) for name, x in tokens(2 * N).items()}
    assert compare(model, losses_of(model, inputs, torch.arange(N) % 2)) == []


def test_a_vision_transformer():
    """Patches by a convolution, a class token and positions that are broadcast, layer scale."""
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=8, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=3, init_values=0.5, qk_norm=True
    )
    model = model.double().train()
    images = torch.randn(N, 3, 8, 8, generator=rng(), dtype=torch.float64)
    assert compare(model, lambda: cross_entropy(model(images), torch.arange(N) % 3, reduction="none")) == []


def test_low_rank_adapters_train_beside_frozen_weights():
    model = get_peft_model(network("roberta"), LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    model.double().train()
    assert compare(model, losses_of(model, tokens())) == []


def test_tied_and_twice_used_weights_add_up():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 8, padding_idx=1)
            self.mix = nn.Linear(8, 8)
            self.out = nn.Linear(8, 50, bias=False)
            self.out.weight = self.table.weight

        def forward(self, ids):
            x = self.mix(torch.tanh(self.mix(input=self.table(ids))))
            return self.out(x)[:, 0]

    torch.manual_seed(0)
    model, ids = Tied().double(), tokens()["input_ids"]
    assert compare(model, lambda: cross_entropy(model(ids), ids[:, 1], reduction="none")) == []


def test_weights_that_are_computed_from_parameters():
    """One plus a scale, as Gemma has it, and a table projected before it is added."""

    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.randn(8))
            self.positions = nn.Parameter(torch.randn(LENGTH, 8))
            self.project = nn.Linear(8, 8)
            self.temperature = nn.Parameter(torch.tensor(0.7))

        def forward(self, x):
            x = (x + self.project(self.positions)) * (1 + self.scale)
            return torch.tanh(x / self.temperature).sum(1)[:, :3]

    torch.manual_seed(0)
    model, x = Computed().double(), torch.randn(N, LENGTH, 8, generator=rng(), dtype=torch.float64)
    assert compare(model, lambda: cross_entropy(model(x), torch.arange(N) % 3, reduction="none")) == []


def test_frozen_parameters_are_left_out():
    model = network("bert")
    model.bert.embeddings.requires_grad_(False)
    assert compare(model, losses_of(model, tokens())) == []


def test_only_some_parameters():
    model, name = network("bert"), "bert.encoder.layer.0.output.dense.weight"
    forward, is_correct = losses_of(model, tokens()), half()
    torch.manual_seed(5)
    (wrong, _), _ = split(model, forward, is_correct, only=[name])
    torch.manual_seed(5)
    expected, _ = plain(model, forward, is_correct)
    assert list(wrong) == [name]
    assert torch.allclose(wrong[name], expected[name], rtol=1e-10)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_autocast(kind):
    """In bf16 within 1 % of two backwards in bf16, and the loss itself is the same."""
    model = network(kind).float()

    def forward():
        with torch.autocast("cpu", torch.bfloat16):
            return cross_entropy(model(**tokens()).logits.float(), torch.arange(N) % 3, reduction="none")

    assert compare(model, forward, relative=1e-2) == []


def test_embeddings_may_stay_sparse():
    model, name = network("bert"), "bert.embeddings.word_embeddings.weight"
    with GroupGradients(model) as groups:
        losses = losses_of(model, tokens())()
    wrong, correct = groups.backward(losses, half(), sparse=True)
    assert wrong[name].is_sparse
    assert torch.equal(wrong[name].indices(), correct[name].indices())


# --- what needs two, and is told ------------------------------------------------------------------------------------


class Small(nn.Module):
    """A linear layer, something of the test's own, and a head."""

    def __init__(self, between, width=8):
        super().__init__()
        self.first, self.between, self.head = nn.Linear(8, 8), between, nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.between(torch.tanh(self.first(x))))


class Apply(nn.Module):
    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        for name, parameter in parameters.items():
            self.register_parameter(name, nn.Parameter(parameter))

    def forward(self, x):
        return self.function(self, x)


def fallback_of(between, width=8):
    torch.manual_seed(0)
    model = Small(between, width).double()
    x = torch.randn(N, 8, generator=rng(), dtype=torch.float64)
    return compare(model, lambda: cross_entropy(model(x), torch.arange(N) % 3, reduction="none"))


ALL = ["first.weight", "first.bias", "head.weight", "head.bias"]


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x - x.mean(0),
        lambda _, x: x[torch.tensor([3, 1, 2, 0, 4, 6, 5])],
        lambda _, x: x.flip(0),
        lambda _, x: x.softmax(0),
        lambda _, x: (x @ x.T) @ x,
        lambda _, x: torch.einsum("nd,md->nm", x, x) @ x,
        lambda _, x: x / x.abs().max(),
        lambda _, x: x.T.reshape(N, 8),
    ],
    ids=["centred", "permuted", "flipped", "softmax", "gram", "einsum", "scaled", "reshaped"],
)
def test_examples_that_meet_need_two_backwards(function):
    assert fallback_of(Apply(function)) == ALL


def test_batch_normalisation_couples_examples_only_in_training():
    between = nn.BatchNorm1d(8)
    assert fallback_of(between) == ["first.weight", "first.bias", "between.weight", "between.bias", *ALL[2:]]
    assert fallback_of(between.eval()) == ["between.weight", "between.bias"]


def test_a_parameter_without_a_rule_falls_back_alone():
    between = Apply(lambda self, x: torch.bmm(x[:, None], self.w.expand(len(x), 8, 8))[:, 0], w=torch.randn(8, 8))
    assert fallback_of(between) == ["between.w"]


def test_rows_that_are_no_multiple_of_the_examples_fall_back():
    """A head that sees some rows, as where each task has one."""

    def routed(self, x):
        out = torch.zeros_like(x)
        out[:3], out[3:] = x[:3] @ self.one, x[3:] @ self.other
        return out

    fallback = fallback_of(Apply(routed, one=torch.randn(8, 8), other=torch.randn(8, 8)))
    assert {"between.one", "between.other"} <= set(fallback)


def test_verifying_is_content_with_a_transformer():
    model = network("roberta")
    _, fallback = split(model, losses_of(model, tokens()), half(), verify=True)
    assert fallback == []


def test_other_shapes_are_refused():
    model = network("bert")
    with GroupGradients(model) as groups:
        losses = losses_of(model, tokens())()
    with pytest.raises(ValueError, match=r"losses \(7,\) and is_correct \(3,\)"):
        groups.backward(losses, half(3))


def test_exported_by_the_package():
    assert dsgd.GroupGradients is GroupGradients
