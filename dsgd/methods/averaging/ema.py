"""The exponential moving average of the weights."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from dsgd.methods.averaging.swap import Refresh, at_least_fp32, averageable, nothing, standing_in
from dsgd.methods.contracts import Step


class EMA:
    """Average the weights after each step, those of j steps ago weighing decay^j.

    Source: Polyak & Juditsky 1992 for the idea; the bias correction is Adam's (arXiv:1412.6980, section 3): the weights
    before step 1 have no part in it, however few steps there are.
    """

    def __init__(self, decay: float, refresh: Refresh = nothing) -> None:
        self.decay = decay
        self.refresh = refresh
        self.average: dict[str, Tensor] = {}  # on the model's device

    @torch.no_grad()
    def update(self, model: nn.Module, step: Step) -> None:
        """Move the average towards the weights."""
        weights = {name: tensor.to(at_least_fp32(tensor)) for name, tensor in averageable(model).items()}
        for name, tensor in weights.items():  # at the first step, and on the CPU after a resumption
            self.average[name] = self.average[name].to(tensor.device) if name in self.average else tensor.clone()
        averages = [self.average[name] for name in weights]
        torch._foreach_lerp_(averages, list(weights.values()), newest_share(self.decay, step.number))

    def result(self, model: nn.Module) -> AbstractContextManager[nn.Module]:
        """The average so far."""
        return standing_in(model, self.average, self.refresh)

    def summary(self) -> dict[str, int]:
        """Nothing to say."""
        return {}

    def variants(self, model: nn.Module) -> dict[str, AbstractContextManager[nn.Module]]:
        """None."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The average."""
        return {"average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.average = state["average"]


def newest_share(decay: float, step: int) -> float:
    """Weight of the newest weights in the bias-corrected average after ``step`` steps; 1 at the first.

    With m_t = β m_{t-1} + (1 - β) θ_t and a_t = m_t / (1 - β^t): a_t = a_{t-1} + (1 - β) / (1 - β^t) (θ_t - a_{t-1}).
    """
    return (1 - decay) / (1 - decay**step)
