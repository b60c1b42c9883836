"""Clipping by the global gradient norm."""

import torch
from torch import nn

from dsgd.methods.contracts import Statistics, Step


class Clip:
    """Scale all gradients down together where their global L2 norm exceeds ``clip``; 0 only measures.

    Source: Pascanu et al. 2013, arXiv:1211.5063. Acts after DSGD's weighting, whose early gradients are small and
    therefore clipped less than those of full fine-tuning; the norm before clipping is logged.
    """

    def __init__(self, clip: float) -> None:
        self.clip = clip if clip > 0 else float("inf")

    def __call__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, step: Step) -> Statistics:
        """Clip in place; the norm stays on the device."""
        del optimizer, step
        return {"gradient_norm": torch.nn.utils.clip_grad_norm_(parameters, self.clip)}
