"""G_W and G_C, the gradients of the summed losses of the wrongly and of the correctly classified examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from dsgd.group_recorder import Recorder
from dsgd.group_rules import add

#: Parameter name to the gradient of a group's summed loss.
Group = dict[str, Tensor]

#: The same by the parameter's ``id``; sparse where an embedding's.
Gradients = dict[int, Tensor]


class GroupGradients:
    """Both groups' gradients out of one forward and one backward pass.

    ::

        with GroupGradients(model) as groups:
            logits = model(**inputs)
        losses = cross_entropy(logits, labels, reduction="none")
        wrong, correct = groups.backward(losses, logits.argmax(1) == labels)

    An ordinary backward of the summed losses already has, in its rows, each example's own gradient of every layer's
    output. Inside the block linear layers, normalisations, embeddings, convolutions and parameters that are
    broadcast over the examples keep what they need to form each group's weight gradient from the group's rows, which
    together are the multiplications of one ordinary backward; nothing is subtracted. What no rule covers is found by
    walking the graph, costs a second backward, and is named in ``fallback``; where examples influence each other
    (batch normalisation in training mode) or change their order, that is everything.

    Example i of n owns the i-th n-th part of the rows of the tensors that the model is called with, and of the losses.
    A model that mixes or reorders examples by a function that ``group_axes`` takes for harmless would go unnoticed:
    ``verify=True`` compares with two ordinary backward passes through the same graph.

    Args:
        model: whose forward runs inside the block; its parameters with ``requires_grad`` count.
        only: names of the parameters that count, where others are of no interest; all by default.
        verify: check every backward pass; for tests and for the first step with a new kind of model.

    Attributes:
        fallback: after ``backward``, the names of the parameters for which a second pass was needed.
    """

    def __init__(self, model: nn.Module, only: Collection[str] | None = None, *, verify: bool = False) -> None:
        self.fallback: list[str] = []
        self._model = model
        self._named = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and (only is None or name in only)
        }
        self._recorder = Recorder(model)
        self._verify = verify

    def __enter__(self) -> Self:
        self._hook = self._model.register_forward_pre_hook(self._recorder.begin, with_kwargs=True)
        self._recorder.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hook.remove()
        self._recorder.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    def backward(self, losses: Tensor, is_correct: Tensor, *, sparse: bool = False) -> tuple[Group, Group]:
        """Differentiate, and free the graph.

        Args:
            losses: (n,), per example, of forwards inside the block.
            is_correct: (n,) bool; the examples of C.
            sparse: leave the gradients of embedding matrices as sparse tensors, coalesced, the same rows in both.

        Returns:
            Two dicts for W and C, parameter name → gradient of the SUM of the group's losses, in the parameter's
            dtype; zeros for an empty group. ``parameter.grad`` is left alone.

        Raises:
            ValueError: ``losses`` and ``is_correct`` are not two vectors of one length.
            RuntimeError: ``verify`` found another gradient.
        """
        if losses.ndim != 1 or losses.shape != is_correct.shape:
            raise ValueError(
                f"losses {tuple(losses.shape)} and is_correct {tuple(is_correct.shape)}: must both be (n,)"
            )
        with torch.autocast(losses.device.type, enabled=False):
            return self._backward(losses, is_correct.detach().bool(), sparse)

    def _backward(self, losses: Tensor, is_correct: Tensor, sparse: bool) -> tuple[Group, Group]:
        self._recorder.stop()
        weights, uncovered = self._survey(losses)
        self.fallback = [name for name, parameter in self._named.items() if id(parameter) in uncovered]
        passes = [Pass.alone(~is_correct, losses), Pass.alone(is_correct, losses)]
        if not uncovered:
            passes = [Pass.of_both(is_correct, losses)]
        derived = [weight for weight in weights.values() if not weight.is_leaf]
        keep = self._verify or _reach(derived, {*weights, *uncovered})
        found = []
        for number, each in enumerate(passes, start=1):
            found += self._run(each, losses, weights, uncovered, keep or number < len(passes))
        for gradients in found:
            self._pass_on(derived, gradients)
        wrong, correct = (self._by_name(gradients, sparse) for gradients in found)
        if self._verify:
            self._compare(losses, is_correct, wrong, correct)
        return wrong, correct

    def _survey(self, losses: Tensor) -> tuple[Gradients, Gradients]:
        """By id, the weights whose groups the nodes below ``losses`` can form, and the parameters with another path.

        A weight may itself be computed from parameters; its own graph is not looked at here.
        """
        watched = {id(parameter): parameter for parameter in self._named.values()}
        weights: Gradients = {}
        uncovered: Gradients = {}
        split, lost = self._recorder.split, self._recorder.axes.lost
        for node, follow in _walk(losses.grad_fn):
            if node in lost:
                return {}, dict(watched)
            edges = node.next_functions
            if getattr(node, "split", None) is split and split.applies(node.leading, len(losses)):
                weights |= {id(w): w for w in node.weights if w is not None and (id(w) in watched or not w.is_leaf)}
                edges = edges[: node.data_inputs]
            elif not edges and id(getattr(node, "variable", None)) in watched:
                uncovered[id(node.variable)] = node.variable
            follow(edges)
        return {key: weight for key, weight in weights.items() if weight.requires_grad}, uncovered

    def _run(self, each: Pass, losses: Tensor, weights: Gradients, uncovered: Gradients, keep: bool) -> list[Gradients]:
        """One backward pass, and of each of its groups the gradients by id."""
        split, inputs = self._recorder.split, {**uncovered, **weights}
        if not inputs:
            return [{} for _ in each.rows]
        if weights:
            split.begin(each.rows, each.member, set(weights))
        ordinary = torch.autograd.grad(losses, list(inputs.values()), each.cotangent, keep, allow_unused=True)
        by_group = split.end()
        found = [{key: gradients[group] for key, gradients in by_group.items()} for group in range(len(each.rows))]
        _add_to(found[-1], zip(inputs, ordinary, strict=True))  # of uncovered parameters, which are met one by one
        return found

    def _pass_on(self, derived: list[Tensor], gradients: Gradients) -> None:
        """From weights that were computed from parameters to these, by an ordinary backward of that computation."""
        weights = [weight for weight in derived if id(weight) in gradients]
        if weights:
            of_weights = [_dense(gradients[id(weight)]) for weight in weights]
            parameters = list(self._named.values())
            of_parameters = torch.autograd.grad(weights, parameters, of_weights, retain_graph=True, allow_unused=True)
            _add_to(gradients, zip(map(id, parameters), of_parameters, strict=True))

    def _by_name(self, gradients: Gradients, sparse: bool) -> Group:
        group = {}
        for name, parameter in self._named.items():
            gradient = gradients.get(id(parameter))
            if gradient is None:
                group[name] = torch.zeros_like(parameter)
            else:
                group[name] = gradient.coalesce() if sparse and gradient.is_sparse else _dense(gradient)
        return group

    def _compare(self, losses: Tensor, is_correct: Tensor, wrong: Group, correct: Group) -> None:
        for group, members in (wrong, ~is_correct), (correct, is_correct):
            names, parameters = list(self._named), list(self._named.values())
            found = torch.autograd.grad(losses, parameters, members.to(losses.dtype), True, allow_unused=True)
            expected = {name: g for name, g in zip(names, found, strict=True) if g is not None}
            whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
            tolerance = 1e-9 if losses.dtype is torch.float64 else 2e-2
            for name, gradient in expected.items():
                scale = torch.maximum(gradient.norm(), 1e-3 * whole)  # some gradients are rounding around 0
                error = (_dense(group[name]) - gradient).norm()
                if not error <= tolerance * scale:
                    raise RuntimeError(f"{name}: the group's gradient is off by {float(error / scale):.1e}, relatively")


class Pass(NamedTuple):
    """One backward pass: each group's examples, each example's group, and the losses' gradient (n,)."""

    rows: list[Tensor]
    member: Tensor
    cotangent: Tensor

    @classmethod
    def of_both(cls, is_correct: Tensor, losses: Tensor) -> Pass:
        """W and C at once."""
        rows = [members.nonzero().flatten() for members in (~is_correct, is_correct)]
        return cls(rows, is_correct.long(), torch.ones_like(losses))

    @classmethod
    def alone(cls, members: Tensor, losses: Tensor) -> Pass:
        """One group; the gradient of all other examples is 0, so it does not matter whose they are."""
        return cls(
            [members.nonzero().flatten()], torch.zeros_like(members, dtype=torch.int64), members.to(losses.dtype)
        )


def _walk(start: Any) -> Iterator[tuple[Any, Callable[[Iterable[tuple[Any, int]]], None]]]:
    """Nodes of a graph, each once, with a function that takes the edges to go on by."""
    pending, seen = [start], {None}
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            yield node, lambda edges: pending.extend(edge[0] for edge in edges)


def _reach(derived: list[Tensor], others: set[int]) -> bool:
    """Whether the computation of a derived weight begins at one of the ``others``, so that two passes share it."""
    for weight in derived:
        for node, follow in _walk(weight.grad_fn):
            if id(getattr(node, "variable", None)) in others:
                return True
            follow(node.next_functions)
    return any(weight.grad_fn in {other.grad_fn for other in derived if other is not weight} for weight in derived)


def _add_to(gradients: Gradients, more: Iterable[tuple[int, Tensor | None]]) -> None:
    for key, gradient in more:
        if gradient is not None:
            gradients[key] = add(gradients[key], gradient) if key in gradients else gradient


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient
