"""A second look at a forward pass: the same dropout masks and precision, other noise, no trace in any random stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from dsgd.batches import IGNORED

if TYPE_CHECKING:
    from dsgd.models import Classifier


class Noise:
    """The generators of a run's noise: the k-th depends on the seed and k alone, whatever the device and the shapes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn = 0

    def next(self, device: torch.device) -> torch.Generator:
        """The next micro-batch's generator, on ``device``."""
        self.drawn += 1
        digest = hashlib.sha256(f"{self.seed}:{self.drawn}".encode()).digest()
        return torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "little"))


@dataclass(frozen=True)
class Moment:
    """The global random state of the CPU and of the device in use, and autocast's state."""

    device: torch.device
    random: list[Tensor]
    autocast: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, device: torch.device) -> Moment:
        """As it is; nothing waits for the device."""
        kind = device.type
        return cls(device, _random_state(device), torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))

    @contextmanager
    def again(self) -> Iterator[None]:
        """A context in which what was drawn after this moment is drawn once more; the state of now returns on exit."""
        present = _random_state(self.device)
        _set_random_state(self.device, self.random)
        try:
            with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.autocast):
                yield
        finally:
            _set_random_state(self.device, present)


def bare(model: nn.Module) -> Classifier:
    """The classifier without DDP around it.

    A second forward through DDP would overwrite buffers that the first one's graph needs; the gradients of one
    through the classifier itself are exchanged all the same.
    """
    return cast("Classifier", getattr(model, "module", model))


def of_valid(terms: Tensor, labels: Tensor) -> Tensor:
    """``terms`` (n,) with 0 for ignored examples, which are not among the m that the loss is divided by."""
    return terms.masked_fill(labels == IGNORED, 0.0)


def _random_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state()]


def _set_random_state(device: torch.device, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states[1])
