"""The loss of dynamic scaled gradient descent, in plain PyTorch: the arithmetic that every other form must match.

On CUDA devices ``dsgd.triton_loss`` does the same in one kernel; which of the two computes is decided here.

Source: arXiv 2604.27987, section 3 and Algorithm 2. A batch of m examples falls into W, those that the current logits
misclassify, and C, those that they classify correctly; the update follows (G_W + γ_t G_C)/m. The same gradient comes
out of one backward pass of (1/m) Σ w_i ℓ_i with w_i = 1 on W and γ_t on C. Membership is piecewise constant in the
logits, so treating w as a constant loses nothing.

Shapes: ``n`` examples, ``K`` classes; ``m`` counts the labels that are not ignored, over a whole optimiser step.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dsgd.methods.contracts import LossOutput, Statistics
from dsgd.schedules import Schedule

#: ``wrong``: an example whose true class only shares the highest logit is in W; ``argmax``: the first index decides,
#: as the paper's text reads. They differ where logits are exactly equal: zero heads, collapsed models, bf16.
Ties = Literal["wrong", "argmax"]

#: What Σ w_i ℓ_i is divided by: m (the method), Σ w_i, or each group's own size (ablations with another step size).
Normalization = Literal["full_m", "sum_w", "per_group"]

#: Who computes: the fused kernel of ``triton_loss``, the PyTorch below, or (``auto``) the kernel where logits are on a
#: CUDA device, Triton is installed and the kernel knows the options. They agree within rounding.
Backend = Literal["auto", "triton", "reference"]

#: The label of examples that count nowhere.
IGNORED = -100

_TIES = ("wrong", "argmax")
_NORMALIZATIONS = ("full_m", "sum_w", "per_group")
_BACKENDS = ("auto", "triton", "reference")

#: In the order of both backends: four counts, two sums.
_STATISTICS = ("wrong", "correct", "ties", "nonfinite", "loss_wrong", "loss_correct")

_HAS_TRITON = find_spec("triton") is not None  # it comes with PyTorch's CUDA builds for Linux


class DSGDLoss(nn.Module):
    """The loss in the place of ``nn.CrossEntropyLoss``; it only wants to know the optimiser step as well.

    ::

        criterion = DSGDLoss(LinearSchedule(total_steps))
        for step, (inputs, labels) in enumerate(loader, start=1):
            loss = criterion(model(inputs), labels, step=step)

    In code compiled by ``torch.compile``, ``step`` may be a constant (with ``dynamic=False``, or counted in a module's
    attribute), and each new one is compiled until the limit of 8 is reached; pass γ to ``dsgd_loss`` as a 0-d tensor
    there, or leave the loss outside.

    After a call, ``statistics`` holds its counts and sums (see ``weighted_losses``). Watch its ``nonfinite`` whenever
    you log, or let ``check_finite`` raise a ``FloatingPointError`` at once, for one wait for the device a step.

    Raises:
        ValueError: an option is outside its range.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        label_smoothing: float = 0.0,
        ties: Ties = "wrong",
        normalization: Normalization = "full_m",
        ignore_index: int = IGNORED,
        check_finite: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        _check_options(label_smoothing, ties, normalization, backend)
        self.schedule = schedule
        self.label_smoothing = label_smoothing
        self.ties: Ties = ties
        self.normalization: Normalization = normalization
        self.ignore_index = ignore_index
        self.check_finite = check_finite
        self.backend: Backend = backend
        self.statistics: Statistics = {}

    def forward(self, logits: Tensor, labels: Tensor, step: int, m: int | Tensor | None = None) -> Tensor:
        """The scalar loss of ``logits`` (n, K) against ``labels`` (n,) at the 1-based optimiser step ``step``.

        With gradient accumulation pass ``m``, as ``dsgd_loss`` explains, and keep ``step`` for the whole window.
        """
        loss, self.statistics = dsgd_loss(
            logits,
            labels,
            self.schedule(step),
            m,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            ties=self.ties,
            normalization=self.normalization,
            backend=self.backend,
        )
        if self.check_finite and self.statistics["nonfinite"]:  # waits for the device
            raise FloatingPointError(f"{int(self.statistics['nonfinite'])} non-finite losses or logits at step {step}")
        return loss


def dsgd_loss(
    logits: Tensor,
    labels: Tensor,
    gamma: float | Tensor,
    m: int | Tensor | None = None,
    *,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    ties: Ties = "wrong",
    normalization: Normalization = "full_m",
    backend: Backend = "auto",
) -> tuple[Tensor, Statistics]:
    """The scalar Σ w_i ℓ_i / m and the statistics of this call.

    Args:
        logits: (n, K), as in ``weighted_losses``, which also explains the other options.
        labels: (n,) int64.
        gamma: γ_t.
        m: the divisor. None takes the valid labels of this call, and loss 0 where there are none. A batch that is
            split into micro-batches or over processes passes the number of valid labels of all parts together;
            the parts' losses then add up to the loss of the whole.
        ignore_index: the label of examples that count nowhere.
        label_smoothing: in [0, 1).
        ties: the tie rule.
        normalization: the divisor's ablations.
        backend: who computes.

    Returns:
        A 0-d loss, float64 for float64 logits and float32 otherwise, and detached statistics.

    Raises:
        ValueError: a shape or an option is outside its range.
        TypeError: the logits are not floating-point, or the labels not int64.
    """
    if isinstance(m, int) and m < 1:
        raise ValueError(f"m = {m}: must be at least 1, the number of valid labels of the optimiser step")
    losses, _, statistics = weighted_losses(
        logits,
        labels,
        gamma,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        ties=ties,
        normalization=normalization,
        backend=backend,
    )
    if m is None:
        m = (statistics["wrong"] + statistics["correct"]).clamp(min=1)
    return losses.sum() / m, statistics


def weighted_losses(
    logits: Tensor,
    labels: Tensor,
    gamma: float | Tensor,
    *,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    ties: Ties = "wrong",
    normalization: Normalization = "full_m",
    judge: Tensor | None = None,
    backend: Backend = "auto",
) -> LossOutput:
    """Per-example losses w_i ℓ_i, to be summed over an optimiser step and divided once by its m.

    Nothing here waits for the device. With ``gamma=1`` and ``full_m`` the reference's losses and their gradients are
    those of plain cross-entropy, bit for bit.

    Args:
        logits: (n, K), K >= 2; half precision is raised to float32 before anything is computed, ties included.
        labels: (n,) int64 in [0, K), or ``ignore_index``.
        gamma: γ_t in [0, 1], a number or a 0-d tensor on the logits' device, whose range is not checked. Only the
            tensor is never a constant of compiled code.
        ignore_index: the label of examples that are in neither group: weight, loss and gradient are exactly 0.
        label_smoothing: in [0, 1); it changes ℓ but not the groups, which the hard label decides.
        ties: the tie rule, see ``Ties``.
        normalization: see ``Normalization``; the ablations' weights already contain this call's m, to cancel the
            later division, and are therefore only right where one call sees the whole optimiser step.
        judge: (n, K) logits that decide W and C in the place of ``logits``, as those of a pass without dropout.
        backend: see ``Backend``.

    Returns:
        Losses (n,), float64 for float64 logits and float32 otherwise; ``is_correct`` (n,) bool, membership of C; and
        detached 0-d statistics that add up over micro-batches and processes: the counts ``wrong``, ``correct``,
        ``ties`` (examples whose true class shares the highest logit) and ``nonfinite`` (valid examples with a NaN or
        an infinity among the logits or as the loss), int64, and the unweighted loss of each group,
        ``loss_wrong`` and ``loss_correct``, float32.

    Raises:
        ValueError: a shape or an option is outside its range, or the kernel is forced where it cannot serve.
        TypeError: the logits are not floating-point, or the labels not int64.
    """
    _check_options(label_smoothing, ties, normalization, backend)
    _check_gamma(gamma)
    _check_inputs(logits, labels)
    if _is_fused(backend, logits, normalization, judge):
        return _fused(logits, labels, gamma, ignore_index, label_smoothing, ties)
    losses, is_correct, statistics = plain_losses(
        logits, labels, ignore_index=ignore_index, label_smoothing=label_smoothing, ties=ties, judge=judge
    )
    with torch.no_grad():
        is_wrong = (labels != ignore_index) & ~is_correct
        weights = _weights(is_wrong.to(losses.dtype), is_correct.to(losses.dtype), gamma, normalization)
    return LossOutput(losses * weights, is_correct, statistics)


def plain_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    ties: Ties = "wrong",
    judge: Tensor | None = None,
) -> LossOutput:
    """What every loss starts from: plain cross-entropy, membership of C, and the statistics of ``weighted_losses``.

    Arguments, results and errors are those of ``weighted_losses`` too, with all weights 1.
    """
    _check_inputs(logits, labels)
    valid = labels != ignore_index
    scores = raised(logits, valid)
    losses = cross_entropy(scores, labels, reduction="none", ignore_index=ignore_index, label_smoothing=label_smoothing)
    with torch.no_grad():
        is_correct, is_tied = is_correct_and_tied(
            scores if judge is None else raised(judge, valid), labels, valid, ties
        )
        is_finite = scores.isfinite().all(dim=1) & losses.isfinite()
        statistics = _statistics(losses, valid & ~is_correct, is_correct, is_tied, is_finite)
    return LossOutput(losses, is_correct, statistics)


def raised(logits: Tensor, valid: Tensor) -> Tensor:
    """The logits (n, K) that are computed with: float32 in the place of half precision, and 0 where not ``valid``.

    Cross-entropy alone would still send a NaN gradient into an ignored row that holds a NaN (0 · NaN).
    """
    scores = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return scores.masked_fill(~valid[:, None], 0.0)


def by_label(values: Tensor, labels: Tensor) -> Tensor:
    """The value of each example's class: (n,) from ``values`` (K,), and 0 where the label is ``IGNORED``."""
    return values[labels.clamp(min=0)].masked_fill(labels == IGNORED, 0.0)


def is_correct_and_tied(scores: Tensor, labels: Tensor, valid: Tensor, ties: Ties) -> tuple[Tensor, Tensor]:
    """Who is in C, and whose true class shares the highest score: two (n,) bool tensors, False where not ``valid``.

    The one place that decides. A row with a NaN is never correct, although ``argmax`` would point at the NaN:
    the maximum is NaN too, which equals nothing.

    Args:
        scores: (n, K).
        labels: (n,) int64; only those that are ``valid`` are looked at.
        valid: (n,) bool.
        ties: the tie rule.
    """
    labels = labels.masked_fill(~valid, 0)  # -100 is no column
    true = scores.gather(1, labels[:, None])
    at_top = (true.squeeze(1) == scores.amax(dim=1)) & valid
    tied = at_top & ((scores == true).sum(dim=1) > 1)
    winner = ~tied if ties == "wrong" else scores.argmax(dim=1) == labels
    return at_top & winner, tied


def _is_fused(backend: Backend, logits: Tensor, normalization: Normalization, judge: Tensor | None) -> bool:
    """Whether the kernel computes this call; a ``ValueError`` where it is forced and cannot."""
    if backend == "reference" or (backend == "auto" and not logits.is_cuda):
        return False
    obstacle = _obstacle(logits, normalization, judge)
    if backend == "triton" and obstacle is not None:
        raise ValueError(f"backend = 'triton': {obstacle}; use 'auto' or 'reference'")
    return obstacle is None


def _obstacle(logits: Tensor, normalization: Normalization, judge: Tensor | None) -> str | None:
    """Why the kernel cannot compute this call, or None where it can."""
    if normalization != "full_m":
        return f"normalization = {normalization!r} weighs by sums over the batch, which the kernel does not see"
    if judge is not None:
        return "the kernel lets no other logits judge"
    if logits.dtype == torch.float64:
        return "the kernel computes in float32, the logits are float64"
    if not _HAS_TRITON:
        return "Triton is not installed"
    if not logits.is_cuda:
        from dsgd.triton_loss import INTERPRETED

        if not INTERPRETED:
            return f"the logits are on {logits.device}, where Triton needs TRITON_INTERPRET=1 from the start"
    return None


def _fused(
    logits: Tensor, labels: Tensor, gamma: float | Tensor, ignore_index: int, label_smoothing: float, ties: Ties
) -> LossOutput:
    from dsgd.triton_loss import fused_losses  # an optional dependency

    losses, is_correct, counts, sums = fused_losses(
        logits, labels, gamma, ignore_index, label_smoothing, strict=ties == "wrong"
    )
    return LossOutput(losses, is_correct, dict(zip(_STATISTICS, (*counts.unbind(), *sums.unbind()), strict=True)))


def _weights(wrong: Tensor, correct: Tensor, gamma: float | Tensor, normalization: Normalization) -> Tensor:
    """Weights (n,) from the groups' 0/1 indicators (n,), in the losses' dtype; an ignored example is in neither."""
    weights = wrong + gamma * correct
    if normalization == "full_m":
        return weights
    m = (wrong + correct).sum()
    if normalization == "sum_w":
        # All weights are 0 where γ = 0 and nothing is wrong; the clamp only ever divides zero.
        return weights * m / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
    return wrong * m / wrong.sum().clamp(min=1) + gamma * correct * m / correct.sum().clamp(min=1)


def _statistics(losses: Tensor, is_wrong: Tensor, is_correct: Tensor, is_tied: Tensor, is_finite: Tensor) -> Statistics:
    counts = (is_wrong.sum(), is_correct.sum(), is_tied.sum(), (~is_finite).sum())
    # Filled rather than multiplied by 0, so that a NaN in one group stays out of the other's sum.
    sums = (losses.masked_fill(~group, 0.0).sum().float() for group in (is_wrong, is_correct))
    return dict(zip(_STATISTICS, (*counts, *sums), strict=True))


def _check_inputs(logits: Tensor, labels: Tensor) -> None:
    # The labels' values are not looked at here: that would wait for the device.
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)}: must be (n, K) with K >= 2 classes, one row per example; "
            "W and C are undefined for regression and for single-logit outputs"
        )
    if not logits.is_floating_point():
        raise TypeError(f"logits of dtype {logits.dtype}: must be floating-point")
    if labels.dtype != torch.int64:
        raise TypeError(
            f"labels of dtype {labels.dtype}: must be int64 class indices; "
            "W and C are undefined for regression, multi-label and soft targets"
        )
    if labels.shape != logits.shape[:1]:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)}: must be ({logits.shape[0]},), one class index per row of logits; "
            "W and C are undefined for multi-label and one-hot targets"
        )


def _check_options(label_smoothing: float, ties: str, normalization: str, backend: str) -> None:
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing = {label_smoothing!r}: must lie in [0, 1)")
    if ties not in _TIES:
        raise ValueError(f"ties = {ties!r}: must be one of {', '.join(_TIES)}")
    if normalization not in _NORMALIZATIONS:
        raise ValueError(f"normalization = {normalization!r}: must be one of {', '.join(_NORMALIZATIONS)}")
    if backend not in _BACKENDS:
        raise ValueError(f"backend = {backend!r}: must be one of {', '.join(_BACKENDS)}")


def _check_gamma(gamma: float | Tensor) -> None:
    if isinstance(gamma, Tensor):
        if gamma.ndim != 0:
            raise ValueError(f"gamma of shape {tuple(gamma.shape)}: must be a number or a 0-d tensor")
    elif not 0 <= gamma <= 1:  # above 1 is the sign of steps and total_steps on different clocks
        raise ValueError(f"gamma = {gamma!r}: must lie in [0, 1]")
