"""One encoder under a head for each of several tasks."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dsgd.models.classifier import Classifier

#: The logit of a class that an example's task lacks: its probability is exactly 0 in fp32.
ABSENT = -1e4


class Heads(nn.Module):
    """A head for each task, all of which see every row; a row's logits are those of its own task's head.

    So a row's logits do not depend on its place, no head is ever missing from the graph, and each layer keeps the
    examples in dimension 0. Beside the encoder a head costs next to nothing.

    Args:
        head: the architecture's own, whose last linear layer puts out the logits.
        num_classes: of each task.
    """

    def __init__(self, head: nn.Module, num_classes: Sequence[int]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(_with_classes(head, count) for count in num_classes)
        self.num_classes = list(num_classes)
        self.tasks: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Logits (n, K) of ``features`` (n, …), of which row i is of task ``self.tasks[i]``; K is the most classes."""
        assert self.tasks is not None
        logits: Tensor | None = None
        for task, (head, count) in enumerate(zip(self.heads, self.num_classes, strict=True)):
            own = F.pad(head(features), (0, max(self.num_classes) - count), value=ABSENT)
            logits = own if logits is None else torch.where((self.tasks == task)[:, None], own, logits)
        assert logits is not None
        return logits

    def idle(self, tasks: Collection[int]) -> list[nn.Parameter]:
        """Parameters of the heads of all tasks but ``tasks``."""
        others = [head for task, head in enumerate(self.heads) if task not in tasks]
        return [parameter for head in others for parameter in head.parameters()]


class MultiTaskClassifier(Classifier):
    """A classifier whose rows are of several tasks: beside the text's ``inputs`` it takes ``tasks`` (n,) int64."""

    def forward(self, **inputs: Tensor) -> Tensor:
        """Logits (n, K), K the most classes of a task; those that a row's task lacks are ``ABSENT``."""
        heads = self.head
        assert isinstance(heads, Heads)
        heads.tasks = inputs.pop("tasks")
        return super().forward(**inputs)


def leave_idle_heads(model: Classifier, tasks: Collection[int]) -> None:
    """Drop the gradients of heads without an example in the step, so that AdamW moves them by no momentum or decay.

    Args:
        model: any classifier; one with a single head is left alone.
        tasks: those that have examples in the step, on any process.
    """
    if isinstance(model.head, Heads):
        for parameter in model.head.idle(tasks):
            parameter.grad = None


def _with_classes(head: nn.Module, count: int) -> nn.Module:
    """A copy of ``head`` whose last linear layer has ``count`` outputs; the weights are to be drawn anew."""
    copied = copy.deepcopy(head)
    name, last = [(name, module) for name, module in copied.named_modules() if isinstance(module, nn.Linear)][-1]
    fresh = nn.Linear(last.in_features, count, bias=last.bias is not None)
    if not name:
        return fresh
    copied.set_submodule(name, fresh)
    return copied
