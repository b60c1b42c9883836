"""G_W and G_C, the gradients of the summed losses of the wrongly and of the correctly classified examples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dsgd.group_recorder import Recorder
from dsgd.group_rules import add

#: Parameter name to the gradient of a group's summed loss.
Group = dict[str, Tensor]

#: The same by the parameter's ``id``; sparse where an embedding's.
Gradients = dict[int, Tensor]

_log = logging.getLogger(__name__)

#: Part of the name of the graph nodes of ``triton_loss``.
_FUSED_LOSS = "dsgd_weighted_losses"

#: By model and names of parameters: whether one backward pass gave what an ordinary one gives, where that was tried.
_verdicts: WeakKeyDictionary[nn.Module, dict[frozenset[str], bool]] = WeakKeyDictionary()


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
    (batch normalisation in training mode), change their order, or pass through a function that ``group_moves`` does
    not know, that is everything.

    Example i of n owns the i-th n-th part of the rows of the tensors that the model is called with, and of the losses.
    The first backward pass with each model that has both groups is compared with an ordinary one for W, the cost of
    one further backward. Where they differ, this and all later calls with the model take two ordinary passes, and a
    warning is logged once.

    Args:
        model: whose forward runs inside the block; its parameters with ``requires_grad`` count.
        only: names of the parameters that count, where others are of no interest; all by default.
        verify: True compares both groups at every backward pass and raises on a difference; False never compares.

    Attributes:
        fallback: after ``backward``, the names of the parameters for which a second pass was needed.
        verified: after ``backward``, whether one pass with this model has been compared and was right.
    """

    def __init__(self, model: nn.Module, only: Collection[str] | None = None, *, verify: bool | None = None) -> None:
        self.fallback: list[str] = []
        self.verified = False
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
            RuntimeError: ``verify=True`` found another gradient.
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
        verdicts, key = _verdicts.setdefault(self._model, {}), frozenset(self._named)
        if verdicts.get(key) is False:
            weights, uncovered = {}, self._watched()
        compares = self._verify is True or (self._verify is None and key not in verdicts)
        compares = compares and bool(weights) and (self._verify is True or _has_both(is_correct))
        wrong, correct = self._groups(losses, is_correct, weights, uncovered, compares, sparse)
        if compares:
            difference = self._difference(losses, ~is_correct, wrong)
            if self._verify:
                _raise(difference or self._difference(losses, is_correct, correct))
            verdicts[key] = difference is None
            if difference is not None:
                _log.warning("two backward passes a step from now on: in one pass, %s", difference)
                uncovered = self._watched()
                wrong, correct = self._groups(losses, is_correct, {}, uncovered, False, sparse)
        self.verified = verdicts.get(key, False)
        self.fallback = [name for name, parameter in self._named.items() if id(parameter) in uncovered]
        return wrong, correct

    def _groups(
        self, losses: Tensor, is_correct: Tensor, weights: Gradients, uncovered: Gradients, keep: bool, sparse: bool
    ) -> tuple[Group, Group]:
        """Both groups in one pass where nothing is ``uncovered``, else in two; ``keep`` leaves the graph."""
        passes = [Pass.alone(~is_correct, losses), Pass.alone(is_correct, losses)]
        if not uncovered:
            passes = [Pass.of_both(is_correct, losses)]
        derived = [weight for weight in weights.values() if not weight.is_leaf]
        keep = keep or _reach(derived, {*weights, *uncovered})
        found = []
        for number, each in enumerate(passes, start=1):
            found += self._run(each, losses, weights, uncovered, keep or number < len(passes))
        for gradients in found:
            self._pass_on(derived, gradients)
        wrong, correct = (self._by_name(gradients, sparse) for gradients in found)
        return wrong, correct

    def _watched(self) -> Gradients:
        """The parameters that count, by id."""
        return {id(parameter): parameter for parameter in self._named.values()}

    def _survey(self, losses: Tensor) -> tuple[Gradients, Gradients]:
        """By id, the weights whose groups the nodes below ``losses`` can form, and the parameters with another path.

        A weight may itself be computed from parameters; its own graph is not looked at here.
        """
        watched = self._watched()
        weights: Gradients = {}
        uncovered: Gradients = {}
        split, axes, n = self._recorder.split, self._recorder.axes, len(losses)
        if not _ends_apart(losses.grad_fn, axes.apart, split):
            return {}, watched
        for node, follow in _walk(losses.grad_fn):
            if node in axes.lost or axes.merged.get(node, n) % n:
                return {}, watched
            edges = node.next_functions
            if getattr(node, "split", None) is split and split.applies(node.leading, n):
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

    def _difference(self, losses: Tensor, members: Tensor, group: Group) -> str | None:
        """How ``group`` differs from the ordinary gradient of the ``members``' losses, or None."""
        named = list(self._named.items())
        parameters = [parameter for _, parameter in named]
        found = torch.autograd.grad(losses, parameters, members.to(losses.dtype), True, allow_unused=True)
        pairs = [(name, g) for (name, _), g in zip(named, found, strict=True) if g is not None]
        whole = torch.stack([gradient.norm() for _, gradient in pairs]).norm()
        tolerance = self._tolerance(losses.dtype)
        for name, gradient in pairs:
            scale = torch.maximum(gradient.norm(), 1e-3 * whole)  # some gradients are rounding around 0
            error = (_dense(group[name]) - gradient).norm()
            if not error <= tolerance * scale:
                return f"the group's gradient of {name} is off by {float(error / scale):.1e}, relatively"
        return None

    def _tolerance(self, dtype: torch.dtype) -> float:
        """Relative: far above rounding, in TF32 too, and far below what mixed examples do."""
        is_double = dtype is torch.float64 and all(each.dtype is dtype for each in self._named.values())
        return 1e-9 if is_double else 2e-2 if self._recorder.low_precision else 5e-3


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


def _ends_apart(start: Any, apart: Collection[Any], split: Any) -> bool:
    """Whether all that was computed after the block, from ``start`` down to what was followed, is known to be harmless.

    The losses may be computed after the block from the logits, where no function is followed.
    """
    for node, follow in _walk(start):
        if node in apart or getattr(node, "split", None) is split:
            continue
        keeps = _AFTER_THE_BLOCK.get(node.name())
        if _FUSED_LOSS not in node.name() and (keeps is None or not keeps(node)):
            return False
        follow(node.next_functions)
    return True


def _has_both(is_correct: Tensor) -> bool:
    return bool(is_correct.any()) and not bool(is_correct.all())


def _raise(difference: str | None) -> None:
    if difference is not None:
        raise RuntimeError(difference)


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


def _always(_: Any) -> bool:
    return True


def _over_later(node: Any) -> bool:
    """Whether a reduction, or a softmax, runs over other dimensions than the first."""
    dims = node._saved_dim if isinstance(node._saved_dim, tuple) else (node._saved_dim,)
    like = getattr(node, "_saved_result", getattr(node, "_saved_index", None))
    ndim = len(node._saved_self_sym_sizes) if like is None else like.ndim
    return len(dims) > 0 and all((dim if dim < ndim else dim - 2**64 + ndim) > 0 for dim in dims)  # -1 is 2^64 - 1


#: Graph nodes of what is usually done to logits (n, K) until they are losses (n,), and whether they keep rows apart.
_AFTER_THE_BLOCK: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys((f"{name}Backward{of}" for name in ("Add", "Sub", "Mul", "Div") for of in (0, 1)), _always),
    **dict.fromkeys((f"{name}Backward0" for name in ("Neg", "Exp", "Log", "Pow", "Abs", "MaskedFill")), _always),
    **dict.fromkeys(("WhereBackward0", "ToCopyBackward0", "ClampBackward1"), _always),
    "NllLossBackward0": lambda node: node._saved_reduction == 0,
    **dict.fromkeys(("LogSoftmaxBackward0", "SoftmaxBackward0", "SumBackward1"), _over_later),
    **dict.fromkeys(("GatherBackward0", "SqueezeBackward1"), _over_later),
}
