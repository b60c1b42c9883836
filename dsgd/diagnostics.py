"""Observers of a training that never change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dsgd.methods.contracts import Window

if TYPE_CHECKING:
    from dsgd.config.schema import Diagnostics
    from dsgd.training import Training


class Observer(Protocol):
    """Looks on; draws from no random stream of the run and leaves no gradient behind."""

    def start(self, training: Training) -> None:
        """Before the first step, the weights as initialised."""

    def before_step(self, training: Training, window: Window) -> None:
        """Before the optimiser step on ``window``, whose forward will draw from torch's generators as they are now."""

    def finish(self, training: Training) -> None:
        """After the last step; writes what was seen into the run folder."""


class NoObserver:
    """Sees nothing."""

    def start(self, training: Training) -> None:
        """Nothing."""

    def before_step(self, training: Training, window: Window) -> None:
        """Nothing."""

    def finish(self, training: Training) -> None:
        """Nothing."""


def make_observer(diagnostics: Diagnostics) -> Observer:
    """The observer that the config asks for."""
    del diagnostics
    return NoObserver()
