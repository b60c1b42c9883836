"""What the gradient methods over W and C share: the groups' inner products, and putting the groups back together."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dsgd.products import inner_product

#: Parameter name to the gradient of a group's summed loss, as ``Objective.group_gradients`` gives it.
Group = dict[str, Tensor]


class InnerProducts(NamedTuple):
    """Of the groups' gradients, each flattened into one vector over all parameters; 0-d float64 on their device."""

    dot: Tensor
    wrong_square: Tensor
    correct_square: Tensor

    @property
    def cosine(self) -> Tensor:
        """NaN where a group is empty, which has no direction."""
        return self.dot / (self.wrong_square.sqrt() * self.correct_square.sqrt())


def inner_products(wrong: Group, correct: Group) -> InnerProducts:
    """All three of two groups over the same parameters."""
    return InnerProducts(_inner(wrong, correct), _inner(wrong, wrong), _inner(correct, correct))


def leave_combination(
    model: nn.Module, wrong: Group, correct: Group, factors: tuple[Tensor, Tensor], size: int
) -> None:
    """Put (a g_W + b g_C)/m into ``parameter.grad`` for ``factors`` (a, b); the groups are used up.

    Parameters are met in order rather than by name, because a wrapper for several processes renames them.
    """
    training = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter, of_wrong, of_correct in zip(training, wrong.values(), correct.values(), strict=True):
        a, b = ((factor / size).to(of_wrong.dtype) for factor in factors)
        combined = _entries(of_wrong).mul_(a).addcmul_(_entries(of_correct), b)
        if of_wrong.is_sparse:  # the values are its own, so it holds the combination now
            parameter.grad = of_wrong.to_dense()
        else:
            parameter.grad = combined


def _inner(one: Group, other: Group) -> Tensor:
    return torch.stack([inner_product(_entries(one[name]), _entries(other[name])) for name in one]).sum()


def _entries(gradient: Tensor) -> Tensor:
    """What may differ from 0; the rows of an embedding's gradient are the same for both groups."""
    return gradient.values() if gradient.is_sparse else gradient
