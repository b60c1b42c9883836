"""Class-balanced cross-entropy: each class weighs the inverse of its effective number of examples."""

import torch
from torch import Tensor

from dsgd.loss import by_label, plain_losses
from dsgd.methods.contracts import LossOutput, Step


class ClassBalanced:
    """Cross-entropy weighted by (1 - β)/(1 - β^n) of each class's n examples, normalised to the sum K.

    Source: Cui et al. 2019, arXiv:1901.05555; ``deferred`` as in LDAM-DRW, arXiv:1906.07413. The divisor stays m,
    whereas ``torch.nn.functional.cross_entropy`` with weights divides by the weights' sum.
    """

    def __init__(self, beta: float, deferred: float, class_counts: list[int]) -> None:
        self.deferred = deferred
        self.weights = class_weights(class_counts, beta)

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``dsgd.loss.plain_losses`` does."""
        losses, is_correct, statistics = plain_losses(logits, labels)
        self.weights = self.weights.to(losses)  # copied to the device once
        weights = by_label(weights_at(step, self.weights, self.deferred), labels)
        return LossOutput(losses * weights, is_correct, {**statistics, "class_balanced/weight": weights.sum()})


def class_weights(class_counts: list[int], beta: float) -> Tensor:
    """(1 - β)/(1 - β^n) normalised to the sum K, (K,) float64; a class without examples counts as one."""
    counts = torch.tensor(class_counts, dtype=torch.float64).clamp(min=1)
    weights = (1 - beta) / (1 - beta**counts)
    return weights * len(class_counts) / weights.sum()


def weights_at(step: Step, weights: Tensor, deferred: float) -> Tensor:
    """The weights once the share ``deferred`` of the steps is done, rounded to a whole step; ones before."""
    return weights if step.number > round(deferred * step.total) else torch.ones_like(weights)
