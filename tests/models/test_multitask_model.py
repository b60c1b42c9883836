"""One encoder under several heads: which head a row goes through, and what the others see of it."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, RobertaConfig, RobertaForMaskedLM
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead

from dsgd.config.schema import Model
from dsgd.group_gradients import GroupGradients
from dsgd.loss import dsgd_loss
from dsgd.models import multitask
from dsgd.models.multitask import ABSENT, Heads, MultiTaskClassifier, leave_idle_heads
from dsgd.models.text import build_text_model

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "pad_token_id": 0,
}
NETWORKS = {
    "bert": lambda: BertModel(BertConfig(**SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A function from an architecture and the tasks' numbers of classes to a classifier with random weights."""
    folders = {}

    def make(name="roberta", heads=(2, 2), seed=0):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            NETWORKS[name]().save_pretrained(folders[name])
        model = Model(name="tiny", path=str(folders[name]), dropout=0.0)
        with pytest.MonkeyPatch.context() as patch:  # a decoder asks the tokenizer, which is not there, for this alone
            patch.setattr("dsgd.models.text.load_tokenizer", lambda _model: SimpleNamespace(pad_token_id=0))
            return build_text_model(model, max(heads), seed, heads=heads if len(heads) > 1 else ())

    return make


def inputs_of(tasks, longest=7, seed=0):
    """Rows of different lengths, padded on the right; ``tasks`` names each row's."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 40, (len(tasks), longest), generator=generator)
    lengths = torch.randint(2, longest + 1, (len(tasks),), generator=generator)
    mask = (torch.arange(longest) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "tasks": torch.tensor(tasks)}


def rows(inputs, chosen):
    return {name: tensor[chosen] for name, tensor in inputs.items()}


every = pytest.mark.parametrize("name", NETWORKS)


@every
def test_permuting_the_rows_permutes_the_logits(build, name):
    model, inputs = build(name).eval(), inputs_of([0, 1, 1, 0, 1])
    order = torch.tensor([3, 1, 4, 0, 2])
    assert torch.allclose(model(**rows(inputs, order)), model(**inputs)[order], atol=1e-6)


@every
def test_a_padded_batch_of_both_tasks_equals_each_row_alone(build, name):
    model, inputs = build(name).eval(), inputs_of([0, 1, 1, 0])
    for row, logits in enumerate(model(**inputs)):
        alone = rows(inputs, [row])
        length = int(alone["attention_mask"].sum())
        cut = {key: value if key == "tasks" else value[:, :length] for key, value in alone.items()}
        assert torch.allclose(model(**cut)[0], logits, atol=1e-5)


@every
@pytest.mark.parametrize("task", [0, 1])
def test_rows_of_one_task_see_its_head_alone(build, name, task):
    """As a classifier of one task whose head has the same weights."""
    model, inputs = build(name).eval(), inputs_of([task] * 4)
    single = build(name, heads=(2,)).eval()
    single.head.load_state_dict(model.head.heads[task].state_dict())
    text = {key: value for key, value in inputs.items() if key != "tasks"}
    assert torch.allclose(model(**inputs), single(**text), atol=1e-6)


def test_each_task_has_a_whole_roberta_head_of_its_own_weights(build):
    """METHODS 15; the first is what a single task gets from the same seed, so pairs and singles start alike."""
    model = build(seed=3)
    first, second = model.head.heads
    assert isinstance(model, MultiTaskClassifier)
    assert isinstance(first, RobertaClassificationHead)
    assert not torch.equal(first.dense.weight, second.dense.weight)
    single = build(heads=(2,), seed=3)
    assert torch.equal(single.head.dense.weight, first.dense.weight)
    assert torch.equal(single.head.out_proj.weight, first.out_proj.weight)
    assert torch.equal(build(seed=3).head.heads[1].dense.weight, second.dense.weight)
    assert not torch.equal(build(seed=4).head.heads[1].dense.weight, second.dense.weight)


def test_the_encoder_runs_once_a_batch(build):
    model, calls = build(), []
    model.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    model(**inputs_of([0, 1, 0]))
    assert calls == [1]


@every
def test_absent_classes_have_no_probability_at_all(build, name):
    """Heads of 2 and of 4 classes."""
    model, inputs = build(name, heads=(2, 4)).eval(), inputs_of([0, 1, 0])
    logits = model(**inputs)
    assert logits.shape == (3, 4)
    assert (logits[[0, 2], 2:] == ABSENT).all()
    assert (logits.softmax(-1)[[0, 2], 2:] == 0).all()
    assert (logits[1] > ABSENT).all()
    assert [head.out_proj.out_features for head in model.head.heads] == [2, 4] if name == "roberta" else True


@every
def test_dsgd_weighs_each_example_by_its_own_head(build, name):
    """(1/m)(G_W + γ G_C), W and C decided in each task's own rows, from two explicit backward passes per head."""
    model, gamma = build(name), 0.3
    inputs = inputs_of([0, 1, 1, 0, 1, 0, 0, 1])
    labels = model(**inputs).argmax(-1) ^ torch.tensor([0, 0, 1, 1, 0, 1, 0, 1])  # two right and two wrong of each
    loss, _ = dsgd_loss(model(**inputs), labels, gamma)
    loss.backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}

    expected = {}
    for task in (0, 1):
        own = (inputs["tasks"] == task).nonzero().flatten()
        logits, right = model(**rows(inputs, own)), labels[own]
        correct = logits.argmax(-1) == right
        assert correct.sum() == 2
        for group, weight in ((~correct, 1.0), (correct, gamma)):
            model.zero_grad()
            (weight * cross_entropy(logits[group], right[group], reduction="sum") / 8).backward(retain_graph=True)
            for key, parameter in model.named_parameters():
                if parameter.grad is not None:
                    expected[key] = expected.get(key, 0) + parameter.grad
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        assert torch.allclose(gradient, expected[key], atol=1e-6), key


@pytest.mark.parametrize("heads", [(2, 2), (2, 3)])
@every
def test_group_gradients_need_no_second_backward(build, name, heads):
    """``verify`` compares both groups with two ordinary backward passes."""
    model, inputs, labels = build(name, heads), inputs_of([0, 1, 1, 0, 1]), torch.tensor([0, 1, 0, 1, 1])
    with GroupGradients(model, verify=True) as groups:
        logits = model(**inputs)
    groups.backward(cross_entropy(logits, labels, reduction="none"), logits.argmax(-1) == labels)
    assert groups.fallback == []


@pytest.mark.parametrize(("tasks", "present"), [([0, 1], (0, 1)), ([1, 1], (1,))])
def test_only_heads_without_examples_lose_their_gradient(build, tasks, present):
    model = build(heads=(2, 2, 2))
    model(**inputs_of(tasks)).square().sum().backward()
    leave_idle_heads(model, present)
    for task, head in enumerate(model.head.heads):
        assert all((parameter.grad is not None) == (task in present) for parameter in head.parameters())
    assert all(parameter.grad is not None for parameter in model.blocks.parameters())


def test_a_model_of_one_head_keeps_every_gradient(build):
    model = build(heads=(2,))
    text = {key: value for key, value in inputs_of([0, 0]).items() if key != "tasks"}
    model(**text).sum().backward()
    leave_idle_heads(model, ())
    assert all(parameter.grad is not None for parameter in model.head.parameters())


def test_heads_keep_what_is_not_the_last_layer(build):
    """Only the logits' layer depends on the number of classes."""
    heads = Heads(RobertaClassificationHead(RobertaConfig(**SIZES, num_labels=2)), (2, 5))
    assert [head.dense.weight.shape for head in heads.heads] == [(16, 16)] * 2
    assert [head.out_proj.weight.shape for head in heads.heads] == [(2, 16), (5, 16)]
    assert multitask.ABSENT == -1e4
