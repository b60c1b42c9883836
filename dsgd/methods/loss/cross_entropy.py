"""Plain cross-entropy: full fine-tuning, with W and C counted but weighted alike."""

from torch import Tensor

from dsgd.loss import Backend, weighted_losses
from dsgd.methods.contracts import LossOutput, Step


class CrossEntropy:
    """DSGD with γ = 1: torch's own bit for bit in the reference; one arithmetic keeps the statistics comparable."""

    def __init__(self, label_smoothing: float, backend: Backend = "auto") -> None:
        self.label_smoothing = label_smoothing
        self.backend: Backend = backend

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Losses of ``logits`` (n, K) against ``labels`` (n,); raises as ``dsgd.loss.weighted_losses`` does."""
        return weighted_losses(logits, labels, 1.0, label_smoothing=self.label_smoothing, backend=self.backend)
