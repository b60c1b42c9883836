"""One backward pass: the gradient of the window's mean loss."""

from torch import nn

from dsgd.methods.contracts import Objective, Statistics, Window


class Plain:
    """Sum the per-example losses of all micro-batches and divide once by the window's true size.

    Averaging micro-batch means instead would weigh the examples of a partial micro-batch more.
    """

    def __call__(self, model: nn.Module, window: Window, objective: Objective) -> Statistics:
        """Leave the window's mean gradient in ``parameter.grad``."""
        for batch, exchange in objective.micro_batches(model, window):
            with exchange:
                objective.backward(objective(model, batch, window.step).losses.sum() / window.size)
        objective.add_penalty(model)
        return {}
