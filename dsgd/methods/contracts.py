"""What each slot of a method is handed and what it gives back, so that any two parts compose.

Shapes: ``n`` examples of one micro-batch, ``m`` valid labels of the whole optimiser window, ``K`` classes.
A part is a class in ``dsgd/methods/<slot>/<name>.py`` with the same name as its dataclass in ``config/parts.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from dsgd.models import Classifier

#: What a part wants in the history: key ``part/name`` to a 0-d tensor on the device; read at the logging interval.
Statistics = dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """The optimiser clock: ``number`` runs from 1 to ``total`` and stays put within one accumulation window."""

    number: int
    total: int


@dataclass(frozen=True)
class Batch:
    """One micro-batch: ``inputs`` are the model's keyword arguments, ``labels`` is (n,) int64, -100 = ignored."""

    inputs: dict[str, Tensor]
    labels: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on ``device``; to CUDA through pinned memory, so that the host need not wait for the copy."""
        moved = {name: _moved(tensor, device) for name, tensor in self.inputs.items()}
        return Batch(moved, _moved(self.labels, device))


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    pinned = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return pinned.to(device, non_blocking=True)


@dataclass(frozen=True)
class Window:
    """One optimiser step's examples: this process's micro-batches, and ``size`` = m over all processes.

    ``tasks`` are, of several tasks, the numbers of those that have examples in it, on any process.
    """

    batches: list[Batch]
    size: int
    step: Step
    tasks: tuple[int, ...] = ()


class LossOutput(NamedTuple):
    """Per-example losses ``(n,)`` already weighted, ``is_correct`` ``(n,)`` bool, statistics to be summed."""

    losses: Tensor
    is_correct: Tensor
    statistics: Statistics


class Loss(Protocol):
    """Slot ``loss``.

    A loss may have an attribute ``judges_in_evaluation_mode``: where it is true, a further argument ``judge`` (n, K)
    holds the logits of a forward pass in evaluation mode, without gradients.
    """

    def per_example(self, logits: Tensor, labels: Tensor, step: Step) -> LossOutput:
        """Weighted per-example losses of ``logits`` (n, K) against ``labels`` (n,)."""


class Initialization(Protocol):
    """Slot ``initialization``: changes the weights once, before step 1."""

    def __call__(self, model: nn.Module, context: InitializationContext) -> None:
        """Change ``model`` in place."""


class InitializationContext(Protocol):
    """What an initialization may use: its own random stream, on the CPU, and training of the head alone (LP-FT)."""

    generator: torch.Generator

    def train_head(self, model: Classifier, epochs: int, lr: float) -> None:
        """Train only the classification head, in evaluation mode; these steps count neither in t nor in T."""


class Adapter(Protocol):
    """Slot ``adapter``: decides which parameters train."""

    def __call__(self, model: nn.Module) -> nn.Module:
        """The model to train, changed in place: still a ``Classifier``, with ``requires_grad`` set."""

    def penalty(self, model: nn.Module) -> Tensor | None:
        """A term on the adapter's own parameters, added once a window, not divided by m, or None."""

    def after_step(self, model: nn.Module, step: Step) -> Statistics:
        """Called after the optimiser's step and before the gradients are cleared."""


class Objective(Protocol):
    """Loss plus regularizer on one micro-batch, and the means to differentiate it under any number of processes."""

    def micro_batches(self, model: nn.Module, window: Window) -> Iterator[tuple[Batch, AbstractContextManager[None]]]:
        """Each micro-batch with the context that delays gradient exchange to the last of them."""

    def __call__(self, model: nn.Module, batch: Batch, step: Step) -> LossOutput:
        """Forward ``batch`` and return its weighted per-example losses; the statistics are kept for the history."""

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of ``loss``, so that processes sum rather than average."""

    def add_penalty(self, model: nn.Module) -> None:
        """Add the gradient of the terms on the parameters alone: once a window, not divided by m."""

    def group_gradients(self, model: nn.Module, window: Window) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradients of the SUM of the losses over W and over C of the whole window and all processes.

        Two dicts, parameter name → gradient in fp32, zeros for an empty group; only parameters that train. An
        embedding's may be sparse and coalesced, with the same rows in both groups.
        """

    def unrecorded(self) -> AbstractContextManager[None]:
        """A context whose forwards leave no statistics (a second look at the same window)."""


class Gradient(Protocol):
    """Slot ``gradient``: how the window's mean gradient comes into ``parameter.grad``."""

    def __call__(self, model: nn.Module, window: Window, objective: Objective) -> Statistics:
        """Leave the window's gradient in ``parameter.grad`` (which is empty on entry)."""


class Transform(Protocol):
    """Slot ``transform``: what is done to the gradient before the optimiser. May be stateful (``state_dict``)."""

    def __call__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, step: Step) -> Statistics:
        """Change the gradients in place."""


class Regularizer(Protocol):
    """Slot ``regularizer``: what is added to the loss."""

    def watch(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context around the training forward whose terms are asked for next."""

    def per_example(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor | None:
        """Terms ``(n,)`` added to the per-example losses, or None."""

    def penalty(self, model: nn.Module) -> Tensor | None:
        """A term on the parameters alone, added once a window, or None."""


class Averaging(Protocol):
    """Slot ``averaging``: which weights are evaluated."""

    def update(self, model: nn.Module, step: Step) -> None:
        """Look at the weights after an optimiser step."""

    def result(self, model: nn.Module) -> AbstractContextManager[nn.Module]:
        """A context in which the averaged weights stand in ``model``; the trained ones return on exit."""

    def summary(self) -> dict[str, int]:
        """Columns for the run's summary row."""

    def variants(self, model: nn.Module) -> dict[str, AbstractContextManager[nn.Module]]:
        """The same for further averages that are to be evaluated at the end, by name."""
