"""AdamW as classifiers are fine-tuned with it, and the learning rate over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import get_linear_schedule_with_warmup

from dsgd.models import Classifier

if TYPE_CHECKING:
    from dsgd.config.schema import Trainer


def make_optimizer(model: Classifier, trainer: Trainer) -> torch.optim.AdamW:
    """AdamW with bias correction over the parameters that train (Mosbach et al. 2020, arXiv:2006.04884)."""
    return torch.optim.AdamW(
        parameter_groups(model, trainer),
        lr=trainer.lr,
        betas=(trainer.beta1, trainer.beta2),
        eps=trainer.eps,
        fused=all(parameter.device.type in ("cpu", "cuda") for parameter in model.parameters()),
    )


def parameter_groups(model: Classifier, trainer: Trainer) -> list[dict[str, Any]]:
    """Parameters by weight decay (none on biases and norms: all that is not a matrix) and by depth.

    Head and pooler have ``trainer.head_weight_decay`` where that is set.
    """
    above = {id(parameter) for module in model.top for parameter in module.parameters()}
    of_head = trainer.weight_decay if trainer.head_weight_decay is None else trainer.head_weight_decay
    depths = parameter_depths(model)
    deepest = max(depths.values())
    groups: dict[tuple[int, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = of_head if id(parameter) in above else trainer.weight_decay
        decay = decay if parameter.ndim > 1 else 0.0
        depth = depths[name] if trainer.layer_decay != 1 else deepest
        lr = trainer.lr * trainer.layer_decay ** (deepest - depth)
        group = groups.setdefault((depth, decay), {"params": [], "weight_decay": decay, "lr": lr})
        group["params"].append(parameter)
    return list(groups.values())


def parameter_depths(model: Classifier) -> dict[str, int]:
    """Parameter name to depth: embeddings 0, transformer block l is l (from 1), what follows the blocks is deepest."""
    below = {id(parameter): 0 for module in (model.embeddings, *model.shared) for parameter in module.parameters()}
    for number, block in enumerate(model.blocks, start=1):
        below |= {id(parameter): number for parameter in block.parameters()}
    top = len(model.blocks) + 1
    return {name: below.get(id(parameter), top) for name, parameter in model.named_parameters()}


def make_lr_schedule(
    optimizer: torch.optim.Optimizer, trainer: Trainer, total_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear warm-up over the first share of the steps, then linear to 0; steps once per optimiser step."""
    schedule: torch.optim.lr_scheduler.LambdaLR = get_linear_schedule_with_warmup(
        optimizer, num_warmup_steps=int(trainer.warmup * total_steps), num_training_steps=total_steps
    )
    return schedule


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that train, in the model's order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
