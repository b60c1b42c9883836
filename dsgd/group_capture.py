"""Both groups' gradients of linear layers out of a backward that runs anyway and stays what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from dsgd.group_rules import Split
from dsgd.methods.contracts import LossOutput


class GroupCapture:
    """Sums, over the backward passes inside ``watching``, of each group's weight gradients.

    Hooks read a layer's input and its output's gradient and change neither, so the training's numbers are the same
    bit for bit; the price is the multiplications of the watched layers' weight gradients. The gradients are those of
    the loss that is differentiated. The rows of example i of n must be the i-th n-th part of the layers' inputs
    (``GroupGradients`` finds out whether they are: its ``fallback`` is empty then).

    Attributes:
        counts: |W| and |C|, (2,) int64.
    """

    def __init__(self, layers: list[nn.Linear]) -> None:
        device = layers[0].weight.device
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self._layers = layers
        self._sums: list[tuple[Tensor, Tensor] | None] = [None] * len(layers)
        self._split = Split()
        self._last: tuple[Tensor, list[Tensor]] | None = None  # an input and its groups' rows, which layers may share

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Capture what is differentiated inside."""
        handles = [
            layer.register_forward_hook(partial(self._after_forward, position))
            for position, layer in enumerate(self._layers)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._last = None

    def groups(self) -> tuple[list[Tensor], list[Tensor]]:
        """Of each layer, in its weight's dtype, the gradient of the losses over W, and over C."""
        pairs = [
            (torch.zeros_like(layer.weight), torch.zeros_like(layer.weight)) if sums is None else sums
            for layer, sums in zip(self._layers, self._sums, strict=True)
        ]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def judge(self, output: LossOutput) -> None:
        """Between a forward and its backward: which examples are whose."""
        is_correct = output.is_correct.detach()
        rows = [members.nonzero().flatten() for members in (~is_correct, is_correct)]
        self._split.begin(rows, is_correct.long(), set())
        self.counts += torch.stack([output.statistics["wrong"], output.statistics["correct"]])

    def _after_forward(self, position: int, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(self._after_backward, position, inputs[0]))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _after_backward(self, position: int, x: Tensor, gradient: Tensor) -> None:
        outputs = self._split.parts(gradient, gradient.shape[-1])
        if self._last is None or self._last[0] is not x:
            self._last = x, self._split.parts(x.detach().to(gradient.dtype), x.shape[-1])
        dtype, old = self._layers[position].weight.dtype, self._sums[position]
        new = [(of_output.t() @ of_input).to(dtype) for of_output, of_input in zip(outputs, self._last[1], strict=True)]
        self._sums[position] = (new[0], new[1]) if old is None else (old[0] + new[0], old[1] + new[1])
