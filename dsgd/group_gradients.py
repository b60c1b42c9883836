"""G_W and G_C: the gradients of the summed losses of the wrongly and of the correctly classified examples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import LossOutput


def group_gradients(model: nn.Module, output: LossOutput) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Two backward passes through one forward, so that both groups see the same dropout masks.

    Args:
        model: the parameters; those with ``requires_grad`` count.
        output: of a forward pass of ``model`` whose graph is alive; it is freed here.

    Returns:
        Two dicts, parameter name → gradient of the SUM of the group's losses; zeros for an empty group.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    wrong = output.losses.masked_fill(output.is_correct, 0.0).sum()
    correct = output.losses.masked_fill(~output.is_correct, 0.0).sum()
    return _gradient(wrong, named, keep=True), _gradient(correct, named, keep=False)


def _gradient(loss: Tensor, named: dict[str, nn.Parameter], keep: bool) -> dict[str, Tensor]:
    found = torch.autograd.grad(loss, list(named.values()), retain_graph=keep, allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }
