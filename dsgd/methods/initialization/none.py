"""The weights stay as loaded."""

from torch import nn

from dsgd.methods.contracts import InitializationContext


class NoInitialization:
    """Changes nothing."""

    def __call__(self, model: nn.Module, context: InitializationContext) -> None:
        """Leave ``model`` alone."""
