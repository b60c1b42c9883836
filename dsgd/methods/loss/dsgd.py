"""Dynamic scaled gradient descent as a loss: the correctly classified examples weigh γ_t."""

from typing import Literal

from torch import Tensor

from dsgd.loss import Backend, Normalization, Ties, weighted_losses
from dsgd.methods.contracts import LossOutput, Step
from dsgd.schedules import Schedule


class DSGD:
    """``dsgd.loss`` in the slot's form. Source: arXiv 2604.27987, section 3, Algorithm 2."""

    def __init__(
        self,
        label_smoothing: float,
        ties: Ties,
        correctness: Literal["train", "evaluation"],
        normalization: Normalization,
        schedule: Schedule,
        backend: Backend = "auto",
    ) -> None:
        self.label_smoothing = label_smoothing
        self.ties: Ties = ties
        self.normalization: Normalization = normalization
        self.schedule = schedule
        self.backend: Backend = backend
        self.judges_in_evaluation_mode = correctness == "evaluation"

    def per_example(self, logits: Tensor, labels: Tensor, step: Step, judge: Tensor | None = None) -> LossOutput:
        """Weighted losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``weighted_losses`` does."""
        return weighted_losses(
            logits,
            labels,
            self.gamma(step),
            label_smoothing=self.label_smoothing,
            ties=self.ties,
            normalization=self.normalization,
            judge=judge,
            backend=self.backend,
        )

    def gamma(self, step: Step) -> float:
        """γ_t, for the history."""
        return self.schedule(step.number)
