"""The dataclasses of what fills a method's slots, slot by slot, and γ_t's. Torch-free.

To add a part: its dataclass here and in ``PARTS``, ``conf/<slot>/<name>.yaml``, and ``dsgd/methods/<slot>/<name>.py``
with a class of the dataclass's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from omegaconf import MISSING

from dsgd.config.fields import at_least, fraction, within


@dataclass
class Part:
    """What fills one slot; ``name`` is the file's name in ``conf/<slot>/`` and ``dsgd/methods/<slot>/``."""

    name: str = MISSING


@dataclass
class Loss(Part):
    """Per-example losses and their weights."""

    reads_schedule: ClassVar[bool] = False
    label_smoothing: float = fraction(0.0)

    def needs_whole_window(self) -> bool:
        """Whether the weights depend on all examples of the optimiser window, so that it cannot be split."""
        return False


@dataclass
class CrossEntropy(Loss):
    """Plain mean cross-entropy: full fine-tuning."""

    name: str = "cross_entropy"


class Ties(Enum):
    """Whether an example whose true class shares the highest logit counts as wrong or goes by ``argmax``."""

    wrong = "wrong"
    argmax = "argmax"


class Normalization(Enum):
    """``full_m`` is the method; the other two are ablations that change the step size."""

    full_m = "full_m"
    sum_w = "sum_w"
    per_group = "per_group"


@dataclass
class DSGD(Loss):
    """Dynamic scaled gradient descent."""

    reads_schedule: ClassVar[bool] = True
    name: str = "dsgd"
    ties: Ties = Ties.wrong
    normalization: Normalization = Normalization.full_m

    def needs_whole_window(self) -> bool:
        """The ablations divide by sums over the whole window."""
        return self.normalization is not Normalization.full_m


class ScheduleName(Enum):
    """The shapes of γ_t."""

    linear = "linear"
    descending = "descending"
    cosine = "cosine"
    static = "static"


@dataclass
class Schedule:
    """γ_t over the optimiser steps; ``tau`` scales the moving shapes, ``gamma`` is the static value."""

    name: ScheduleName = ScheduleName.linear
    tau: float = within(1.0, 0, 1)
    gamma: float = within(1.0, 0, 1)


@dataclass
class NoInitialization(Part):
    """The weights stay as loaded."""

    name: str = "none"


@dataclass
class Full(Part):
    """All parameters train: full fine-tuning."""

    name: str = "full"


@dataclass
class Plain(Part):
    """One backward pass."""

    name: str = "plain"


@dataclass
class Clip(Part):
    """Clip the global gradient norm; 0 = never."""

    name: str = "clip"
    clip: float = at_least(1.0, 0)


@dataclass
class NoRegularizer(Part):
    """Nothing is added to the loss."""

    name: str = "none"


@dataclass
class Last(Part):
    """The weights after the last step are evaluated."""

    name: str = "last"


#: The slots whose parts are method files, in the order of the training step.
SLOTS = ("loss", "initialization", "adapter", "gradient", "transform", "regularizer", "averaging")

#: Every part, by slot. ``conf/<slot>/<name>.yaml`` and ``dsgd/methods/<slot>/<name>.py`` carry the same name.
PARTS: dict[str, tuple[type[Part], ...]] = {
    "loss": (CrossEntropy, DSGD),
    "initialization": (NoInitialization,),
    "adapter": (Full,),
    "gradient": (Plain,),
    "transform": (Clip,),
    "regularizer": (NoRegularizer,),
    "averaging": (Last,),
}
