"""Control of DSGD: the less sure the model is of the true class, the more an example weighs."""

import torch
from torch import Tensor

from dsgd.loss import plain_losses
from dsgd.methods.contracts import LossOutput, Step


class Confidence:
    """Cross-entropy times 1 - p, with p the softmax probability of the true class, as a constant of the gradient.

    Graded where DSGD's weights are hard, the same at every step, and blind to who wins: it is focal loss with γ = 1
    without the gradient through 1 - p.
    """

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``dsgd.loss.plain_losses`` does."""
        losses, is_correct, statistics = plain_losses(logits, labels)
        weights = -torch.expm1(-losses.detach())
        return LossOutput(losses * weights, is_correct, {**statistics, "confidence/weight": weights.sum()})
