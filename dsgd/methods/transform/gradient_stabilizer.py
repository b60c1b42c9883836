"""GradientStabilizer: the gradient's direction, with a norm from running statistics."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Statistics, Step


class GradientStabilizer:
    """Give each tensor's gradient the norm m/√v of the running moments of its norms, however large a spike is.

    Source: arXiv:2502.17055 and its public code. That norm is not bounded by 1, as the code's text says: at a spike it
    tends to (1-γ1)/√(1-γ2), 12.65 by default. The global scale of the gradient is lost, so of DSGD's weighting only
    the ratio of W to C is left. Clipping comes before, as the norm after is about √(number of tensors) at any time.
    A gradient that is zero or not finite passes unchanged and unnoticed by the statistics; a non-finite one thus
    reaches the weights and ends the run as failed.
    """

    def __init__(self, gamma1: float, gamma2: float, eps: float, bias_correction: bool, clip: float) -> None:
        self.clip = clip
        self.norms = NormStatistics(gamma1, gamma2, eps, bias_correction)

    @torch.no_grad()
    def __call__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, step: Step) -> Statistics:
        """Rescale the gradients in place; all numbers stay on the device."""
        gradients = gradients_of(parameters)
        norms = norms_of(gradients)
        total = torch.linalg.vector_norm(norms)
        shrink = (self.clip / (total + 1e-6)).clamp(max=1.0) if self.clip > 0 else torch.ones_like(total)
        norms = shrink * norms
        rescaling = self.norms.update(norms)
        factors = shrink * rescaling.factors
        torch._foreach_mul_(gradients, list(factors.unbind()))
        return {
            "gradient_norm": total,
            "stabilizer/scale_median": factors.median(),
            "stabilizer/norm_mean": (norms * rescaling.factors).mean(),
            "stabilizer/norm_max": (norms * rescaling.factors).amax(),
            "stabilizer/skipped": rescaling.skipped.sum(),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """The running statistics, one entry a tensor in the order of the parameters."""
        return self.norms.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state``."""
        self.norms.load_state_dict(state)


class Rescaling(NamedTuple):
    """What each of P tensors is multiplied by, (P,), and which were left as they are, (P,) bool, at a factor of 1."""

    factors: Tensor
    skipped: Tensor


class NormStatistics:
    """Running moments of P gradient norms and the norms r = m/(√v + eps) that they prescribe.

    ``count`` grows with each tensor's own updates, so that the bias correction fits what its moments have seen.
    """

    def __init__(self, gamma1: float, gamma2: float, eps: float, bias_correction: bool = True) -> None:
        self.gamma1, self.gamma2, self.eps = gamma1, gamma2, eps
        self.bias_correction = bias_correction
        self.mean = self.square = self.count = torch.zeros(0)  # (P,) from the first update on

    def update(self, norms: Tensor) -> Rescaling:
        """Take in the norms (P,) of one step; the first of a tensor prescribes r = 1."""
        if not len(self.count):
            self.mean = self.square = self.count = torch.zeros_like(norms)
        counts = norms.isfinite() & (norms > 0)
        mean, square, count = (old.to(norms.device) for old in (self.mean, self.square, self.count))
        self.mean = torch.where(counts, self.gamma1 * mean + (1 - self.gamma1) * norms, mean)
        self.square = torch.where(counts, self.gamma2 * square + (1 - self.gamma2) * norms**2, square)
        self.count = count + counts
        first = correction(self.gamma1, self.count) if self.bias_correction else 1.0
        second = correction(self.gamma2, self.count) if self.bias_correction else 1.0
        r = self.mean / first / ((self.square / second).sqrt() + self.eps)
        return Rescaling(torch.where(counts, r / norms, 1.0), ~counts)

    def state_dict(self) -> dict[str, Tensor]:
        """For ``load_state_dict``; empty tensors before the first update."""
        return {"mean": self.mean, "square": self.square, "count": self.count}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state``, on whichever device it lies."""
        self.mean, self.square, self.count = state["mean"], state["square"], state["count"]


def correction(gamma: float, count: Tensor) -> Tensor:
    """1 - γ^count, to full precision also for a γ near 1 in fp32; 1 for a γ of 0."""
    return -torch.expm1(count * math.log(max(gamma, 1e-300)))


def gradients_of(parameters: list[nn.Parameter]) -> list[Tensor]:
    """Each parameter's gradient, and a 0-d zero in the place of one that is absent, so that positions stay."""
    return [parameter.new_zeros(()) if parameter.grad is None else parameter.grad for parameter in parameters]


def norms_of(gradients: list[Tensor], order: float = 2.0) -> Tensor:
    """The norms (P,) of P gradients."""
    return torch.stack(torch._foreach_norm(gradients, order))
