"""SWA as the DSGD paper uses it: the mean of the last k of equally spaced checkpoints."""

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from dsgd.methods.averaging.swap import Refresh, at_least_fp32, averageable, nothing, standing_in
from dsgd.methods.contracts import Step


class SWA:
    """Average the last k checkpoints for each k of ``last``; the first k is the run's result, all are its variants.

    Source: DSGD paper, section 5.1; cf. Izmailov et al. 2018, arXiv:1803.05407, who hold the learning rate up for it.
    Here it falls to 0, so that the last checkpoints lie close together. ``refresh`` estimates
    BatchNorm's statistics anew.
    """

    def __init__(self, checkpoints: int, last: list[int], total_steps: int, refresh: Refresh = nothing) -> None:
        steps = checkpoint_steps(checkpoints, total_steps)
        self.last, self.refresh = list(last), refresh
        #: k → the steps whose weights are averaged: fewer than k where there are fewer checkpoints.
        self.steps = {k: steps[-k:] for k in self.last}
        self.means: dict[int, dict[str, Tensor]] = {k: {} for k in self.last}  # running, on the CPU

    def update(self, model: nn.Module, step: Step) -> None:
        """Take the weights into each mean whose checkpoint this step is."""
        for k, steps in self.steps.items():
            if step.number in steps:
                include(averageable(model), self.means[k], steps.index(step.number) + 1)

    def result(self, model: nn.Module) -> AbstractContextManager[nn.Module]:
        """The mean for the first k."""
        return standing_in(model, self.means[self.last[0]], self.refresh)

    def variants(self, model: nn.Module) -> dict[str, AbstractContextManager[nn.Module]]:
        """``swa<k>`` for every k, the first too, so that its name says what the run's accuracy is of."""
        return {f"swa{k}": standing_in(model, mean, self.refresh) for k, mean in self.means.items()}

    def summary(self) -> dict[str, int]:
        """How many checkpoints each mean is of, for the run's metrics."""
        return {f"checkpoints_swa{k}": len(steps) for k, steps in self.steps.items()}

    def state_dict(self) -> dict[str, Any]:
        """The running means; how many checkpoints are in them follows from the step."""
        return {"means": self.means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.means = state["means"]


def checkpoint_steps(checkpoints: int, total_steps: int) -> list[int]:
    """Round(i T / K) for i = 1 … K without 0 and repetitions: K steps, or all T of them where T < K; T is the last."""
    steps = {round(number * total_steps / checkpoints) for number in range(1, checkpoints + 1)}
    return sorted(steps - {0})


def include(weights: dict[str, Tensor], mean: dict[str, Tensor], count: int) -> None:
    """Make ``mean``, of count - 1 sets of weights, that of count. A mean of equal weights is exactly these weights."""
    for name, tensor in weights.items():
        new = tensor.to("cpu", at_least_fp32(tensor), copy=True)
        mean[name] = new if count == 1 else mean[name] + (new - mean[name]) / count
