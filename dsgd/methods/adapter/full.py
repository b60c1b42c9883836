"""Full fine-tuning: every parameter that the model leaves trainable trains."""

from torch import nn


class Full:
    """Wraps nothing."""

    def __call__(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model
