"""Which operations of a forward pass get a backward that is split by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from dsgd.group_axes import Axes
from dsgd.group_moves import NOWHERE
from dsgd.group_rules import Broadcast, Convolution, Embedding, LayerNorm, Linear, Split


class Recorder(TorchFunctionMode):
    """Puts the operations of ``group_rules`` in place of those on a trained weight and on examples in dimension 0.

    What is not replaced stays ordinary: it costs a second backward, never exactness.

    Attributes:
        split: how the backward divides the rows.
        axes: where the examples are in each tensor.
        low_precision: whether autocast had a layer compute in half precision.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.split = Split()
        self.axes = Axes([*model.parameters(), *model.buffers()])
        self.low_precision = False
        self._records = True
        self._input: tuple[Tensor, int, Tensor, object] | None = None  # of the last linear layer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run ``func``, or what stands for it."""
        kwargs = kwargs or {}
        if not self._records:
            return func(*args, **kwargs)
        places = self.axes.places(args, kwargs)
        output = self._replaced(func, args, kwargs) if func in _RULES else NotImplemented
        if output is NotImplemented:
            output = func(*args, **kwargs)
        self.axes.follow(func, args, kwargs, output, places)
        return output

    def begin(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Whatever made them, what the model is called with has examples."""
        self.axes.mark([*args, *kwargs.values()])

    def stop(self) -> None:
        """Let go of the forward's tensors; further functions run as they are."""
        self._records, self._input = False, None
        self.axes.forget()

    def _replaced(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``NotImplemented`` where the operation is to stay as it is; so for all the rules below."""
        rule, keywords = _RULES[func]
        if not torch.is_grad_enabled() or not keywords.issuperset(kwargs):
            return NotImplemented
        return rule(self, *args, **kwargs)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        if input.ndim < 2 or not self._splits(input, weight, bias):
            return NotImplemented
        dtype, last = self._compute_dtype(input), self._input
        if last is None or last[0] is not input or last[1] != input._version:  # else query, key and value share it
            last = self._input = input, input._version, input.detach().to(dtype), object()
        return Linear.apply(input, weight, bias, last[2], weight.detach().to(dtype), self.split, last[3])

    def _addmm(self, input: Tensor, mat1: Tensor, mat2: Tensor) -> Any:
        return self._linear(mat1, mat2.t(), input) if input.ndim == 1 else NotImplemented

    def _matmul(self, input: Tensor, other: Tensor) -> Any:
        is_weight = other.ndim == 2 and self.axes[other] is NOWHERE
        return self._linear(input, other.t()) if is_weight else NotImplemented

    def _layer_norm(
        self,
        input: Tensor,
        normalized_shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Any:
        shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        if weight is None or input.ndim <= len(shape) or not self._splits(input, weight, bias):
            return NotImplemented
        return LayerNorm.apply(input, weight, bias, shape, eps, self.split)

    def _rms_norm(
        self, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
    ) -> Any:
        if weight is None or not self._splits(input, weight):
            return NotImplemented
        return F.rms_norm(input, normalized_shape, None, eps) * self._broadcast(weight, input.shape)

    def _embedding(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        is_plain = max_norm is None and not scale_grad_by_freq and not sparse
        if not is_plain or input.ndim == 0 or not self._splits(input, weight):
            return NotImplemented
        padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
        return Embedding.apply(weight, input, padding, self.split)

    def _convolution(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if isinstance(padding, str) or input.ndim != weight.ndim or not self._splits(input, weight, bias):
            return NotImplemented
        settings = *(_each(value, weight.ndim - 2) for value in (stride, padding, dilation)), groups
        dtype = self._compute_dtype(input)
        low = input.detach().to(dtype), weight.detach().to(dtype)
        return Convolution.apply(input, weight, bias, *low, settings, self.split)

    def _cat(self, tensors: Any, dim: int = 0) -> Any:
        if {self.axes[tensor] for tensor in tensors} != {0, NOWHERE} or dim % max(each.ndim for each in tensors) == 0:
            return NotImplemented
        return torch.cat([self._with_rows(tensor, tensor.shape) for tensor in tensors], dim)

    def elementwise(self, func: Callable[..., Any], one: Any, other: Any) -> Any:
        """A function of two tensors, one of which has the examples and the other is broadcast over them."""
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            return NotImplemented
        if {self.axes[one], self.axes[other]} != {0, NOWHERE}:
            return NotImplemented
        with_examples, weight = (one, other) if self.axes[other] is NOWHERE else (other, one)
        # Only where the examples stay in dimension 0 of what both are broadcast to.
        if not weight.requires_grad or with_examples.ndim < weight.ndim or with_examples.ndim == 0:
            return NotImplemented
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        if shape[0] != with_examples.shape[0]:
            return NotImplemented
        return func(*(self._with_rows(tensor, shape) for tensor in (one, other)))

    def _with_rows(self, tensor: Tensor, shape: torch.Size) -> Tensor:
        is_weight = tensor.requires_grad and self.axes[tensor] is NOWHERE
        return self._broadcast(tensor, shape) if is_weight else tensor

    def _broadcast(self, weight: Tensor, shape: torch.Size) -> Tensor:
        rows: Tensor = Broadcast.apply(weight, shape, self.split)
        return rows

    def _compute_dtype(self, x: Tensor) -> torch.dtype:
        """What autocast makes of the inputs of a matrix product."""
        device, dtype = x.device.type, x.dtype
        if torch.is_autocast_enabled(device) and dtype is not torch.float64:
            dtype = torch.get_autocast_dtype(device)
        self.low_precision |= dtype in (torch.bfloat16, torch.float16)
        return dtype

    def _splits(self, x: Tensor, *weights: Tensor | None) -> bool:
        return self.axes[x] == 0 and any(weight is not None and weight.requires_grad for weight in weights)


def _each(value: Any, count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value) * (count // len(value))


def _elementwise(func: Callable[..., Any]) -> Callable[..., Any]:
    def rule(recorder: Recorder, one: Any, other: Any) -> Any:
        return recorder.elementwise(func, one, other)

    return rule


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.linear: Recorder._linear,
    torch.addmm: Recorder._addmm,
    torch.matmul: Recorder._matmul,
    Tensor.matmul: Recorder._matmul,
    F.layer_norm: Recorder._layer_norm,
    F.rms_norm: Recorder._rms_norm,
    F.embedding: Recorder._embedding,
    F.conv1d: Recorder._convolution,
    F.conv2d: Recorder._convolution,
    torch.cat: Recorder._cat,
    **{
        func: _elementwise(func)
        for name in ("add", "sub", "mul", "div")
        for func in (getattr(torch, name), getattr(Tensor, name), getattr(Tensor, f"{name}_"))
    },
}
#: Function to its rule and the keyword arguments that the rule knows.
_RULES = {func: (rule, frozenset(rule.__code__.co_varnames)) for func, rule in _FUNCTIONS.items()}
