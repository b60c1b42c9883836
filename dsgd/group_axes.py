"""Where the examples are in a tensor: which dimension, followed from one torch function to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

#: In no dimension: the tensor was made of parameters, buffers and constants alone.
NOWHERE: Final = None
#: Reordered, reduced over, or moved by a function that is not known here.
LOST: Final = -1

Axis = int | None


class Axes:
    """The examples' dimension of every tensor that is met.

    A tensor that is neither ``constant`` nor made in the meantime comes from outside and has them in dimension 0. What
    a function makes of its inputs has them there too, unless the function moves them; what it makes of constants
    has them ``NOWHERE``.
    """

    def __init__(self, constants: Iterable[Tensor]) -> None:
        self.lost: set[Any] = set()  # graph nodes whose output has LOST them
        self._known: dict[int, tuple[Tensor, Axis]] = {}  # where it is not 0; holding the tensor keeps its id its own
        self._counting: set[int] = set()  # ids among these of 0, 1, 2, … along dimension 0 and nothing else
        for tensor in constants:
            self._known[id(tensor)] = tensor, NOWHERE

    def __getitem__(self, tensor: Tensor) -> Axis:
        """A dimension, ``NOWHERE`` or ``LOST``."""
        known = self._known.get(id(tensor))
        return 0 if known is None else known[1]

    def mark(self, values: Iterable[Any]) -> None:
        """From now on the tensors among ``values`` have the examples in dimension 0, unless they lost them."""
        for tensor in _tensors(values):
            if self[tensor] is NOWHERE:
                self._known.pop(id(tensor), None)
                self._counting.discard(id(tensor))

    def forget(self) -> None:
        """Let go of all tensors; the nodes stay."""
        self._known.clear()
        self._counting.clear()

    def counts(self, tensor: Any) -> bool:
        """Whether ``tensor`` is known to hold 0, 1, 2, … along dimension 0, and all its other dimensions are 1."""
        return isinstance(tensor, Tensor) and id(tensor) in self._counting

    def follow(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Note where the examples are after ``output = func(*args, **kwargs)``."""
        inputs = [*_tensors(args), *_tensors(kwargs.values())]
        places = {self[tensor] for tensor in inputs}
        axis = self._after(func, args, kwargs, places - {NOWHERE})
        for tensor in _tensors(args[:1] if func is Tensor.__setitem__ else (output,)):
            self._counting.discard(id(tensor))
            if axis == 0:
                self._known.pop(id(tensor), None)
                continue
            self._known[id(tensor)] = tensor, axis
            if axis == LOST and tensor.grad_fn is not None:
                self.lost.add(tensor.grad_fn)
            if (func is torch.arange and len(args) == 1) or any(self._still_counts(of, tensor) for of in inputs):
                self._counting.add(id(tensor))

    def _after(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], places: set[Axis]
    ) -> Axis:
        """Where the examples of the inputs that have any, at ``places``, are in the output."""
        if not places:
            return NOWHERE
        axis = places.pop()
        if places or axis is NOWHERE or axis == LOST:
            return LOST
        if func is Tensor.__getitem__:
            return self._indexed(axis, *args)
        move = _MOVES.get(func)
        if move is None:
            return 0 if axis == 0 else LOST
        try:
            return move(axis, *args, **kwargs)
        except (TypeError, IndexError):  # called in a way that is not known here
            return LOST

    def _indexed(self, axis: int, x: Tensor, index: Any) -> int:
        entries = index if isinstance(index, tuple) else (index,)
        if self[x] is NOWHERE:  # a table, looked up by what the examples hold
            return axis if len(entries) == 1 else LOST
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


def _place(axis: int, entries: tuple[Any, ...]) -> int:
    """Where dimension ``axis`` is after indexing by ``entries``, of which those before it are plain."""
    place = dim = 0
    for entry in entries:
        if entry is None:
            place += 1
        elif dim == axis:
            return place if entry is Ellipsis or (isinstance(entry, slice) and entry == slice(None)) else LOST
        elif not isinstance(entry, (int, slice)):
            return LOST
        else:
            place, dim = place + isinstance(entry, slice), dim + 1
    return place + axis - dim


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(entry for entry in value if isinstance(entry, Tensor))
    return found


# --- moves: called like the function itself, with the examples' dimension before its arguments -----------------------


def _transpose(axis: int, x: Tensor, dim0: int, dim1: int) -> int:
    one, other = dim0 % x.ndim, dim1 % x.ndim
    return {one: other, other: one}.get(axis, axis)


def _reverse(axis: int, x: Tensor) -> int:
    return x.ndim - 1 - axis


def _permute(axis: int, x: Tensor, *dims: Any) -> int:
    order = dims[0] if isinstance(dims[0], (tuple, list)) else dims
    return [dim % x.ndim for dim in order].index(axis)


def _remove(axis: int, x: Tensor, dim: int = 0, *args: Any) -> int:
    gone = dim % x.ndim
    return LOST if gone == axis else axis - (gone < axis)


def _squeeze(axis: int, x: Tensor, dim: int) -> int:
    return _remove(axis, x, dim) if x.shape[dim] == 1 else axis


def _unsqueeze(axis: int, x: Tensor, dim: int) -> int:
    return axis + (dim % (x.ndim + 1) <= axis)


def _cut(axis: int, x: Tensor, size: Any, dim: int = 0) -> int:
    return LOST if dim % x.ndim == axis else axis


def _cat(axis: int, tensors: Any, dim: int = 0) -> int:
    return LOST if dim % max(tensor.ndim for tensor in tensors) == axis else axis  # an empty vector fits anything


def _stack(axis: int, tensors: Any, dim: int = 0) -> int:
    return _unsqueeze(axis, tensors[0], dim)


def _repeat(axis: int, x: Tensor, *sizes: Any) -> int:
    each = sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes
    return axis if axis == 0 and len(each) == x.ndim and each[0] == 1 else LOST


def _reduce(axis: int, x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> int:
    """Over ``dim``, or over everything; what runs over the examples couples them."""
    if isinstance(dim, Tensor):  # the larger of two, say
        return axis
    dims = [dim] if isinstance(dim, int) else list(dim)
    return LOST if axis != 0 or 0 in [each % x.ndim for each in dims] else 0


def _reduce_late(axis: int, x: Tensor, *args: Any, dim: int = -1, **kwargs: Any) -> int:
    """The same where ``dim`` is a later argument: any that could mean dimension 0 is taken to."""
    return LOST if axis != 0 or any(at % x.ndim == 0 for at in (dim, *args[:2]) if type(at) is int) else 0


def _batch_norm(axis: int, x: Tensor, *args: Any, training: bool = False, **kwargs: Any) -> int:
    return LOST if (args[4] if len(args) > 4 else training) else axis


def _lose(axis: int, *args: Any, **kwargs: Any) -> int:
    return LOST


_BY_NAME: dict[str, Callable[..., int]] = {
    "transpose": _transpose,
    "swapaxes": _transpose,
    "swapdims": _transpose,
    "t": _reverse,
    "permute": _permute,
    "unbind": _remove,
    "select": _remove,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "split": _cut,
    "chunk": _cut,
    "cat": _cat,
    "stack": _stack,
    "repeat": _repeat,
    **dict.fromkeys(("sum", "mean", "var", "std", "prod", "max", "min", "amax", "amin", "all", "any"), _reduce),
    **dict.fromkeys(("argmax", "argmin", "logsumexp", "median", "softmax", "log_softmax", "cumsum"), _reduce),
    **dict.fromkeys(("sort", "topk", "kthvalue"), _reduce_late),
    **dict.fromkeys(("einsum", "tensordot", "outer", "cdist", "norm", "argsort", "cummax", "flip", "roll"), _lose),
    **dict.fromkeys(("movedim", "moveaxis", "tile", "masked_select", "index_select", "narrow"), _lose),
}
_MOVES: dict[Callable[..., Any], Callable[..., int]] = {
    **{getattr(home, name): move for home in (torch, Tensor) for name, move in _BY_NAME.items() if hasattr(home, name)},
    Tensor.T.__get__: _reverse,  # type: ignore[attr-defined]
    F.batch_norm: _batch_norm,
    F.normalize: _reduce_late,
    F.softmax: _reduce,
    F.log_softmax: _reduce,
}
