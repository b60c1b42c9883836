"""LP-FT: the head is trained alone before everything is."""

from dsgd.methods.contracts import InitializationContext
from dsgd.models import Classifier


class HeadFirst:
    """Linear probing before fine-tuning, so that the first gradients do not come through a random head.

    Source: Kumar et al. 2022, arXiv:2202.10054. The probe sees fixed features: dropout is off while the head trains,
    unlike in the fine-tuning that follows.
    """

    def __init__(self, epochs: int, lr: float) -> None:
        self.epochs = epochs
        self.lr = lr

    def __call__(self, model: Classifier, context: InitializationContext) -> None:
        """Train the head in place."""
        context.train_head(model, self.epochs, self.lr)
