"""LDAM with deferred re-weighting: the true class must win by a margin, larger for rarer classes."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dsgd.loss import IGNORED, by_label, is_correct_and_tied, plain_losses, raised
from dsgd.methods.contracts import LossOutput, Step
from dsgd.methods.loss.class_balanced import class_weights, weights_at


class LDAM:
    """Cross-entropy of s(z - Δ), with Δ the margin of the true class at its place, then class-balanced (DRW).

    Source: Cao et al. 2019, arXiv:1906.07413. There z is a cosine in [-1, 1], out of normalised features and weights,
    which needs a scale of 10 to 30. The heads here are linear, and a scale of 30 on their unbounded logits would
    harden the softmax and multiply the gradient by 30. So the scale is 1 and the margins are in logits; a head that
    can grow its logits satisfies them more easily than a cosine can. W and C go by z, without margins.
    """

    def __init__(self, max_margin: float, scale: float, beta: float, deferred: float, class_counts: list[int]) -> None:
        self.scale = scale
        self.deferred = deferred
        self.margins = class_margins(class_counts, max_margin)
        self.weights = class_weights(class_counts, beta)

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``dsgd.loss.plain_losses`` does."""
        plain, valid = plain_losses(logits, labels), labels != IGNORED
        self.margins, self.weights = self.margins.to(plain.losses), self.weights.to(plain.losses)  # copied once
        weights = by_label(weights_at(step, self.weights, self.deferred), labels)
        lowered = with_margins(raised(logits, valid), labels, by_label(self.margins, labels))
        losses = cross_entropy(self.scale * lowered, labels, reduction="none", ignore_index=IGNORED)
        is_clear, _ = is_correct_and_tied(lowered.detach(), labels, valid, "wrong")
        own = {"ldam/weight": weights.sum(), "ldam/within_margin": (plain.is_correct & ~is_clear).sum()}
        return LossOutput(losses * weights, plain.is_correct, {**plain.statistics, **own})


def class_margins(class_counts: list[int], max_margin: float) -> Tensor:
    """Margins ∝ n^(-1/4), the largest ``max_margin``, (K,) float64; a class without examples counts as one."""
    margins = torch.tensor(class_counts, dtype=torch.float64).clamp(min=1) ** -0.25
    return max_margin * margins / margins.max()


def with_margins(scores: Tensor, labels: Tensor, margins: Tensor) -> Tensor:
    """``scores`` (n, K) less ``margins`` (n,) at each example's true class."""
    is_true = torch.arange(scores.shape[1], device=scores.device) == labels[:, None]
    return scores - is_true * margins[:, None]
