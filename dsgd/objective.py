"""Loss plus regularizer, summed per example, and its gradient under any number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dsgd.group_gradients import Group, GroupGradients
from dsgd.group_rules import add
from dsgd.methods.contracts import Adapter, Batch, Loss, LossOutput, Regularizer, Statistics, Step, Window

if TYPE_CHECKING:
    from dsgd.models import Classifier


def unwrapped(model: nn.Module) -> Classifier:
    """What DDP wraps, else the model itself; Accelerate's own answer looks through all modules each time."""
    bare: Any = model.module if isinstance(model, DistributedDataParallel) else model
    found: Classifier = bare
    return found


class ScaledObjective:
    """The objective that the ``gradient`` slot differentiates (``contracts.Objective``)."""

    def __init__(self, loss: Loss, regularizer: Regularizer, adapter: Adapter, accelerator: Accelerator) -> None:
        self.loss = loss
        self.regularizer = regularizer
        self.adapter = adapter
        self.accelerator = accelerator
        self._statistics: Statistics = {}
        self._records = True
        self._show: Callable[[LossOutput], None] | None = None

    def micro_batches(self, model: nn.Module, window: Window) -> Iterator[tuple[Batch, AbstractContextManager[None]]]:
        """Each micro-batch on the device, with gradient exchange delayed to the last."""
        for number, batch in enumerate(window.batches, start=1):
            last = number == len(window.batches)
            context = nullcontext() if last else self.accelerator.no_sync(model)
            yield batch.to(self.accelerator.device), context

    def __call__(self, model: nn.Module, batch: Batch, step: Step) -> LossOutput:
        """Weighted per-example losses (n,) of ``batch``, the regularizer's terms included."""
        with self.regularizer.watch(model):
            logits = model(**batch.inputs)
        if getattr(self.loss, "judges_in_evaluation_mode", False):
            output = self.loss.per_example(logits, batch.labels, step, judge=self._judge(model, batch))  # type: ignore[call-arg]
        else:
            output = self.loss.per_example(logits, batch.labels, step)
        extra = self.regularizer.per_example(model, batch, logits)
        if extra is not None:
            statistics = {**output.statistics, "regularizer": extra.detach().sum()}
            output = LossOutput(output.losses + extra, output.is_correct, statistics)
        self._add(output)
        if self._show is not None:
            self._show(output)
        return output

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of ``loss``; DDP averages over processes, and the method sums."""
        self.accelerator.backward(loss * self.accelerator.num_processes)

    def add_penalty(self, model: nn.Module) -> None:
        """Add the gradient of the regularizer's and the adapter's terms on the parameters alone.

        Outside of DDP's exchange: every process computes the same.
        """
        bare = unwrapped(model)
        for term in (self.regularizer.penalty(bare), self.adapter.penalty(bare)):
            if term is not None:
                torch.autograd.backward(term)

    def group_gradients(self, model: nn.Module, window: Window) -> tuple[Group, Group]:
        """Gradients of the summed losses over W and over C: whole window, all processes, fp32."""
        bare = unwrapped(model)  # exchanged by hand below, because DDP knows one gradient only
        alone = self.accelerator.num_processes == 1
        sums: tuple[Group, Group] = {}, {}
        for batch, _ in self.micro_batches(bare, window):
            with GroupGradients(bare) as groups:
                output = self(bare, batch, window.step)
            for total, part in zip(sums, groups.backward(*output[:2], sparse=alone), strict=True):
                for name, gradient in part.items():
                    total[name] = add(total[name], gradient) if name in total else gradient
        return sums if alone else (self._exchanged(sums[0]), self._exchanged(sums[1]))

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Forwards inside leave no statistics."""
        self._records = False
        try:
            yield
        finally:
            self._records = True

    @contextmanager
    def shown_to(self, show: Callable[[LossOutput], None]) -> Iterator[None]:
        """Each forward inside tells ``show`` its output, before it is differentiated."""
        self._show = show
        try:
            yield
        finally:
            self._show = None

    def collect(self) -> Statistics:
        """Sums over this process's micro-batches since the last call, as 0-d tensors on the device."""
        statistics, self._statistics = self._statistics, {}
        return statistics

    def _exchanged(self, group: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.accelerator.reduce(gradient, reduction="sum") for name, gradient in group.items()}

    @torch.no_grad()
    def _judge(self, model: nn.Module, batch: Batch) -> Tensor:
        bare = unwrapped(model)
        bare.eval()
        logits: Tensor = bare(**batch.inputs)
        bare.train()
        return logits

    def _add(self, output: LossOutput) -> None:
        if self._records:
            new = {"loss": output.losses.detach().sum(), **output.statistics}
            old = self._statistics
            self._statistics = {name: old[name] + value if name in old else value for name, value in new.items()}
