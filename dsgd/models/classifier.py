"""One interface to every model: tensors in, logits out, and the places inside that parts of a method reach for."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from dsgd.config.architectures import Architecture, Pooling, architecture_of


class Classifier(nn.Module):
    """A classification model behind one interface: tensors in, logits out, named places inside.

    The head computes in float32 whatever autocast says, so that equal logits are no artefact of half precision.

    Args:
        network: a transformers model; a subclass may take another kind.
        architecture: where its modules are; None looks it up by the ``model_type`` of ``network.config``.
        choices: rows of the input that make one example: 1, or more where a shared scorer rates each choice. An
            encoder is a ``…ForMultipleChoice`` then, and a decoder has one label.
    """

    def __init__(self, network: Any, architecture: Architecture | None = None, choices: int = 1) -> None:
        super().__init__()
        self.network = network
        self.architecture = architecture or architecture_of(network.config.model_type, choices)
        self.choices = choices
        self.pooler_is_fresh = False  # whoever loads a checkpoint without one says so
        compute_in_fp32(self.head)

    def train(self, mode: bool = True) -> Self:
        """As of every module; on a CPU it also chooses between two ways to compute the same attention.

        PyTorch's fused one has no dropout on a CPU and falls back to steps that cost more than transformers' own.
        """
        super().train(mode)
        if self.architecture.attention == "sdpa" and self._drops_attention:
            on_cpu = next(self.network.parameters()).device.type == "cpu"
            self.network.set_attn_implementation("eager" if mode and on_cpu else "sdpa")
        return self

    def forward(self, **inputs: Tensor) -> Tensor:
        """Logits (n, K), in at least float32.

        ``inputs`` are (n · choices, length) int64, an example's choices in adjacent rows: ``input_ids``,
        ``attention_mask`` and, where the tokenizer makes them, ``token_type_ids``. Padding is on the right.
        """
        logits: Tensor
        if self.pooling == "last":  # transformers looks for the last id that is not the pad token's, which can deceive
            hidden = self.network.base_model(**inputs).last_hidden_state
            logits = self.head(self.pooled(hidden, inputs.get("attention_mask")))
        elif self.choices > 1:
            apart = {name: rows.view(-1, self.choices, rows.shape[1]) for name, rows in inputs.items()}
            logits = self.network(**apart).logits
        else:
            logits = self.network(**inputs).logits
        return logits.view(-1, self.choices) if self.choices > 1 else logits

    def pooled(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The hidden state by which each row is classified: of ``hidden`` (rows, tokens, d), (rows, d).

        Args:
            hidden: any layer's output.
            attention_mask: (rows, tokens), 0 on the padding behind each row; None where there is none.
        """
        if self.pooling == "first":
            return hidden[:, 0]
        inside = torch.ones_like(hidden[..., 0]) if attention_mask is None else attention_mask
        if self.pooling == "last":
            return hidden[torch.arange(len(hidden), device=hidden.device), inside.long().sum(1) - 1]
        return (hidden * inside[..., None]).sum(1) / inside.sum(1, keepdim=True)

    @property
    def pooling(self) -> Pooling:
        """Whose hidden state is classified."""
        config = getattr(self.network, "config", None)
        return "mean" if getattr(config, "classifier_pooling", None) == "mean" else self.architecture.pooling

    @property
    def embeddings(self) -> nn.Module:
        """What comes before the first transformer block."""
        return self._at(self.architecture.embeddings)

    @property
    def shared(self) -> list[nn.Module]:
        """What else comes before the first block, and before every other: relative positions."""
        return [self._at(path) for path in self.architecture.shared if _has(self.network, path)]

    @property
    def blocks(self) -> nn.ModuleList:
        """The transformer blocks, the lowest first."""
        blocks = self._at(self.architecture.blocks)
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    @property
    def head(self) -> nn.Module:
        """What puts out the logits; never pretrained."""
        return self._at(self.architecture.head)

    @property
    def pooler(self) -> nn.Module | None:
        """The layer between the last block and the head, where there is one."""
        return None if self.architecture.pooler is None else self._at(self.architecture.pooler)

    @property
    def fresh(self) -> list[nn.Module]:
        """What is not pretrained: the head, and a pooler that the checkpoint lacks."""
        return [self.head, self.pooler] if self.pooler is not None and self.pooler_is_fresh else [self.head]

    @property
    def top(self) -> list[nn.Module]:
        """What leads from the pooled state, or from all of the last block's, to the logits, in the order of the calls.

        The head is last.
        """
        return [self._at(path) for path in (*self.architecture.below_head, self.architecture.head)]

    @property
    def token_embeddings(self) -> nn.Module:
        """What the tokens' ids become first; positions and types are added later."""
        module: nn.Module = self.network.get_input_embeddings()
        return module

    @property
    def num_classes(self) -> int:
        """K."""
        return self.choices if self.choices > 1 else int(self.network.config.num_labels)

    @property
    def initializer_range(self) -> float:
        """Standard deviation of the weights before pretraining."""
        return float(self.network.config.initializer_range)

    @property
    def _drops_attention(self) -> bool:
        config = getattr(self.network, "config", None)
        return any(getattr(config, name, 0.0) > 0 for name in ("attention_probs_dropout_prob", "attention_dropout"))

    def _at(self, path: str) -> nn.Module:
        module: nn.Module = self.network.get_submodule(path)
        return module


def compute_in_fp32(module: nn.Module) -> None:
    """Let ``module`` see no autocast, and half precision raised to float32; its paths and state stay as they are."""
    precision = _FullPrecision()
    module.register_forward_pre_hook(precision.enter)
    module.register_forward_hook(precision.leave, always_call=True)


class _FullPrecision:
    """Hooks of one module; a stack, in case it is called from within itself."""

    def __init__(self) -> None:
        self._before: list[tuple[str, bool]] = []

    def enter(self, _module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        kind = args[0].device.type
        self._before.append((kind, torch.is_autocast_enabled(kind)))
        torch.set_autocast_enabled(kind, False)
        return tuple(full_precision(value) if isinstance(value, Tensor) else value for value in args)

    def leave(self, _module: nn.Module, _args: tuple[Any, ...], _output: Any) -> None:
        torch.set_autocast_enabled(*self._before.pop())


def full_precision(tensor: Tensor) -> Tensor:
    """Half precision raised to float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def hidden_state(output: Tensor | tuple[Any, ...]) -> Tensor:
    """A transformer block's hidden states, whether it puts out something beside them or not."""
    state: Tensor = output[0] if isinstance(output, tuple) else output
    return state


def _has(network: nn.Module, path: str) -> bool:
    try:
        network.get_submodule(path)
    except AttributeError:
        return False
    return True


def require_fp32(module: nn.Module) -> None:
    """Check the dtype of every parameter.

    Raises:
        RuntimeError: one is not fp32.
    """
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise RuntimeError(f"{name} is {parameter.dtype}: AdamW's small updates round away unless it is float32")
