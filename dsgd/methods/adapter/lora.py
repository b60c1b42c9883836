"""LoRA: low-rank matrices beside the attention's query and value projections."""

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from dsgd.methods.adapter.base import NAME, PeftAdapter, pattern
from dsgd.methods.contracts import Statistics, Step
from dsgd.models import Classifier


class LoRA(PeftAdapter):
    """W + (α/r)·B·A with a frozen W; B starts at 0, so that training starts from the pretrained function.

    Source: Hu et al. 2022, arXiv:2106.09685. The parameter counts that the DSGD paper prints decide its "r 8, 16"
    in favour of r = 8, α = 16.
    """

    def __init__(
        self,
        lr: float,
        weight_decay: float,
        r: int,
        alpha: float,
        dropout: float,
        train_pooler: bool,
        adapter_seed: int,
    ) -> None:
        super().__init__(lr, weight_decay, train_pooler, adapter_seed)
        self.r, self.alpha, self.dropout = r, alpha, dropout

    def inject(self, model: Classifier) -> None:
        """Beside query and value of every block."""
        config = LoraConfig(
            r=self.r,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=pattern(model, self.targets(model).low_rank),
        )
        inject_adapter_in_model(config, model.network, NAME)

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> Statistics:
        """How far the adapted matrices are from the pretrained ones, all together."""
        layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
        squares = [
            layer.scaling[NAME] ** 2 * squared_norm(layer.lora_B[NAME].weight, layer.lora_A[NAME].weight)
            for layer in layers
        ]
        return {"lora/update_norm": torch.stack(squares).sum().sqrt()}


def squared_norm(b: Tensor, a: Tensor) -> Tensor:
    """‖B·A‖²_F = tr(BᵀB·AAᵀ), 0-d, without the large product: ``b`` is (out, r), ``a`` is (r, in)."""
    return ((b.T @ b) * (a @ a.T)).sum().clamp(min=0)
