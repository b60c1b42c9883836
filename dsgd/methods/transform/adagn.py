"""Stable-SPAM's parts before AdamW: adaptive clipping, adaptive gradient norm, momentum resets."""

from typing import Any

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Statistics, Step
from dsgd.methods.transform.gradient_stabilizer import NormStatistics, correction, gradients_of, norms_of


class AdaGN:
    """Give each tensor's gradient the norm m/√v of its running moments, after AdaClip where that is on.

    Source: arXiv:2502.17055v1 (Stable-SPAM) and its public code, whose order this keeps: AdaClip, AdaGN, reset, Adam.
    Every ``reset_every`` steps Adam's moments and its counter start afresh, this step's gradient being the first. The
    code resets with it the counter of the norms' bias corrections but not their moments, so that for a while the norms
    are about doubled and AdaClip is off; ``shared_counter`` reproduces that, and otherwise the norms count on.
    Its cosine decay of β1 and γ1 is left out. A gradient that is zero or not finite passes unchanged.
    """

    def __init__(
        self,
        gamma1: float,
        gamma2: float,
        eps: float,
        adaclip: bool,
        gamma3: float,
        reset_every: int | None,
        shared_counter: bool,
    ) -> None:
        self.norms = NormStatistics(gamma1, gamma2, eps)
        self.clip = AdaClip(gamma3) if adaclip else None
        self.reset_every = reset_every
        self.shared_counter = shared_counter

    @torch.no_grad()
    def __call__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, step: Step) -> Statistics:
        """Rescale the gradients in place and reset the optimiser's momentum where it is due."""
        gradients = gradients_of(parameters)
        total = torch.linalg.vector_norm(norms_of(gradients))
        share = self.clip(gradients) if self.clip else torch.zeros_like(total)
        rescaling = self.norms.update(norms_of(gradients))
        torch._foreach_mul_(gradients, list(rescaling.factors.unbind()))
        is_due = self.reset_every is not None and step.number % self.reset_every == 0
        if is_due:
            self._reset(optimizer)
        return {
            "gradient_norm": total,
            "adagn/scale_median": rescaling.factors.median(),
            "adagn/clipped_share": share,
            "adagn/skipped": rescaling.skipped.sum(),
            "adagn/reset": torch.full_like(total, float(is_due)),
        }

    def state_dict(self) -> dict[str, Any]:
        """The running statistics, one entry a tensor in the order of the parameters."""
        return {"norms": self.norms.state_dict(), "clip": self.clip.state_dict() if self.clip else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.norms.load_state_dict(state["norms"])
        if self.clip:
            self.clip.load_state_dict(state["clip"])

    def _reset(self, optimizer: torch.optim.Optimizer) -> None:
        reset_momentum(optimizer)
        if self.shared_counter:
            self.norms.count = torch.ones_like(self.norms.count)
            if self.clip:
                self.clip.count = torch.ones_like(self.clip.count)


class AdaClip:
    """Bound each tensor's entries by the running mean of its largest entry; a spike's entries keep their ratios."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.maximum = self.count = torch.zeros(0)  # (P,) from the first call on

    def __call__(self, gradients: list[Tensor]) -> Tensor:
        """Clip the gradients of P tensors in place; returns the share of entries that were clipped, 0-d."""
        largest = norms_of(gradients, torch.inf)
        limits = self._update(largest)
        clipped = []
        for gradient, limit, scale in zip(gradients, limits.unbind(), (limits / largest).unbind(), strict=True):
            beyond = gradient.abs() > limit
            gradient.copy_(torch.where(beyond, gradient * scale, gradient))
            clipped.append(beyond.sum())
        return torch.stack(clipped).sum() / sum(gradient.numel() for gradient in gradients)

    def state_dict(self) -> dict[str, Tensor]:
        """For ``load_state_dict``."""
        return {"maximum": self.maximum, "count": self.count}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state``, on whichever device it lies."""
        self.maximum, self.count = state["maximum"], state["count"]

    def _update(self, largest: Tensor) -> Tensor:
        """The limits (P,) after this step's largest entries (P,); infinite where those are zero or not finite."""
        if not len(self.count):
            self.maximum = self.count = torch.zeros_like(largest)
        counts = largest.isfinite() & (largest > 0)
        old = self.maximum.to(largest.device)
        self.maximum = torch.where(counts, self.gamma * old + (1 - self.gamma) * largest, old)
        self.count = self.count.to(largest.device) + counts
        return torch.where(counts, self.maximum / correction(self.gamma, self.count), torch.inf)


def reset_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Empty AdamW's moments and set its counters back, so that its coming step is its first."""
    for state in optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            state[name].zero_()
