"""Logit adjustment: cross-entropy of logits shifted by the log prior of the training classes."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dsgd.loss import IGNORED, is_correct_and_tied, plain_losses, raised
from dsgd.methods.contracts import LossOutput, Step


class LogitAdjustment:
    """Cross-entropy of z + τ log π, with π the classes' shares of the training examples; prediction is by z.

    Source: Menon et al. 2021, arXiv:2007.07314, equation 10. W and C go by the z that predicts, not by the shifted
    logits; ``logit_adjustment/wrong`` counts the wrong ones among the latter.
    """

    def __init__(self, tau: float, class_counts: list[int]) -> None:
        self.shift = tau * log_prior(class_counts)

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``dsgd.loss.plain_losses`` does."""
        plain, valid = plain_losses(logits, labels), labels != IGNORED
        self.shift = self.shift.to(plain.losses)  # copied to the device once
        shifted = raised(logits, valid) + self.shift
        losses = cross_entropy(shifted, labels, reduction="none", ignore_index=IGNORED)
        is_correct, _ = is_correct_and_tied(shifted.detach(), labels, valid, "wrong")
        statistics = {**plain.statistics, "logit_adjustment/wrong": (valid & ~is_correct).sum()}
        return LossOutput(losses, plain.is_correct, statistics)


def log_prior(class_counts: list[int]) -> Tensor:
    """The log of each class's share, (K,) float64; a class without examples counts as one, or all would be NaN."""
    counts = torch.tensor(class_counts, dtype=torch.float64).clamp(min=1)
    return (counts / counts.sum()).log()
