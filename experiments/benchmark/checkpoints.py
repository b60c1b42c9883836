"""Checkpoints of the paper's models in their published shapes, with random weights: a step costs the same with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

#: The packaged model whose tokenizer stands in for each text model's own; the ids that it gives are all known to them.
TOKENIZER_OF = "minilm"

#: What transformers' classes need to know beyond their defaults, from the published config.json files.
ROBERTA_LARGE = {
    "vocab_size": 50265,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
LLAMA_3_2_1B = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
VIT_BASE = "vit_base_patch16_224.orig_in21k"


def write(name: str, folder: Path, device: torch.device, **changes: Any) -> Path:
    """The model ``name`` of ``conf/model`` in ``folder``, as its publishers save it; weights are drawn on ``device``.

    Args:
        name: ``roberta_large``, ``llama_3_2_1b`` or ``vit_base``.
        folder: made if absent.
        device: where random numbers are fast.
        changes: of the shape, for trials.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if name == "vit_base":
        _write_timm(folder, changes)
    else:
        _write_transformers(text_config(name, **changes), folder, device)
    return folder


def text_config(name: str, **changes: Any) -> PretrainedConfig:
    """The published configuration of ``roberta_large`` or ``llama_3_2_1b``, with ``changes``."""
    from transformers import LlamaConfig, RobertaConfig

    config: PretrainedConfig = (
        RobertaConfig(**{**ROBERTA_LARGE, **changes})
        if name == "roberta_large"
        else LlamaConfig(**{**LLAMA_3_2_1B, **changes})
    )
    return config


def _write_transformers(config: PretrainedConfig, folder: Path, device: torch.device) -> None:
    from transformers import AutoModel

    from dsgd.config.command import read_command
    from dsgd.config.compose import expand
    from dsgd.models import load_tokenizer

    with device:
        AutoModel.from_config(config).save_pretrained(folder)
    (run,) = expand(read_command([f"model={TOKENIZER_OF}"]))
    load_tokenizer(run.config.model).save_pretrained(folder)


def _write_timm(folder: Path, changes: dict[str, Any]) -> None:
    import timm
    from timm.models import save_for_hf

    network = timm.create_model(VIT_BASE, num_classes=0, **changes)
    save_for_hf(network, folder, model_args=changes, safe_serialization=True)
