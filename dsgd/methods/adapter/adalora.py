"""AdaLoRA: low-rank matrices whose ranks are cut to a budget while training."""

from typing import Any

import torch
from peft import AdaLoraConfig
from peft.tuners.adalora import AdaLoraLayer, AdaLoraModel
from torch import Tensor, nn

from dsgd.methods.adapter.base import NAME, PeftAdapter, pattern
from dsgd.methods.contracts import Statistics, Step
from dsgd.models import Classifier

#: The allocator's running sums, each a dict from parameter name to tensor.
_SUMS = ("ipt", "exp_avg_ipt", "exp_avg_unc")


class AdaLoRA(PeftAdapter):
    """W + (α/r)·P·Λ·Q with P, Q pushed towards orthogonality; the least important entries of Λ are set to 0.

    Source: Zhang et al. 2023, arXiv:2303.10512; peft's allocator. Neither half works by itself in a training loop of
    one's own: peft adds the orthogonality term only to a loss that the model computes, and cuts ranks only when
    ``update_and_allocate`` is called between the optimiser's step and the clearing of the gradients, which it reads.

    peft waits for the device at each cut, a hundred times a run at most, and at every step after the last cut.
    """

    def __init__(
        self,
        lr: float,
        weight_decay: float,
        initial_r: int,
        target_r: int,
        alpha: float,
        dropout: float,
        warmup: float,
        final: float,
        orthogonality: float,
        train_pooler: bool,
        total_steps: int,
        adapter_seed: int,
    ) -> None:
        super().__init__(lr, weight_decay, train_pooler, adapter_seed)
        self.orthogonality = orthogonality
        self.settings = {
            "init_r": initial_r,
            "target_r": target_r,
            "lora_alpha": alpha,
            "lora_dropout": dropout,
            "beta1": 0.85,
            "beta2": 0.85,
            "orth_reg_weight": orthogonality,
            **budget_clock(total_steps, warmup, final),
        }

    def inject(self, model: Classifier) -> None:
        """Beside query and value of every block."""
        config = AdaLoraConfig(target_modules=pattern(model, self.targets(model).low_rank), **self.settings)
        self.tuner = AdaLoraModel(model.network, config, NAME)  # changes the network, and knows how to cut its ranks
        for module in model.modules():
            if isinstance(module, AdaLoraLayer):  # peft lets the constant r train where it moves it to another device
                module.ranknum[NAME].requires_grad_(False)

    def penalty(self, model: nn.Module) -> Tensor:
        """The orthogonality term, as peft adds it to a loss of the model's own."""
        factors = [
            parameter if "lora_A" in name else parameter.T
            for name, parameter in model.named_parameters()
            if "lora_A" in name or "lora_B" in name
        ]
        return self.orthogonality * torch.stack([distance_from_orthogonal(factor) for factor in factors]).mean()

    def after_step(self, model: nn.Module, step: Step) -> Statistics:
        """Update the importance of each rank, cut those over the budget, and count those left."""
        self.tuner.update_and_allocate(step.number)
        kept = self._config.rank_pattern  # of the last cut, for the optimiser moves Λ's zeros until the next
        ranks = sum(map(sum, kept.values())) if kept else self.tuner.rankallocator.init_bgt
        return {"adalora/rank_sum": torch.full((), float(ranks), device=next(model.parameters()).device)}

    def state_dict(self) -> dict[str, Any]:
        """The allocator's memory; Λ, P and Q are the model's."""
        allocator = self.tuner.rankallocator
        return {"rank_pattern": self._config.rank_pattern, **{name: getattr(allocator, name) for name in _SUMS}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, in a model that is adapted already."""
        self._config.rank_pattern = state["rank_pattern"]
        devices = {name: parameter.device for name, parameter in self.tuner.model.named_parameters()}
        for sums in _SUMS:
            moved = {name: tensor.to(devices[name]) for name, tensor in state[sums].items()}
            setattr(self.tuner.rankallocator, sums, moved)

    @property
    def _config(self) -> Any:
        return self.tuner.peft_config[NAME]


def budget_clock(total_steps: int, warmup: float, final: float) -> dict[str, int]:
    """peft's names for when ranks are cut: from step ``tinit`` to ``total_step - tfinal``, every ``deltaT`` steps.

    The last cut needs an importance from an earlier step, so it is never at the first: in runs of one or two steps
    the final phase gives way.
    """
    total = max(total_steps, 2)
    return {
        "total_step": total,
        "tinit": int(warmup * total),
        "tfinal": min(int(final * total), total - 2),
        "deltaT": max(1, total // 100),
    }


def distance_from_orthogonal(factor: Tensor) -> Tensor:
    """‖M·Mᵀ − I‖_F of ``factor`` M (r, n), 0-d."""
    identity = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    distance: Tensor = torch.linalg.matrix_norm(factor @ factor.T - identity)
    return distance
