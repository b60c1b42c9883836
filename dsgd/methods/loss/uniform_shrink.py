"""Control of DSGD: all examples weigh alike, by the mean of the weights that DSGD gives them."""

from torch import Tensor

from dsgd.loss import plain_losses
from dsgd.methods.contracts import LossOutput, Step
from dsgd.schedules import Schedule


class UniformShrink:
    """Cross-entropy times (|W| + γ_t |C|)/m: DSGD's change of the step size without its choice of examples.

    Adam hardly notices a constant factor, so what is left of it there is its change over the steps.
    """

    scales_correct = False  # γ_t falls elsewhere, so diagnostics have no effective gradient to tell

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (m, K), the whole window's; raises as ``dsgd.loss.plain_losses`` does."""
        losses, is_correct, statistics = plain_losses(logits, labels)
        wrong, correct = statistics["wrong"].to(losses.dtype), statistics["correct"].to(losses.dtype)
        total = wrong + self.gamma(step) * correct
        weight = total / (wrong + correct).clamp(min=1)
        return LossOutput(losses * weight, is_correct, {**statistics, "uniform_shrink/weight": total})

    def gamma(self, step: Step) -> float:
        """γ_t, for the history."""
        return self.schedule(step.number)
