"""Sharpness-aware minimisation: the gradient at the worst weights nearby."""

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Objective, Statistics, Window
from dsgd.methods.gradient.plain import Plain


class SAM:
    """Climb by ``rho`` along the window's gradient, take the gradient there, and come back.

    Source: Foret et al. 2021, arXiv:2010.01412. The climb follows the gradient of the whole window over all
    micro-batches and processes, where common code climbs per process (m-sharpness). Both looks see the same dropout
    masks (not the same noise of a regularizer with a stream of its own); the history's losses are the first one's.
    """

    def __init__(self, rho: float) -> None:
        self.rho = rho
        self.look = Plain()

    def __call__(self, model: nn.Module, window: Window, objective: Objective) -> Statistics:
        """Leave the gradient at the perturbed weights in ``parameter.grad``; the weights are as before, bit for bit."""
        device = next(model.parameters()).device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            self.look(model, window, objective)
        moved = [parameter for parameter in model.parameters() if parameter.grad is not None]
        kept = [parameter.detach().clone() for parameter in moved]  # subtracting the climb again would round
        norm = climb(moved, self.rho)
        with objective.unrecorded():
            self.look(model, window, objective)  # leaves the random stream where one look does
        with torch.no_grad():
            for parameter, before in zip(moved, kept, strict=True):
                parameter.copy_(before)
        return {"sam/gradient_norm": norm}


@torch.no_grad()
def climb(parameters: list[nn.Parameter], rho: float) -> Tensor:
    """Move by ``rho`` along the gradient of all ``parameters`` together and clear it; returns its norm, 0-d."""
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    scale = rho / (norm + 1e-12)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.add_(scale * parameter.grad)
            parameter.grad = None
    return norm
