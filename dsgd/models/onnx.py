"""DINOv2 as an ONNX file: its weights as timm's network of the same shape has them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsgd.models.sources import SourceError

if TYPE_CHECKING:
    from torch import Tensor

#: The only shape that is read: DINOv2-S (arXiv:2304.07193), of any image size.
ARCHITECTURE = "vit_small_patch14_dinov2"

#: timm's names of a block's parts, and those of transformers, from which such files are exported.
_BLOCK = {
    "norm1": "norm1",
    "attn.proj": "attention.output.dense",
    "ls1.gamma": "layer_scale1.lambda1",
    "norm2": "norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "ls2.gamma": "layer_scale2.lambda1",
}


def write_onnx(file: Path, folder: Path) -> None:
    """The backbone of ``file``, whatever stands above it, with a config.json of timm.

    Raises:
        SourceError: the package ``onnx`` is missing, or the file holds no DINOv2-S.
    """
    if importlib.util.find_spec("onnx") is None:
        raise SourceError("an ONNX file is read by the package onnx: pip install onnx")
    import onnx
    import timm
    from timm.models import save_for_hf

    weights = named_weights(onnx.load(file))
    try:
        state = timm_names(weights)
        patches = state["pos_embed"].shape[1] - 1
        size = 14 * round(patches**0.5)
        network = timm.create_model(ARCHITECTURE, img_size=size, num_classes=0)
        network.load_state_dict(state)
    except (KeyError, RuntimeError) as error:
        raise SourceError(f"{file} holds no {ARCHITECTURE}: {error}") from error
    save_for_hf(network, folder, model_args={"img_size": size}, safe_serialization=True)


def named_weights(model: Any) -> dict[str, Tensor]:
    """The weights of an ONNX graph by the names of the modules that they were exported from.

    An exporter folds the transposition of a linear layer's matrix into it and drops its name; the bias that is added
    to the product keeps its own, and tells whose matrix it is.

    Args:
        model: an ``onnx.ModelProto``.
    """
    import torch
    from onnx import numpy_helper

    found = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy()) for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = torch.from_numpy(numpy_helper.to_array(node.attribute[0].t).copy())
    products = {node.output[0]: node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    for node in model.graph.node:
        biases = [name for name in node.input if name.endswith(".bias")] if node.op_type == "Add" else []
        matrices = [products[name] for name in node.input if products.get(name) in found]
        if biases and matrices:
            found[biases[0].removesuffix("bias") + "weight"] = found[matrices[0]].T.contiguous()
    return found


def timm_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of timm's network out of ``weights`` of transformers' names; KeyError where one is missing."""
    import torch

    prefix = next((name.removesuffix("embeddings.cls_token") for name in weights if name.endswith(".cls_token")), "")
    own = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    width = own["embeddings.cls_token"].shape[-1]
    state = {"cls_token": own["embeddings.cls_token"], "pos_embed": _positions(weights, width)}
    for kind in ("weight", "bias"):
        state[f"patch_embed.proj.{kind}"] = own[f"embeddings.patch_embeddings.projection.{kind}"]
        state[f"norm.{kind}"] = own[f"layernorm.{kind}"]
    blocks = 1 + max(int(name.split(".")[2]) for name in own if name.startswith("encoder.layer."))
    for number in range(blocks):
        there = f"encoder.layer.{number}"
        for kind in ("weight", "bias"):
            parts = [own[f"{there}.attention.attention.{part}.{kind}"] for part in ("query", "key", "value")]
            state[f"blocks.{number}.attn.qkv.{kind}"] = torch.cat(parts)
        for name, other in _BLOCK.items():
            kinds = ("",) if name.endswith("gamma") else (".weight", ".bias")
            state |= {f"blocks.{number}.{name}{kind}": own[f"{there}.{other}{kind}"] for kind in kinds}
    return state


def _positions(weights: dict[str, Tensor], width: int) -> Tensor:
    """The position embeddings (1, 1 + patches, width); an exporter may have parted the class token's and lost names."""
    import torch

    found = {name: each for name, each in weights.items() if each.ndim == 3 and each.shape[::2] == (1, width)}
    tables = [each for each in found.values() if each.shape[1] > 1]
    single = [each for name, each in found.items() if each.shape[1] == 1 and not name.endswith("cls_token")]
    if len(tables) != 1:
        raise KeyError(f"{len(tables)} tables of position embeddings")
    return torch.cat([*single, *tables], dim=1)
