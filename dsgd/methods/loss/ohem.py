"""Online hard example mining: only the highest losses of a window count."""

from fractions import Fraction

import torch
from torch import Tensor

from dsgd.loss import IGNORED, plain_losses
from dsgd.methods.contracts import LossOutput, Step


class OHEM:
    """Cross-entropy averaged over the share ``keep`` of the window's examples with the highest losses.

    Source: Shrivastava et al. 2016, arXiv:1604.03540, without its regions of an image. The mean is over the examples
    that are kept, so each of them weighs m/kept.
    """

    def __init__(self, keep: float) -> None:
        self.keep = keep

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (m, K), the whole window's; raises as ``dsgd.loss.plain_losses`` does."""
        losses, is_correct, statistics = plain_losses(logits, labels)
        with torch.no_grad():
            m = statistics["wrong"] + statistics["correct"]
            kept = number_kept(m, self.keep)
            is_kept = highest(losses, labels != IGNORED, kept)
            weights = is_kept.to(losses.dtype) * m / kept.clamp(min=1)
        kept_wrong = (is_kept & ~is_correct).sum()
        return LossOutput(
            losses * weights, is_correct, {**statistics, "ohem/kept": is_kept.sum(), "ohem/kept_wrong": kept_wrong}
        )


def number_kept(m: Tensor, keep: float) -> Tensor:
    """ceil(keep · m), a 0-d integer tensor; in fractions, because 0.55 · 20 is above 11 in floating point."""
    share = Fraction(str(keep)).limit_denominator(10**6)
    return -(-m * share.numerator).div(share.denominator, rounding_mode="floor")


def highest(losses: Tensor, valid: Tensor, count: Tensor) -> Tensor:
    """Which ``count`` examples have the highest losses, (n,) bool; of equal losses the first, and a NaN before all."""
    order = losses.masked_fill(~valid, -torch.inf).argsort(descending=True, stable=True)
    return (order.argsort() < count) & valid
