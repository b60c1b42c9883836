"""Control: gradient spikes at chosen optimiser steps."""

import torch
from torch import nn

from dsgd.methods.contracts import Objective, Statistics, Window
from dsgd.methods.gradient.plain import Plain


class Spikes:
    """Multiply the window's gradient by ``factor`` at the given optimiser steps, counted from 1.

    A means to test claims about spikes (GradientStabilizer, arXiv:2502.17055), and no method. The loss stays as it
    is, and clipping by the global norm, the default transform, undoes a spike almost wholly: set it to 0 to see one.
    """

    def __init__(self, steps: list[int], factor: float) -> None:
        self.steps = frozenset(steps)
        self.factor = factor
        self.plain = Plain()

    def __call__(self, model: nn.Module, window: Window, objective: Objective) -> Statistics:
        """Leave the window's mean gradient, multiplied where this step is to spike, in ``parameter.grad``."""
        self.plain(model, window, objective)
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        factor = self.factor if window.step.number in self.steps else 1.0
        torch._foreach_mul_(gradients, factor)
        return {"spikes/factor": torch.full((), factor, device=gradients[0].device)}
