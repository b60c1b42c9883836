"""What LoRA, AdaLoRA and (IA)³ share: where in a model they go, what trains beside them, and their random stream."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from dsgd.methods.contracts import Statistics, Step
from dsgd.models import Classifier

#: The name under which peft files an adapter inside each adapted module.
NAME = "default"


class Targets(NamedTuple):
    """Linear layers that are adapted, by their path below one transformer block."""

    low_rank: tuple[str, ...]  # LoRA, AdaLoRA: query and value
    scaled: tuple[str, ...]  # (IA)³: the output is scaled
    scaled_inputs: tuple[str, ...]  # (IA)³: the input is scaled


# peft's own (IA)³ default for this family says output.dense, which is the attention's output projection as well: that
# is how 24·(1024 + 1024 + 1024 + 4096) scales come about in RoBERTa-large.
_BERT = Targets(
    low_rank=("attention.self.query", "attention.self.value"),
    scaled=("attention.self.key", "attention.self.value"),
    scaled_inputs=("attention.output.dense", "output.dense"),
)
_DEBERTA = Targets(
    low_rank=("attention.self.query_proj", "attention.self.value_proj"),
    scaled=("attention.self.key_proj", "attention.self.value_proj"),
    scaled_inputs=_BERT.scaled_inputs,
)
_MODERNBERT = Targets(  # one matrix makes queries, keys and values
    low_rank=("attn.Wqkv",),
    scaled=("attn.Wqkv",),
    scaled_inputs=("attn.Wo", "mlp.Wo"),
)
_LLAMA = Targets(
    low_rank=("self_attn.q_proj", "self_attn.v_proj"),
    scaled=("self_attn.k_proj", "self_attn.v_proj"),
    scaled_inputs=("mlp.down_proj",),
)

#: By transformers' ``model_type``. An architecture that is missing here trains in full only.
TARGETS = {
    "bert": _BERT,
    "roberta": _BERT,
    "deberta-v2": _DEBERTA,
    "modernbert": _MODERNBERT,
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}


class PeftAdapter(ABC):
    """An adapter of ``peft`` beside frozen pretrained weights: its own weights and the whole head train.

    ``lr`` and ``weight_decay`` are read by the trainer. The base model's pooler is pretrained, or random and frozen
    where the checkpoint has none, unless ``train_pooler`` is set.
    """

    def __init__(self, lr: float, weight_decay: float, train_pooler: bool, adapter_seed: int) -> None:
        self.train_pooler = train_pooler
        self.adapter_seed = adapter_seed

    def __call__(self, model: nn.Module) -> Classifier:
        """``model`` itself, a ``Classifier``, adapted in place.

        Raises:
            ValueError: nobody has said where this architecture is adapted, or it lacks the pooler that should train.
        """
        assert isinstance(model, Classifier)
        with seeded(self.adapter_seed):
            self.inject(model)  # peft freezes all that it does not add
        model.head.requires_grad_(True)
        if self.train_pooler:
            self._pooler(model).requires_grad_(True)
        return model

    @abstractmethod
    def inject(self, model: Classifier) -> None:
        """Put the adapter's layers into ``model`` and freeze the rest."""

    def penalty(self, model: nn.Module) -> torch.Tensor | None:
        """No term."""
        return None

    def after_step(self, model: nn.Module, step: Step) -> Statistics:
        """Nothing to do."""
        return {}

    def targets(self, model: Classifier) -> Targets:
        """Where ``model``'s architecture is adapted."""
        kind = model.network.config.model_type
        if kind not in TARGETS:
            known = ", ".join(TARGETS)
            raise ValueError(f"adapter={_name_of(self)} knows no place in a {kind}; it knows {known}; use adapter=full")
        return TARGETS[kind]

    def _pooler(self, model: Classifier) -> nn.Module:
        if model.pooler is None:
            kind = model.network.config.model_type
            raise ValueError(f"adapter.train_pooler = true: this {kind} has no pooler; give false")
        return model.pooler


def pattern(model: Classifier, layers: tuple[str, ...]) -> str:
    """A regular expression of exactly these layers of every transformer block, so that no head or pooler matches."""
    return rf"{re.escape(model.architecture.blocks)}\.\d+\.({'|'.join(map(re.escape, layers))})"


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a stream that ``seed`` decides, another than the head's, and leave the global one as it was.

    Adapters are drawn on the CPU, wherever the model is.
    """
    own = int.from_bytes(hashlib.sha256(f"adapter:{seed}".encode()).digest()[:4], "little")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(own)
        yield


def _name_of(part: PeftAdapter) -> str:
    return type(part).__module__.rsplit(".", 1)[-1]
