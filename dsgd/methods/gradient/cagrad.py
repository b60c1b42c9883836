"""CAGrad between the wrongly and the correctly classified examples of a window."""

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Objective, Statistics, Window
from dsgd.methods.gradient.two_groups import InnerProducts, inner_products, leave_combination


class CAGrad:
    """Near the mean of the two groups' gradients, the direction that serves the worse-off group best.

    Source: Liu et al. 2021, arXiv:2110.14048, without the optional division by 1 + c². Of all d with
    ‖d - g_0‖ <= c ‖g_0‖, g_0 = (g_W + g_C)/2, it is the one whose smaller inner product with g_W and g_C is largest.
    Twice that is taken, because the window's gradient is the groups' sum: c = 0 is then full fine-tuning. Unlike
    PCGrad it acts on groups that agree as well.
    """

    def __init__(self, c: float) -> None:
        self.c = c

    def __call__(self, model: nn.Module, window: Window, objective: Objective) -> Statistics:
        """Leave the window's conflict-averse mean gradient in ``parameter.grad``."""
        wrong, correct = objective.group_gradients(model, window)
        products = inner_products(wrong, correct)
        share = share_of_wrong(products, self.c)
        resolution = torch.finfo(next(iter(wrong.values())).dtype).eps
        factors = conflict_averse_factors(products, self.c, share, resolution)
        leave_combination(model, wrong, correct, factors, window.size)
        objective.add_penalty(model)
        return {
            "cagrad/cosine": products.cosine,
            "cagrad/share_of_wrong": share,
            "cagrad/wrong_factor": factors[0],
            "cagrad/correct_factor": factors[1],
        }


def share_of_wrong(products: InnerProducts, c: float) -> Tensor:
    """The x in [0, 1] that minimises g_x·g_0 + c ‖g_0‖ ‖g_x‖, g_x = x g_W + (1 - x) g_C; 0-d.

    In closed form: along the line of the g_x, with u = g_W - g_C and h its distance from the origin, the objective is
    x u·g_0 + c ‖g_0‖ √(y² + h²) plus a constant, where y = ‖u‖ x + u·g_C/‖u‖. Its derivative vanishes where
    y/√(y² + h²) = -u·g_0/(c ‖g_0‖ ‖u‖) =: s; beyond |s| = 1 it has one sign everywhere. The objective is convex, so
    an x outside of [0, 1] means the nearer end.
    """
    dot, wrong, correct = products
    tiny = torch.finfo(dot.dtype).tiny  # only ever divides zero
    u = (wrong + correct - 2 * dot).clamp(min=0).sqrt().clamp(min=tiny)
    s = (correct - wrong) / 2 / (c * _mean_norm(products) * u).clamp(min=tiny)
    h = (wrong * correct - dot**2).clamp(min=0).sqrt() / u
    inside = s.clamp(-1, 1)
    y = inside * h / (1 - inside**2).sqrt().clamp(min=tiny)
    x = ((y + (correct - dot) / u) / u).clamp(0, 1)
    return torch.where(s.abs() < 1, x, (s > 0).to(x.dtype))


def conflict_averse_factors(
    products: InnerProducts, c: float, share: Tensor, resolution: float = torch.finfo(torch.float32).eps
) -> tuple[Tensor, Tensor]:
    """Factors of g_W and g_C in 2 (g_0 + c ‖g_0‖ g_x/‖g_x‖), 0-d tensors.

    Where g_x vanishes it has no direction and the sum stays plain: an empty group, or gradients that cancel down to
    the rounding of their entries, of relative size ``resolution``.
    """
    dot, wrong, correct = products
    of_wrong, of_correct, mixed = share**2 * wrong, (1 - share) ** 2 * correct, share * (1 - share) * dot
    square = of_wrong + of_correct + 2 * mixed
    rounding = max((4 * resolution) ** 2, 4 * torch.finfo(dot.dtype).eps) * (of_wrong + of_correct + 2 * mixed.abs())
    vanishes = square <= rounding
    pull = torch.where(vanishes, 0.0, 2 * c * _mean_norm(products) / square.masked_fill(vanishes, 1.0).sqrt())
    return 1 + pull * share, 1 + pull * (1 - share)


def _mean_norm(products: InnerProducts) -> Tensor:
    """‖g_0‖."""
    dot, wrong, correct = products
    return (wrong + correct + 2 * dot).clamp(min=0).sqrt() / 2
