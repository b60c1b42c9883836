"""Fresh weights in the top transformer blocks."""

import torch
from torch import nn

from dsgd.methods.contracts import InitializationContext
from dsgd.models import Classifier


class ReinitTop:
    """Draw the last blocks anew as before pretraining, and the pooler above them where there is one.

    Source: Zhang et al. 2021, arXiv:2006.05987, who also let learning rates fall with depth and whose code exempts
    head and pooler from weight decay: ``trainer.layer_decay`` and ``trainer.head_weight_decay``, which the preset sets.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    def __call__(self, model: Classifier, context: InitializationContext) -> None:
        """Change ``model`` in place.

        Raises:
            ValueError: the model has fewer blocks.
        """
        there = len(model.blocks)
        if self.blocks > there:
            raise ValueError(f"initialization.blocks = {self.blocks}: the model has {there} transformer blocks")
        for module in (*model.blocks[there - self.blocks :], *model.top[:-1]):  # the head is fresh already
            redraw(module, model.initializer_range, context.generator)


@torch.no_grad()
def redraw(module: nn.Module, deviation: float, generator: torch.Generator) -> None:
    """Matrices from N(0, deviation²), biases 0, and the only other vectors, the norms' scales, 1."""
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            parameter.copy_(deviation * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
