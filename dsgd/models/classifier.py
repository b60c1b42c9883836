"""One interface to every model: tensors in, logits out, and the places inside that parts of a method reach for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Architecture:
    """Where a transformers model keeps the modules that parts of a method reach for, and its dropout settings."""

    embeddings: str
    blocks: str
    head: str
    dropouts: tuple[str, ...]
    pooler: str | None = None
    below_head: tuple[str, ...] = ()  # called between the last block and the head, in this order


_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")

#: By ``model_type`` of the checkpoint's config.json.
ARCHITECTURES = {
    "bert": Architecture(
        "bert.embeddings", "bert.encoder.layer", "classifier", _DROPOUTS, "bert.pooler", ("bert.pooler", "dropout")
    ),
    "roberta": Architecture("roberta.embeddings", "roberta.encoder.layer", "classifier", _DROPOUTS),
}


class Classifier(nn.Module):
    """A classification model behind one interface: tensors in, logits out, named places inside.

    Args:
        network: a transformers model; a subclass may take another kind.
        architecture: where its modules are; None looks it up by the ``model_type`` of ``network.config``.
        choices: rows of the input that make one example: 1, or more where a shared scorer rates each choice.
    """

    def __init__(self, network: Any, architecture: Architecture | None = None, choices: int = 1) -> None:
        super().__init__()
        self.network = network
        self.architecture = architecture or ARCHITECTURES[network.config.model_type]
        self.choices = choices

    def forward(self, **inputs: Tensor) -> Tensor:
        """Logits (n, K), in the dtype of the compute precision.

        ``inputs`` are (n · choices, length) int64, an example's choices in adjacent rows: ``input_ids``,
        ``attention_mask`` and, where the tokenizer makes them, ``token_type_ids``.
        """
        logits: Tensor = self.network(**inputs).logits
        return logits

    @property
    def embeddings(self) -> nn.Module:
        """What comes before the first transformer block."""
        return self._at(self.architecture.embeddings)

    @property
    def blocks(self) -> nn.ModuleList:
        """The transformer blocks, the lowest first."""
        blocks = self._at(self.architecture.blocks)
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    @property
    def head(self) -> nn.Module:
        """What is not pretrained. BERT's pooler is pretrained, so it belongs to the rest."""
        return self._at(self.architecture.head)

    @property
    def pooler(self) -> nn.Module | None:
        """The pretrained layer between the last block and the head, where there is one."""
        return None if self.architecture.pooler is None else self._at(self.architecture.pooler)

    @property
    def top(self) -> list[nn.Module]:
        """What leads from the last block's output to the logits, in the order of the calls; the head is last."""
        return [self._at(path) for path in (*self.architecture.below_head, self.architecture.head)]

    @property
    def token_embeddings(self) -> nn.Module:
        """What the tokens' ids become first; positions and types are added later."""
        module: nn.Module = self.network.get_input_embeddings()
        return module

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.network.config.num_labels)

    @property
    def initializer_range(self) -> float:
        """Standard deviation of the weights before pretraining."""
        return float(self.network.config.initializer_range)

    def _at(self, path: str) -> nn.Module:
        module: nn.Module = self.network.get_submodule(path)
        return module


def require_fp32(module: nn.Module) -> None:
    """Check the dtype of every parameter.

    Raises:
        RuntimeError: one is not fp32.
    """
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise RuntimeError(f"{name} is {parameter.dtype}: AdamW's small updates round away unless it is float32")
