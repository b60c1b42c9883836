"""Focal loss: cross-entropy scaled down where the model is confident of the true class."""

import torch
from torch import Tensor

from dsgd.loss import by_label, plain_losses
from dsgd.methods.contracts import LossOutput, Step


class Focal:
    """-α (1 - p)^γ log p, with p the softmax probability of the true class and α that class's factor.

    Source: Lin et al. 2017, arXiv:1708.02002. The gradient runs through (1 - p)^γ too, unlike through DSGD's weights,
    and a single α for more than two classes only changes the step size.

    Raises:
        ValueError: ``alpha_by_class`` is not one number of at least 0 for each class.
    """

    def __init__(
        self, gamma: float, alpha: float | None, alpha_by_class: list[float] | None, class_counts: list[int]
    ) -> None:
        self.focusing = gamma  # a callable `gamma` would be γ_t to the history
        self.alpha = torch.tensor(class_factors(alpha, alpha_by_class, len(class_counts)), dtype=torch.float64)

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``dsgd.loss.plain_losses`` does."""
        losses, is_correct, statistics = plain_losses(logits, labels)  # -log p, in fp32, of no class's weight
        self.alpha = self.alpha.to(losses)  # copied to the device once
        factors = by_label(self.alpha, labels) * modulation(losses, self.focusing)
        return LossOutput(losses * factors, is_correct, {**statistics, "focal/weight": factors.detach().sum()})


def modulation(losses: Tensor, gamma: float) -> Tensor:
    """(1 - p)^γ of p = exp(-losses), (n,); 1 - p stays above 1e-6, as its power has no finite slope at 0 for γ < 1."""
    return (-torch.expm1(-losses)).clamp(min=1e-6) ** gamma


def class_factors(alpha: float | None, alpha_by_class: list[float] | None, num_classes: int) -> list[float]:
    """α of each class: the list where there is one; else of two classes 1 - α and α; else α, or 1, for all."""
    if alpha_by_class is not None:
        if len(alpha_by_class) != num_classes or not all(value >= 0 for value in alpha_by_class):
            wanted = f"must be {num_classes} numbers of at least 0, one for each class"
            raise ValueError(f"loss.alpha_by_class = {list(alpha_by_class)}: {wanted}")
        return list(alpha_by_class)
    if alpha is None:
        return [1.0] * num_classes
    return [1 - alpha, alpha] if num_classes == 2 else [alpha] * num_classes
