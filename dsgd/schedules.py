"""γ_t, the scale of the correctly classified examples' gradient at optimiser step t.

Source: arXiv 2604.27987, section 5.1 (equation 4 and the alternatives compared in section 5.5).
Each schedule is a pure function of the 1-based optimiser step, so nothing needs saving to resume a run. ``t`` and
``total_steps`` must tick on the same clock: with gradient accumulation both count optimiser steps, not micro-batches.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral

#: Any function of the 1-based optimiser step will do; the classes below are the paper's.
Schedule = Callable[[int], float]


@dataclass(frozen=True)
class _MovingSchedule(ABC):
    """γ over steps 1 to ``total_steps``, never above ``tau``; a step outside counts as the nearest one inside.

    Raises:
        ValueError: ``total_steps`` is not a whole number of at least 1, or ``tau`` lies outside [0, 1].
    """

    total_steps: int
    tau: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.total_steps, Integral) or self.total_steps < 1:
            raise ValueError(f"total_steps = {self.total_steps!r}: must be a whole number of at least 1")
        _check_unit_interval("tau", self.tau)

    def __call__(self, step: int) -> float:
        """γ at the optimiser step ``step``, which runs from 1 to ``total_steps``."""
        return self.tau * self._shape(min(max(step, 1), self.total_steps))

    @abstractmethod
    def _shape(self, step: int) -> float:
        """γ/τ at a step within the range."""


class LinearSchedule(_MovingSchedule):
    """γ_t = τ t/T, the paper's own choice: rises from τ/T to τ."""

    def _shape(self, step: int) -> float:
        return step / self.total_steps


class DescendingSchedule(_MovingSchedule):
    """γ_t = τ (1 − t/T): falls to 0 at the last step."""

    def _shape(self, step: int) -> float:
        return (self.total_steps - step) / self.total_steps


class CosineSchedule(_MovingSchedule):
    """γ_t = τ/2 (1 − cos(π t/T)): rises to τ, slowly at both ends."""

    def _shape(self, step: int) -> float:
        return (1 - math.cos(math.pi * step / self.total_steps)) / 2


@dataclass(frozen=True)
class StaticSchedule:
    """The same γ at every step; γ = 1 is plain cross-entropy.

    Raises:
        ValueError: ``gamma`` lies outside [0, 1].
    """

    gamma: float

    def __post_init__(self) -> None:
        _check_unit_interval("gamma", self.gamma)

    def __call__(self, step: int) -> float:  # noqa: ARG002 - every schedule is called alike
        """The constant γ."""
        return self.gamma


_MOVING: dict[str, type[_MovingSchedule]] = {
    "linear": LinearSchedule,
    "descending": DescendingSchedule,
    "cosine": CosineSchedule,
}


def make_schedule(name: str, total_steps: int, tau: float, gamma: float) -> Schedule:
    """The schedule called ``name``: the moving ones read ``total_steps`` and ``tau``, ``static`` reads ``gamma``.

    Raises:
        ValueError: no schedule has that name, or a value that the schedule reads is out of range.
    """
    if name == "static":
        return StaticSchedule(gamma)
    if name in _MOVING:
        return _MOVING[name](total_steps, tau)
    names = [*_MOVING, "static"]
    # The paper's text says "ascending" for equation 4, and the nearest spelling of that would be its opposite.
    near = ["linear"] if name == "ascending" else get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"schedule.name = {name!r}: must be one of {', '.join(names)}{hint}")


def _check_unit_interval(key: str, value: float) -> None:
    if not 0 <= value <= 1:  # written so that NaN fails too
        raise ValueError(f"{key} = {value!r}: must lie in [0, 1]")
