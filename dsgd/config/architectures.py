"""The text models that can be trained: where each keeps its modules, and what limits its checkpoints. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Whose hidden state is classified: the first token's, the last one's that is no padding, or the mean of those.
Pooling = Literal["first", "last", "mean"]

#: ``table``: one learned row for each of ``max_position_embeddings``. ``table_behind_padding``: the same, counted from
#: ``pad_token_id`` + 1. ``relative``: no row is looked up, so that no text is too long.
Positions = Literal["table", "table_behind_padding", "relative"]


@dataclass(frozen=True)
class Architecture:
    """Where a transformers model keeps the modules that parts of a method reach for, and its dropout settings."""

    embeddings: str
    blocks: str
    head: str
    dropouts: tuple[str, ...]
    pooler: str | None = None
    below_head: tuple[str, ...] = ()  # called between the pooled state, or the last block, and the head, in this order
    pooling: Pooling = "first"  # unless the checkpoint's ``classifier_pooling`` says otherwise
    shared: tuple[str, ...] = ()  # beside the embeddings, what feeds every block
    pooler_is_optional: bool = False  # checkpoints without one get a fresh pooler
    positions: Positions = "relative"
    attention: str = "sdpa"


_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")

_DECODER = Architecture("model.embed_tokens", "model.layers", "score", ("attention_dropout",), pooling="last")

#: By ``model_type`` of the checkpoint's config.json.
ARCHITECTURES = {
    "bert": Architecture(
        "bert.embeddings",
        "bert.encoder.layer",
        "classifier",
        _DROPOUTS,
        "bert.pooler",
        ("bert.pooler", "dropout"),
        pooler_is_optional=True,  # BertForMaskedLM saves none
        positions="table",
    ),
    "roberta": Architecture(
        "roberta.embeddings", "roberta.encoder.layer", "classifier", _DROPOUTS, positions="table_behind_padding"
    ),
    "deberta-v2": Architecture(  # and v3
        "deberta.embeddings",
        "deberta.encoder.layer",
        "classifier",
        ("hidden_dropout_prob", "attention_probs_dropout_prob", "cls_dropout", "pooler_dropout"),
        "pooler",
        ("pooler", "dropout"),
        shared=("deberta.encoder.rel_embeddings", "deberta.encoder.LayerNorm"),
        pooler_is_optional=True,
        attention="eager",  # transformers has no other for its relative positions
    ),
    "modernbert": Architecture(
        "model.embeddings",
        "model.layers",
        "classifier",
        ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout"),
        "head",
        ("head", "drop"),
        pooler_is_optional=True,
    ),
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
}

#: What differs where a shared scorer rates each choice: RoBERTa then has a pooler, in place of its head's first layer.
_MULTIPLE_CHOICE = {
    "roberta": Architecture(
        "roberta.embeddings",
        "roberta.encoder.layer",
        "classifier",
        _DROPOUTS,
        "roberta.pooler",
        ("roberta.pooler", "dropout"),
        pooler_is_optional=True,
        positions="table_behind_padding",
    ),
}


def architecture_of(model_type: str, choices: int) -> Architecture:
    """The architecture of a classifier of ``choices`` input rows an example; KeyError for an unknown one."""
    return (_MULTIPLE_CHOICE if choices > 1 else {}).get(model_type) or ARCHITECTURES[model_type]
