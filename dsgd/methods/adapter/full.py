"""Full fine-tuning: every parameter that the model leaves trainable trains."""

from torch import nn

from dsgd.methods.contracts import Statistics, Step


class Full:
    """Wraps nothing."""

    def __call__(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def penalty(self, model: nn.Module) -> None:
        """No term."""

    def after_step(self, model: nn.Module, step: Step) -> Statistics:
        """Nothing to do."""
        return {}
