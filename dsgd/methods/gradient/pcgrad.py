"""PCGrad between the wrongly and the correctly classified examples of a window."""

from typing import Literal

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Objective, Statistics, Window
from dsgd.methods.gradient.two_groups import InnerProducts, inner_products, leave_combination


class PCGrad:
    """Project each group's gradient off the other's wherever the two conflict.

    Source: Yu et al. 2020, arXiv:2001.06782; two groups as in the DSGD paper, Algorithm 1.
    ``variant="printed"`` divides by the norm, as Algorithm 1 prints it; the method divides by its square. Between
    gradients of equal norm the method keeps the plain direction and only lengthens it, which Adam hardly notices.
    """

    def __init__(self, variant: Literal["correct", "printed"]) -> None:
        self.exponent = 1.0 if variant == "correct" else 0.5  # of the squared norm

    def __call__(self, model: nn.Module, window: Window, objective: Objective) -> Statistics:
        """Leave the window's projected mean gradient in ``parameter.grad``."""
        wrong, correct = objective.group_gradients(model, window)
        products = inner_products(wrong, correct)
        factors = projection_factors(products, self.exponent)
        leave_combination(model, wrong, correct, factors, window.size)
        objective.add_penalty(model)
        return {
            "pcgrad/cosine": products.cosine,
            "pcgrad/conflict": (products.dot < 0).float(),
            "pcgrad/wrong_factor": factors[0],
            "pcgrad/correct_factor": factors[1],
        }


def projection_factors(products: InnerProducts, exponent: float) -> tuple[Tensor, Tensor]:
    """Factors of g_W and g_C in the projected sum, 0-d tensors; both are exactly 1 where nothing conflicts.

    The projected g_C carries the multiple of g_W that is taken off it, so g_W's factor divides by its own square.
    An empty group has dot 0, so it needs no case of its own.
    """
    conflict = products.dot.clamp(max=0.0)
    tiny = torch.finfo(conflict.dtype).tiny  # only ever divides zero
    of_wrong = 1 - conflict / products.wrong_square.clamp(min=tiny) ** exponent
    of_correct = 1 - conflict / products.correct_square.clamp(min=tiny) ** exponent
    return of_wrong, of_correct
