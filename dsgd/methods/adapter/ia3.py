"""(IA)³: learned scales of keys, values and what enters the output projections."""

import torch
from peft import IA3Config, inject_adapter_in_model
from peft.tuners.ia3 import IA3Layer
from torch import nn

from dsgd.methods.adapter.base import NAME, PeftAdapter, pattern
from dsgd.methods.contracts import Statistics, Step
from dsgd.models import Classifier


class IA3(PeftAdapter):
    """Vectors that start at 1 multiply activations; nothing else of the encoder trains.

    Source: Liu et al. 2022, arXiv:2205.05638. As in peft, and unlike the article, the attention's output projection
    is scaled too in models of BERT's family: only so do the DSGD paper's parameter counts come out.
    """

    def inject(self, model: Classifier) -> None:
        """On every block."""
        targets = self.targets(model)
        config = IA3Config(
            target_modules=pattern(model, targets.scaled + targets.scaled_inputs),
            feedforward_modules=pattern(model, targets.scaled_inputs),
        )
        inject_adapter_in_model(config, model.network, NAME)

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> Statistics:
        """How far the scales are from 1, all together."""
        layers = [module for module in model.modules() if isinstance(module, IA3Layer)]
        scales = torch.cat([layer.ia3_l[NAME].flatten() for layer in layers])
        return {"ia3/scale_deviation": (scales - 1).norm()}
