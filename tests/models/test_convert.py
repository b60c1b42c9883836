"""GGUF files as folders: written once, whole or not at all, and loadable as a decoder."""

import importlib.util

import gguf
import numpy as np
import pytest
import torch

from dsgd.config.schema import Model
from dsgd.models import build_model, load_tokenizer
from dsgd.models import convert as module
from dsgd.models.convert import convert, find, main
from dsgd.models.sources import SourceError

WIDTH, HEADS, HIDDEN, BLOCKS = 32, 4, 48, 2
WORDS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "Ġ", "c"]


@pytest.fixture
def file(tmp_path):
    """A tiny Llama in llama.cpp's format."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 5)
    writer.add_token_merges(["a b"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    generator = np.random.default_rng(0)
    for name, shape in tensors():
        writer.add_tensor(name, generator.normal(size=shape).astype(np.float32) * 0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors():
    yield "token_embd.weight", (len(WORDS), WIDTH)
    yield "output_norm.weight", (WIDTH,)
    for block in range(BLOCKS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{block}.{name}.weight", (WIDTH, WIDTH)
        yield f"blk.{block}.ffn_gate.weight", (HIDDEN, WIDTH)
        yield f"blk.{block}.ffn_up.weight", (HIDDEN, WIDTH)
        yield f"blk.{block}.ffn_down.weight", (WIDTH, HIDDEN)
        yield f"blk.{block}.attn_norm.weight", (WIDTH,)
        yield f"blk.{block}.ffn_norm.weight", (WIDTH,)


def test_a_converted_decoder_loads_in_fp32_with_the_file_s_weights(file, tmp_path):
    target = tmp_path / "deep/folder"
    assert convert("gguf", str(file), target)
    model = build_model(Model(name="local", path=str(target)), 3, 0)
    assert len(model.blocks) == BLOCKS
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(file).tensors}
    assert np.array_equal(model.token_embeddings.weight.detach().numpy(), stored["token_embd.weight"])
    assert np.array_equal(model.blocks[1].mlp.down_proj.weight.detach().numpy(), stored["blk.1.ffn_down.weight"])
    assert load_tokenizer(Model(name="local", path=str(target)))("ab")["input_ids"][-1] == WORDS.index("ab")
    assert [path.name for path in target.parent.iterdir()] == ["folder"], "nothing else stays"


def test_what_is_there_is_left(file, tmp_path, monkeypatch):
    assert convert("gguf", str(file), tmp_path / "folder")
    monkeypatch.setattr(module, "CONVERTERS", {})
    assert not convert("gguf", str(file), tmp_path / "folder")


def test_a_broken_file_leaves_nothing(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(SourceError, match=r"cannot read .*broken\.gguf"):
        convert("gguf", str(tmp_path / "broken.gguf"), tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.gguf"]


def test_another_folder_is_not_overwritten(file, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(SourceError, match=r"exists and holds no model\.safetensors"):
        convert("gguf", str(file), tmp_path / "mine")


def test_the_package_that_reads_the_format_is_named(file, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SourceError, match="pip install gguf"):
        convert("gguf", str(file), tmp_path / "folder")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no/file.gguf", "no such file"),
        ("no_such_package", "no package"),
        ("pytest", "must hold one .gguf file, and holds none"),
    ],
)
def test_a_source_that_is_not_there(source, message):
    with pytest.raises(SourceError, match=message):
        find(source, ".gguf")


def test_the_command_says_what_it_did_and_fails_with_2(file, tmp_path, capsys):
    main(["gguf", str(file), str(tmp_path / "folder")])
    assert capsys.readouterr().out.endswith("folder is written\n")
    with pytest.raises(SystemExit, match="2"):
        main(["gguf", "nothing.gguf", str(tmp_path / "other")])
    assert "nothing.gguf: no such file" in capsys.readouterr().err
