"""What an operation's backward does with the rows of two groups: one ``autograd.Function`` per kind of operation.

Each computes the very output of the operation that it stands for. Its backward gives the input's gradient as ever, and
in place of the weight's it hands each group's to a ``Split``: from the rows of the group's examples alone, so all
groups together cost the multiplications of one ordinary backward. Where the split does not apply, because there is
none or because the rows are no multiple of the examples, the backward is the ordinary one.

``ctx`` carries what ``GroupGradients`` reads of a node: ``weights`` by position, ``data_inputs`` (how many of the
leading arguments are data, 0 or 1), ``leading`` (rows of the output's first dimension) and ``split``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

native = torch.ops.aten


class Split:
    """How the backward under way divides the rows, and what has come of it."""

    def __init__(self) -> None:
        self.examples = 0  # 0: no split, every node's backward is the ordinary one
        self.rows: list[Tensor] = []  # of each group, the numbers of its examples
        self.member = torch.zeros(0, dtype=torch.int64)  # (examples,), each example's group
        self.wanted: set[int] = set()  # ids of the weights that count
        self.found: dict[int, list[Tensor]] = {}  # id of a weight -> each group's gradient
        self._shared: tuple[Any, list[Tensor]] | None = None

    def begin(self, rows: list[Tensor], member: Tensor, wanted: set[int]) -> None:
        """From now on a backward splits; ``member`` may be any group for examples whose gradient is 0."""
        self.examples, self.rows, self.member, self.wanted, self.found = len(member), rows, member, wanted, {}

    def end(self) -> dict[int, list[Tensor]]:
        """From now on a backward is ordinary; returns what was found."""
        self.examples, self._shared = 0, None
        found, self.found = self.found, {}
        return found

    def wants(self, weights: Sequence[Tensor | None]) -> list[bool]:
        """Which of ``weights`` count."""
        return [id(weight) in self.wanted for weight in weights]

    def applies(self, leading: int, examples: int | None = None) -> bool:
        """Whether a tensor with ``leading`` rows is divided among the examples."""
        examples = self.examples if examples is None else examples
        return examples > 0 and leading % examples == 0

    def parts(self, tensor: Tensor, width: int, key: object = None) -> list[Tensor]:
        """Each group's rows, as matrices of ``width`` columns; successive calls with one ``key`` share the copies."""
        if key is not None and self._shared is not None and self._shared[0] is key:
            return self._shared[1]
        whole = tensor.reshape(self.examples, -1)
        parts = [self._take(whole, rows).view(-1, width) for rows in self.rows]
        if key is not None:
            self._shared = key, parts
        return parts

    def sums(self, tensor: Tensor) -> Tensor:
        """Each group's sum over examples of ``tensor`` (examples, width): (groups, width)."""
        indicator = self.member == torch.arange(len(self.rows), device=tensor.device)[:, None]
        return indicator.to(tensor.dtype) @ tensor

    def add(self, weight: Tensor, gradients: Sequence[Tensor]) -> None:
        """Each group's gradient of ``weight``, in its dtype; those of several calls add up."""
        new = [gradient.to(weight.dtype) for gradient in gradients]
        old = self.found.get(id(weight))
        self.found[id(weight)] = new if old is None else [add(*pair) for pair in zip(old, new, strict=True)]

    def _take(self, whole: Tensor, rows: Tensor) -> Tensor:
        return whole if len(rows) == self.examples else whole.index_select(0, rows)


def add(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two tensors, either of which may be sparse."""
    return other + one if one.is_sparse and not other.is_sparse else one + other


class Linear(torch.autograd.Function):
    """``F.linear(x, weight, bias)``, computed from ``low_x`` and ``low_weight``, the same in the compute dtype."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        low_x: Tensor,
        low_weight: Tensor,
        split: Split,
        key: object,
    ) -> Tensor:
        ctx.split, ctx.key, ctx.weights = split, key, (weight, bias)
        ctx.data_inputs, ctx.leading, ctx.x_dtype = 1, x.shape[0], x.dtype
        ctx.save_for_backward(low_x, low_weight)
        return F.linear(low_x, low_weight, None if bias is None else bias.detach().to(low_x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, weight = ctx.saved_tensors
        (n_out, n_in), rows = weight.shape, gradient.reshape(-1, weight.shape[0])
        of_x = (rows @ weight).view(x.shape).to(ctx.x_dtype) if ctx.needs_input_grad[0] else None
        if not ctx.split.applies(ctx.leading):
            wants_weight, wants_bias = ctx.needs_input_grad[1:3]
            of_weight = rows.t() @ x.reshape(-1, n_in) if wants_weight else None
            return of_x, of_weight, rows.sum(0) if wants_bias else None, None, None, None, None
        wants_weight, wants_bias = ctx.split.wants(ctx.weights)
        if not wants_weight and not wants_bias:
            return of_x, None, None, None, None, None, None
        parts = ctx.split.parts(gradient, n_out)
        if wants_weight:
            inputs = ctx.split.parts(x, n_in, ctx.key)
            ctx.split.add(ctx.weights[0], [part.t() @ rows for part, rows in zip(parts, inputs, strict=True)])
        if wants_bias:
            ctx.split.add(ctx.weights[1], [part.sum(0) for part in parts])
        return of_x, None, None, None, None, None, None


class LayerNorm(torch.autograd.Function):
    """``F.layer_norm``."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: list[int], eps: float, split: Split
    ) -> Tensor:
        ctx.split, ctx.weights, ctx.data_inputs, ctx.leading = split, (weight, bias), 1, x.shape[0]
        ctx.shape, ctx.x_dtype = shape, x.dtype
        output, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(x.to(output.dtype), mean, rstd, weight, bias)  # autocast may have widened it
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, mean, rstd, weight, bias = ctx.saved_tensors
        wants = list(ctx.needs_input_grad[:3])
        whole = (gradient.contiguous(), x, ctx.shape, mean, rstd, weight, bias)
        if not ctx.split.applies(ctx.leading):
            of_x, of_weight, of_bias = native.native_layer_norm_backward(*whole, wants)
            return of_x if of_x is None else of_x.to(ctx.x_dtype), of_weight, of_bias, None, None, None
        of_x = native.native_layer_norm_backward(*whole, [True, False, False])[0].to(ctx.x_dtype) if wants[0] else None
        wants = ctx.split.wants(ctx.weights)
        width = weight.numel()
        parts = [ctx.split.parts(*of) for of in ((gradient, width), (x, width), (mean, 1), (rstd, 1))]
        found = [
            native.native_layer_norm_backward(
                g, rows, [width], m, r, weight.view(-1), bias if bias is None else bias.view(-1), [False, *wants]
            )
            for g, rows, m, r in zip(*parts, strict=True)
        ]
        for position in (0, 1):
            if wants[position]:
                ctx.split.add(ctx.weights[position], [of[1 + position].view(weight.shape) for of in found])
        return of_x, None, None, None, None, None


class Embedding(torch.autograd.Function):
    """``F.embedding`` without any of its options but ``padding_idx``; the groups' gradients are sparse."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int, split: Split) -> Tensor:  # noqa: D102
        ctx.split, ctx.weights, ctx.data_inputs, ctx.leading = split, (weight,), 0, ids.shape[0]
        ctx.padding = padding
        ctx.save_for_backward(ids)
        return F.embedding(ids, weight, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        (ids,), (weight,), split = ctx.saved_tensors, ctx.weights, ctx.split
        if not split.applies(ctx.leading):
            dense = native.embedding_dense_backward(gradient, ids, weight.shape[0], ctx.padding, False)
            return dense, None, None, None
        distinct, position = ids.reshape(-1).unique(return_inverse=True)
        group = split.member.repeat_interleave(ids.numel() // split.examples)
        sums = gradient.new_zeros(len(split.rows) * len(distinct), weight.shape[1])
        sums.index_add_(0, position + group * len(distinct), gradient.reshape(-1, weight.shape[1]))
        values = sums.view(len(split.rows), len(distinct), -1)
        if ctx.padding >= 0:
            values.mul_((distinct != ctx.padding)[:, None])
        split.add(weight, [_sparse(distinct, of_group, weight) for of_group in values])
        return None, None, None, None


def _sparse(ids: Tensor, values: Tensor, like: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(ids[None], values, like.shape, is_coalesced=True, check_invariants=False)


class Convolution(torch.autograd.Function):
    """A convolution; ``settings`` are stride, padding, dilation and groups as ``aten::convolution`` takes them."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        low_x: Tensor,
        low_weight: Tensor,
        settings: tuple[list[int], list[int], list[int], int],
        split: Split,
    ) -> Tensor:
        ctx.split, ctx.weights, ctx.data_inputs, ctx.leading = split, (weight, bias), 1, x.shape[0]
        ctx.settings, ctx.x_dtype = settings, x.dtype
        ctx.save_for_backward(low_x, low_weight)
        low_bias = None if bias is None else bias.detach().to(low_x.dtype)
        stride, padding, dilation, groups = settings
        none = [0] * len(stride)
        return torch.convolution(low_x, low_weight, low_bias, stride, padding, dilation, False, none, groups)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, weight = ctx.saved_tensors
        wants = list(ctx.needs_input_grad[:3])
        if not ctx.split.applies(ctx.leading):
            of_x, of_weight, of_bias = _convolved(gradient, x, weight, ctx.settings, wants)
            return of_x if of_x is None else of_x.to(ctx.x_dtype), of_weight, of_bias, None, None, None, None
        of_x = None
        if wants[0]:
            of_x = _convolved(gradient, x, weight, ctx.settings, [True, False, False])[0].to(ctx.x_dtype)
        wants = ctx.split.wants(ctx.weights)
        pairs = [ctx.split.parts(of, of[0].numel()) for of in (gradient, x)]
        found = [
            _convolved(g.view(-1, *gradient.shape[1:]), rows.view(-1, *x.shape[1:]), weight, ctx.settings,
                       [False, *wants])
            for g, rows in zip(*pairs, strict=True)
        ]  # fmt: skip
        for position in (0, 1):
            if wants[position]:
                ctx.split.add(ctx.weights[position], [of[1 + position] for of in found])
        return of_x, None, None, None, None, None, None


def _convolved(gradient: Tensor, x: Tensor, weight: Tensor, settings: Any, wants: list[bool]) -> Any:
    stride, padding, dilation, groups = settings
    none, biases = [0] * len(stride), [weight.shape[0]]
    return native.convolution_backward(
        gradient, x, weight, biases, stride, padding, dilation, False, none, groups, wants
    )


class Broadcast(torch.autograd.Function):
    """``weight.expand(shape)``: where a tensor that knows no examples meets one whose rows are theirs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, shape: torch.Size, split: Split) -> Tensor:  # noqa: D102
        ctx.split, ctx.weights, ctx.data_inputs, ctx.leading = split, (weight,), 0, shape[0]
        return weight.expand(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        (weight,), split = ctx.weights, ctx.split
        if not split.applies(ctx.leading):
            return gradient.sum_to_size(weight.shape), None, None
        shape = (1,) * (gradient.ndim - weight.ndim) + weight.shape
        spread = [dim for dim in range(1, gradient.ndim) if shape[dim] == 1 and gradient.shape[dim] > 1]
        rows = gradient.sum(spread) if spread else gradient  # (leading, the weight's own dimensions)
        if shape[0] == 1:
            found = split.sums(rows.reshape(split.examples, ctx.leading // split.examples, -1).sum(1))
        else:  # one row of the weight for each of the examples' rows
            mask = split.member == torch.arange(len(split.rows), device=rows.device)[:, None]
            found = rows.reshape(split.examples, -1) * mask[..., None]
        split.add(weight, [of_group.reshape(weight.shape) for of_group in found])
        return None, None, None
