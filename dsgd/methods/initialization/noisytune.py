"""NoisyTune: uniform noise on the pretrained weights, in proportion to each tensor's standard deviation."""

from typing import Literal

import torch

from dsgd.methods.contracts import InitializationContext
from dsgd.models import Classifier


class NoisyTune:
    """Add U(-λ/2, λ/2) times its standard deviation to every element of every pretrained tensor.

    Source: Wu et al. 2022, arXiv:2202.12024. ``variant="literal"`` is the snippet published there: the head is included
    and the deviation is the unbiased one, which is NaN for a tensor of one element, and with it every logit. The
    biased deviation is 0 there, so that ``correct`` leaves one-element and constant tensors alone.
    """

    def __init__(self, intensity: float, variant: Literal["correct", "literal"]) -> None:
        self.intensity = intensity
        self.literal = variant == "literal"

    @torch.no_grad()
    def __call__(self, model: Classifier, context: InitializationContext) -> None:
        """Change ``model`` in place; a tied tensor is one tensor and changes once."""
        spared = [] if self.literal else model.fresh
        fresh = {parameter for module in spared for parameter in module.parameters()}
        for parameter in model.parameters():
            if parameter not in fresh:
                uniform = torch.rand(parameter.size(), generator=context.generator, dtype=parameter.dtype) - 0.5
                deviation = parameter.std(unbiased=self.literal)
                parameter.add_(uniform.to(parameter.device) * self.intensity * deviation)
