"""Loss plus regularizer, summed per example, and its gradient under any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from accelerate import Accelerator
from torch import Tensor, nn

from dsgd.methods.contracts import Batch, Loss, LossOutput, Regularizer, Statistics, Step, Window


class ScaledObjective:
    """The objective that the ``gradient`` slot differentiates (``contracts.Objective``)."""

    def __init__(self, loss: Loss, regularizer: Regularizer, accelerator: Accelerator) -> None:
        self.loss = loss
        self.regularizer = regularizer
        self.accelerator = accelerator
        self._statistics: Statistics = {}

    def micro_batches(self, model: nn.Module, window: Window) -> Iterator[tuple[Batch, AbstractContextManager[None]]]:
        """Each micro-batch on the device, with gradient exchange delayed to the last."""
        for number, batch in enumerate(window.batches, start=1):
            last = number == len(window.batches)
            context = nullcontext() if last else self.accelerator.no_sync(model)
            yield batch.to(self.accelerator.device), context

    def __call__(self, model: nn.Module, batch: Batch, step: Step) -> LossOutput:
        """Weighted per-example losses (n,) of ``batch``, the regularizer's terms included."""
        logits = model(**batch.inputs)
        output = self.loss.per_example(logits, batch.labels, step)
        extra = self.regularizer.per_example(model, batch, logits)
        if extra is not None:
            output = output._replace(losses=output.losses + extra)
        self._add(output)
        return output

    def penalty(self, model: nn.Module) -> Tensor | None:
        """The regularizer's term on the parameters alone."""
        return self.regularizer.penalty(model)

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of ``loss``; DDP averages over processes, and the method sums."""
        self.accelerator.backward(loss * self.accelerator.num_processes)

    def collect(self) -> Statistics:
        """Sums over this process's micro-batches since the last call, as 0-d tensors on the device."""
        statistics, self._statistics = self._statistics, {}
        return statistics

    def _add(self, output: LossOutput) -> None:
        new = {"loss": output.losses.detach().sum(), **output.statistics}
        old = self._statistics
        self._statistics = {name: old[name] + value if name in old else value for name, value in new.items()}
