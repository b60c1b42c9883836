"""The fused loss: what ``loss.weighted_losses`` computes for ``normalization="full_m"``, in one Triton kernel.

One program a row. A first pass over the row's blocks keeps the running maximum and the sum of exponentials (online
softmax, arXiv:1805.02867), all in float32; from them come loss, membership and weight; a second pass writes
∂(w_i ℓ_i)/∂z_i. Writing the gradient in the forward pass follows Liger-Kernel (arXiv:2410.10989).

Launches on a GPU: forward, one Triton kernel and two ``sum``s over what it wrote for each row, one of counts and one of
losses, after a fill where γ comes as a number; backward, one multiplication of the stored gradient by the rows'
upstream gradients. No atomics, so the same input gives the same bits. γ is read from the device, so that another γ
neither waits nor compiles, and a CUDA graph can be replayed with it.

Importing this needs Triton, which only ``dsgd.loss`` does, and only where it is to be used. With ``TRITON_INTERPRET=1``
set before the first import of Triton, the kernel runs in its interpreter, on the CPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import FunctionCtx

#: Whether Triton interprets, as it decided when it was imported: then its own functions are not for compiling either.
INTERPRETED = not isinstance(tl.sum, triton.JITFunction)

_MOST_COLUMNS = 8192  # of a block: 16 warps hold it in registers


def fused_losses(
    logits: Tensor, labels: Tensor, gamma: float | Tensor, ignore_index: int, label_smoothing: float, strict: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weighted losses, membership of C and statistics of rows of logits; checks nothing, waits for nothing.

    Against the reference: a label outside [0, K) makes its loss NaN (and so counts as non-finite) where the reference
    would stop the device; gradients cannot be differentiated again.

    Args:
        logits: (n, K) float32, bfloat16 or float16, any strides.
        labels: (n,) int64.
        gamma: γ_t, a number or a 0-d tensor on the logits' device.
        ignore_index: the label of examples that count nowhere.
        label_smoothing: in [0, 1).
        strict: whether an example whose true class shares the highest logit is wrong; else the first index decides.

    Returns:
        Losses (n,) float32, differentiable; is_correct (n,) bool; counts (4,) int64 of wrong, correct, tied and
        non-finite examples; unweighted loss sums (2,) float32 of the wrong and of the correct ones.
    """
    if not isinstance(gamma, Tensor):
        gamma = torch.full((), gamma, dtype=torch.float32, device=logits.device)  # a fill: nothing is copied
    with_gradient = torch.is_grad_enabled() and logits.requires_grad
    losses, is_correct, counts, sums, _ = _forward(
        logits, labels, gamma.detach(), ignore_index, label_smoothing, strict, with_gradient
    )
    return losses, is_correct, counts.sum(dim=0), sums.sum(dim=0)


@torch.library.custom_op("dsgd::weighted_losses", mutates_args=())
def _forward(
    logits: Tensor,
    labels: Tensor,
    gamma: Tensor,
    ignore_index: int,
    label_smoothing: float,
    strict: bool,
    with_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Losses, is_correct, counts (n, 4), sums (n, 2), and the losses' gradient (n, K), or (0, K) where not wanted."""
    outputs = _outputs(logits, with_gradient)
    rows, columns = logits.shape
    block = min(max(triton.next_power_of_2(columns), 16), _MOST_COLUMNS)
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _kernel[(rows,)](
            logits,
            labels,
            gamma,
            *outputs,
            columns,
            logits.stride(0),
            logits.stride(1),
            labels.stride(0),
            ignore_index,
            label_smoothing,
            smoothed=label_smoothing > 0,
            strict=strict,
            with_gradient=with_gradient,
            block=block,
            num_warps=min(max(block // 512, 1), 16),
        )
    return outputs


def _outputs(logits: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, columns = logits.shape
    return (
        logits.new_empty(rows, dtype=torch.float32),
        logits.new_empty(rows, dtype=torch.bool),
        logits.new_empty((rows, 4), dtype=torch.int32),
        logits.new_empty((rows, 2), dtype=torch.float32),
        # In float32 for half precision too: it is rounded once, when it is scaled, and loss scaling finds it whole.
        logits.new_empty((rows if with_gradient else 0, columns), dtype=torch.float32),
    )


def _remember(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # else zeros (n, K) for an output that nobody differentiates
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(output[4])
    ctx.dtype = inputs[0].dtype  # type: ignore[attr-defined]


def _backward(ctx: FunctionCtx, upstream: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # create_graph=True would silently take the gradient for a constant
        raise RuntimeError("the fused loss has no second derivative; ask for backend='reference'")
    (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
    scaled = None if upstream is None else _scale(gradient, upstream, ctx.dtype)  # type: ignore[attr-defined]
    return (scaled, *(None,) * 6)


@torch.library.custom_op("dsgd::scale_rows", mutates_args=())
def _scale(gradient: Tensor, upstream: Tensor, dtype: torch.dtype) -> Tensor:
    """``gradient`` (n, K) times ``upstream`` (n,), computed in float32 and rounded once."""
    return torch.mul(gradient, upstream[:, None], out=gradient.new_empty(gradient.shape, dtype=dtype))


_forward.register_fake(lambda logits, *rest: _outputs(logits, rest[-1]))
_forward.register_autograd(_backward, setup_context=_remember)
_scale.register_fake(lambda gradient, _, dtype: torch.empty_like(gradient, dtype=dtype))


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(
    logits: tl.tensor,
    labels: tl.tensor,
    gamma: tl.tensor,
    losses: tl.tensor,
    is_correct: tl.tensor,
    counts: tl.tensor,
    sums: tl.tensor,
    gradient: tl.tensor,
    columns: int,
    row_stride: int,
    column_stride: int,
    label_stride: int,
    ignore_index: int,
    smoothing: float,
    smoothed: tl.constexpr,
    strict: tl.constexpr,
    with_gradient: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One row: its loss, membership, weight, statistics and gradient. Here tensors are pointers."""
    row = tl.program_id(0).to(tl.int64)  # row * stride passes 2^31 at 16,384 rows of 131,072 classes
    label = tl.load(labels + row * label_stride)
    valid = label != ignore_index
    logits += row * row_stride
    in_range = (label >= 0) & (label < columns)
    true = tl.load(logits + label * column_stride, mask=in_range, other=float("nan")).to(tl.float32)
    shift, others, below, higher, equal, earlier, finite, nan = _scan(
        logits, columns, column_stride, label, true, smoothed, block
    )

    # ℓ = log Σ exp(z − shift) + (shift − z_y): both at least 0, and precise also where the true class has p ≈ 1.
    own = tl.exp(true - shift)
    total = others + own
    loss = tl.where(own == 1.0, _log1p(others), tl.log(total)) + (1 - smoothing) * (shift - true)
    if smoothed:
        loss += smoothing * (below / columns)

    at_top = valid & (higher == 0) & (nan == 0) & (equal > 0)  # nothing equals a NaN, which is therefore wrong
    tied = at_top & (equal > 1)
    correct = at_top & ((equal == 1) if strict else (earlier == 0))
    wrong = valid & (correct == 0)
    all_finite = (finite == columns) & (tl.abs(loss) < float("inf"))
    nonfinite = valid & (all_finite == 0)
    weight = tl.where(correct, tl.load(gamma).to(tl.float32), 1.0)

    tl.store(losses + row, tl.where(valid, weight * loss, 0.0))
    tl.store(is_correct + row, correct)
    tl.store(counts + row * 4, wrong.to(tl.int32))
    tl.store(counts + row * 4 + 1, correct.to(tl.int32))
    tl.store(counts + row * 4 + 2, tied.to(tl.int32))
    tl.store(counts + row * 4 + 3, nonfinite.to(tl.int32))
    tl.store(sums + row * 2, tl.where(wrong, loss, 0.0))  # not by a factor: a NaN stays out of the other group
    tl.store(sums + row * 2 + 1, tl.where(correct, loss, 0.0))

    if with_gradient:
        share = smoothing / columns
        at_label = smoothing - share - others / total  # p_y − 1 without the cancellation
        for start in range(0, columns, block):
            k = start + tl.arange(0, block)
            inside = k < columns
            z = tl.load(logits + k.to(tl.int64) * column_stride, mask=inside, other=0.0).to(tl.float32)
            slope = tl.where(k == label, at_label, tl.exp(z - shift) / total - share)
            tl.store(gradient + row * columns + k, tl.where(valid, weight * slope, 0.0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _scan(
    logits: tl.tensor,
    columns: int,
    column_stride: int,
    label: int,
    true: float,
    smoothed: tl.constexpr,
    block: tl.constexpr,
) -> tuple[float, float, float, int, int, int, int, int]:
    """What one row's loss needs, of the logits at ``logits`` and the true class's, ``true``.

    The sums are relative to ``shift``, the highest logit so far, and all their terms of one sign, so that nothing
    cancels: ``others``, the exponentials of all but the true class, and ``below``, the distances from ``shift``. The
    counts: logits higher than the true class's, equal to it (itself included), equal and earlier, finite, NaN.
    """
    top = true
    shift = tl.where(top == float("-inf"), 0.0, top)  # −∞ − (−∞) would be NaN
    others = 0.0
    below = 0.0
    higher = 0
    equal = 0
    earlier = 0
    finite = 0
    nan = 0
    for start in range(0, columns, block):
        k = start + tl.arange(0, block)
        inside = k < columns
        z = tl.load(logits + k.to(tl.int64) * column_stride, mask=inside, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(z, axis=0))
        new_shift = tl.where(top == float("-inf"), 0.0, top)
        others = others * tl.exp(shift - new_shift) + tl.sum(tl.where(k == label, 0.0, tl.exp(z - new_shift)), axis=0)
        if smoothed:
            below += tl.where(start > 0, start * (new_shift - shift), 0.0)  # 0 · ∞ would be NaN
            below += tl.sum(tl.where(inside, new_shift - z, 0.0), axis=0)
        shift = new_shift
        same = inside & (z == true)
        higher += tl.sum((z > true).to(tl.int32), axis=0)
        equal += tl.sum(same.to(tl.int32), axis=0)
        earlier += tl.sum((same & (k < label)).to(tl.int32), axis=0)
        finite += tl.sum((tl.abs(z) < float("inf")).to(tl.int32), axis=0)
        nan += tl.sum((z != z).to(tl.int32), axis=0)
    return shift, others, below, higher, equal, earlier, finite, nan


@triton.jit  # type: ignore[untyped-decorator]
def _log1p(x: tl.tensor) -> tl.tensor:
    """log(1 + x) for a float32 x >= 0, which Triton's language lacks: Goldberg 1991, theorem 4."""
    u = 1.0 + x
    return tl.where(u == 1.0, x, tl.log(u) * (x / tl.where(u == 1.0, 1.0, u - 1.0)))
