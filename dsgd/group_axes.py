"""Where the examples are in a tensor: which dimension, followed from one torch function to the next.

A function that ``group_moves`` does not know counts as one that mixes the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from dsgd.group_moves import CUSTOM, LOST, MOVES, NOWHERE, Axis, expanded_index, tensors_in


class Axes:
    """The examples' dimension of every tensor that is met.

    A tensor without a history that is neither ``constant`` nor made in the meantime comes from outside and has the
    examples in dimension 0; one whose history was not followed has LOST them. What a function makes of constants
    alone has them ``NOWHERE``.

    Attributes:
        apart: graph nodes whose output has the examples in dimension 0.
        lost: graph nodes whose output has LOST them.
        merged: graph nodes of reshaped tensors -> the size of their dimension 0, which must be a multiple of the
            number of examples.
    """

    def __init__(self, constants: Iterable[Tensor]) -> None:
        self.apart: set[Any] = set()
        self.lost: set[Any] = set()
        self.merged: dict[Any, int] = {}
        self._known: dict[int, tuple[Tensor, Axis]] = {}  # where it is not 0; holding the tensor keeps its id its own
        self._counting: set[int] = set()  # ids among these of 0, 1, 2, … along dimension 0 and nothing else
        for tensor in constants:
            self._known[id(tensor)] = tensor, NOWHERE

    def __getitem__(self, tensor: Tensor) -> Axis:
        """A dimension, ``NOWHERE`` or ``LOST``."""
        known = self._known.get(id(tensor))
        if known is not None:
            return known[1]
        if tensor.grad_fn is None:
            return 0 if tensor.ndim > 0 else NOWHERE
        return 0 if tensor.grad_fn in self.apart else LOST

    def mark(self, values: Iterable[Any]) -> None:
        """From now on the tensors among ``values`` have the examples in dimension 0, unless they lost them."""
        for tensor in tensors_in(values):
            if self[tensor] is NOWHERE and tensor.ndim > 0:
                self._known.pop(id(tensor), None)
                self._counting.discard(id(tensor))
            if id(tensor) not in self._known and tensor.grad_fn is not None:
                self.apart.add(tensor.grad_fn)

    def forget(self) -> None:
        """Let go of all tensors; the nodes stay."""
        self._known.clear()
        self._counting.clear()

    def counts(self, tensor: Any) -> bool:
        """Whether ``tensor`` is known to hold 0, 1, 2, … along dimension 0, and all its other dimensions are 1."""
        return isinstance(tensor, Tensor) and id(tensor) in self._counting

    def places(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Axis]:
        """Where the examples are in each input of a function, by the input's id: to be asked for before it runs."""
        return {id(tensor): self[tensor] for tensor in tensors_in((*args, *kwargs.values()))}

    def follow(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        places: dict[int, Axis],
    ) -> None:
        """Note where the examples are after ``output = func(*args, **kwargs)``; ``places`` are the inputs'."""
        targets = tensors_in(args[:1] if output is None and _changes_first(func) else (output,))
        if not targets:
            return
        axis = self._after(func, args, kwargs, output if output is not None else args[0], places)
        for tensor in targets:
            before = places.get(id(tensor), axis)
            self._set(tensor, axis, func, args)
            if id(tensor) in places:
                self._set_shared(tensor, before, axis)

    def _set(self, tensor: Tensor, axis: Axis, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._counting.discard(id(tensor))
        if axis is not NOWHERE and axis >= tensor.ndim:
            axis = LOST
        node = tensor.grad_fn
        if axis == 0:
            self._known.pop(id(tensor), None)
            if node is not None:
                self.apart.add(node)
                if func in MOVES and MOVES[func].merges:
                    self.merged[node] = tensor.shape[0]
            return
        self._known[id(tensor)] = tensor, axis
        if axis == LOST and node is not None:
            self.lost.add(node)
        if (func is torch.arange and len(args) == 1) or any(self._still_counts(of, tensor) for of in tensors_in(args)):
            self._counting.add(id(tensor))

    def _set_shared(self, tensor: Tensor, before: Axis, axis: Axis) -> None:
        """After a change in place: tensors that share the memory have LOST the examples unless nothing moved."""
        if before == axis:
            return
        owner = tensor if tensor._base is None else tensor._base
        sharing = [owner, *(known for known, _ in self._known.values() if known._base is owner)]
        for other in sharing:
            if other is not tensor:
                self._known[id(other)] = other, LOST
                if other.grad_fn is not None:
                    self.lost.add(other.grad_fn)

    def _after(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        places: dict[int, Axis],
    ) -> Axis:
        """Where the examples of the inputs, at ``places``, are in the output."""
        found = {axis for axis in places.values() if axis is not NOWHERE}
        if not found:
            return NOWHERE
        if LOST in found or kwargs.get("out") is not None:
            return LOST
        move = MOVES.get(func) or CUSTOM.get(getattr(func, "_name", ""))
        if func is Tensor.__getitem__:
            return self._indexed(places, *args)
        if move is None:
            return LOST
        try:
            return move.rule(lambda tensor: places[id(tensor)], output, *args, **kwargs)
        except (TypeError, IndexError, KeyError, ValueError, AttributeError):  # called in a way that is not known here
            return LOST

    def _indexed(self, places: dict[int, Axis], x: Tensor, index: Any) -> Axis:
        axis, entries = places[id(x)], expanded_index(x, index)
        if entries is None:
            return LOST
        if axis is NOWHERE:  # a table, looked up by what the examples hold
            is_lookup = len(entries) == 1 and isinstance(entries[0], Tensor) and entries[0].dtype is torch.int64
            return places[id(entries[0])] if is_lookup else LOST
        others = [entry for entry in entries[1:] if isinstance(entry, (Tensor, list))]
        if axis == 0 and self.counts(entries[0]) and len(entries[0]) == len(x):  # x[0, 1, 2, …; something of each]
            return 0 if all(torch.as_tensor(other).ndim <= entries[0].ndim for other in others) else LOST
        return _place(axis, entries) if len(others) <= 1 else LOST

    def _still_counts(self, before: Tensor, after: Tensor) -> bool:
        """Whether ``after`` is a view of a counting ``before`` with further dimensions of 1."""
        if before is after or not self.counts(before) or after.ndim == 0:
            return False
        is_view = after.data_ptr() == before.data_ptr() and after.stride(0) == 1
        return is_view and after.shape[0] == before.numel() == after.numel()


def _changes_first(func: Callable[..., Any]) -> bool:
    """Whether a function without a result changes its first argument, by its name."""
    name = getattr(func, "__name__", "")
    return func is Tensor.__setitem__ or (name.endswith("_") and not name.endswith("__"))


def _place(axis: int, entries: tuple[Any, ...]) -> int:
    """Where dimension ``axis`` is after indexing by ``entries``, of which those before it are plain."""
    place = dim = 0
    for entry in entries:
        if entry is None:
            place += 1
        elif dim == axis:
            return place if isinstance(entry, slice) and entry == slice(None) else LOST
        elif not isinstance(entry, (int, slice)):
            return LOST
        else:
            place, dim = place + isinstance(entry, slice), dim + 1
    return place + axis - dim
