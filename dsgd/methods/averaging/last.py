"""The weights after the last step."""

from contextlib import AbstractContextManager, nullcontext

from torch import nn

from dsgd.methods.contracts import Step


class Last:
    """Averages nothing."""

    def update(self, model: nn.Module, step: Step) -> None:
        """Keep nothing."""

    def result(self, model: nn.Module) -> AbstractContextManager[nn.Module]:
        """The model as it stands."""
        return nullcontext(model)

    def summary(self) -> dict[str, int]:
        """Nothing to say."""
        return {}

    def variants(self, model: nn.Module) -> dict[str, AbstractContextManager[nn.Module]]:
        """None."""
        return {}
