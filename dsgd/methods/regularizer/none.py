"""Nothing is added to the loss."""

from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from dsgd.methods.contracts import Batch


class NoRegularizer:
    """Adds nothing."""

    def watch(self, model: nn.Module) -> AbstractContextManager[None]:
        """Look at nothing."""
        return nullcontext()

    def per_example(self, model: nn.Module, batch: Batch, logits: Tensor) -> None:
        """No terms on the examples."""

    def penalty(self, model: nn.Module) -> None:
        """No term on the parameters."""
