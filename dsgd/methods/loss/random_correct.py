"""Control of DSGD: γ_t falls on a random subset of the window instead of on C."""

import torch
from torch import Tensor

from dsgd.loss import IGNORED, plain_losses
from dsgd.methods.contracts import LossOutput, Step
from dsgd.schedules import Schedule


class RandomCorrect:
    """DSGD's weights dealt out at random: as many examples as are correct weigh γ_t, whichever they are.

    The draw is the global generator's of the logits' device, which also draws dropout masks: checkpoints carry it,
    but a run's masks are not those of DSGD with the same seed.
    """

    scales_correct = False  # γ_t falls elsewhere, so diagnostics have no effective gradient to tell

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (m, K), the whole window's; raises as ``dsgd.loss.plain_losses`` does."""
        losses, is_correct, statistics = plain_losses(logits, labels)
        with torch.no_grad():
            chosen = random_subset(labels != IGNORED, statistics["correct"])
            weights = (~chosen).to(losses.dtype) + self.gamma(step) * chosen.to(losses.dtype)
        chosen_correct = (chosen & is_correct).sum()
        return LossOutput(losses * weights, is_correct, {**statistics, "random_correct/chosen_correct": chosen_correct})

    def gamma(self, step: Step) -> float:
        """γ_t, for the history."""
        return self.schedule(step.number)


def random_subset(valid: Tensor, count: Tensor) -> Tensor:
    """``count`` of the ``valid`` (n,) examples, each as likely, (n,) bool."""
    order = torch.rand(len(valid), device=valid.device).masked_fill(~valid, 2.0).argsort()  # rand stays below 1
    return (order.argsort() < count) & valid
