"""The torch functions that are known to keep examples apart, and where each leaves the examples' dimension.

A rule is called like the function itself, with two arguments before its own: ``at``, which gives the dimension of the
examples in an input, and the function's output. It answers with their dimension in the output, or ``LOST``. What it
cannot answer by the shapes it refuses: a wrong LOST costs a second backward pass, a wrong dimension wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

#: In no dimension: the tensor was made of parameters, buffers and constants alone.
NOWHERE: Final = None
#: Reordered, reduced over, or moved by a function that is not known here.
LOST: Final = -1

Axis = int | None
At = Callable[[Tensor], Axis]


class Move(NamedTuple):
    """A function's rule; ``merges`` where the output's dimension 0 may hold fewer rows than there are examples."""

    rule: Callable[..., Axis]
    merges: bool = False


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among ``values`` and in lists, tuples and dicts of them."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(tensors_in(value))
        elif isinstance(value, dict):
            found.extend(tensors_in(value.values()))
    return found


def expanded_index(x: Tensor, index: Any) -> tuple[Any, ...] | None:
    """The entries of ``x[index]`` with slices in the ellipsis's place; None where one is a truth value."""
    entries = index if isinstance(index, tuple) else (index,)
    if any(isinstance(entry, bool) for entry in entries):
        return None
    if not any(entry is Ellipsis for entry in entries):
        return entries
    place = next(position for position, entry in enumerate(entries) if entry is Ellipsis)
    dims = sum(_dims_taken(entry) for entry in entries if entry is not Ellipsis)
    return (*entries[:place], *(slice(None) for _ in range(x.ndim - dims)), *entries[place + 1 :])


def _dims_taken(entry: Any) -> int:
    if entry is None:
        return 0
    return entry.ndim if isinstance(entry, Tensor) and entry.dtype in (torch.bool, torch.uint8) else 1


# --- one rule for many functions ------------------------------------------------------------------------------------


def _pointwise(at: At, output: Any, *args: Any, **kwargs: Any) -> Axis:
    """Each output element depends on the input elements in its place, under broadcasting."""
    first = tensors_in((output,))[0]
    places = set()
    for tensor in tensors_in((*args, *kwargs.values())):
        axis = at(tensor)
        if axis is not NOWHERE:
            place = first.ndim - tensor.ndim + axis
            if place < 0 or tensor.shape[axis] not in (1, first.shape[place]):
                return LOST
            places.add(place)
    return places.pop() if len(places) == 1 else LOST


def _like_first(at: At, output: Any, x: Tensor, *args: Any, **kwargs: Any) -> Axis:
    """The first input's elements where they were; of further tensors only the dtype or shape counts."""
    return at(x)


def _of_shape_alone(at: At, output: Any, *args: Any, **kwargs: Any) -> Axis:
    return NOWHERE


def _among(axis: int, x: Tensor, dim: Any) -> bool:
    """Whether ``axis`` is one of the dimensions ``dim``; also where that cannot be told."""
    dims = [dim] if isinstance(dim, int) else list(dim)
    return not dims or any(isinstance(each, bool) for each in dims) or axis in [each % x.ndim for each in dims]


def _reduce(at: At, output: Any, x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Axis:
    """Over ``dim``, or over everything; what runs over the examples couples them."""
    if isinstance(dim, Tensor):  # the larger of two, say
        return _pointwise(at, output, x, dim)
    axis = kwargs.pop("axis", None)
    dim = axis if dim is None else dim
    return _reduced(at, output, x, dim)


def _reduce_by_third(at: At, output: Any, x: Tensor, _: Any = None, dim: Any = None, *args: Any, **kwargs: Any) -> Axis:
    return _reduced(at, output, x, dim)


def _reduced(at: At, output: Any, x: Tensor, dim: Any) -> Axis:
    axis = at(x)
    if axis is NOWHERE or _among(axis, x, dim):
        return LOST
    if tensors_in((output,))[0].ndim == x.ndim:
        return axis
    dims = [dim] if isinstance(dim, int) else list(dim)
    return axis - int(sum(each % x.ndim < axis for each in dims))


def _along(position: int, default: Any = None) -> Callable[..., Axis]:
    """A rule for functions that work along ``dim``, their argument number ``position``, and keep the shape's length."""

    def rule(at: At, output: Any, x: Tensor, *args: Any, dim: Any = default, dims: Any = None, **kwargs: Any) -> Axis:
        if len(args) >= position:
            dim = args[position - 1]
        axis = at(x)
        dim = dim if dims is None else dims
        others = [at(tensor) for tensor in tensors_in((*args, *kwargs.values()))]
        return LOST if any(other is not NOWHERE for other in others) or _among(_known(axis), x, dim) else axis

    return rule


def _known(axis: Axis) -> int:
    if axis is NOWHERE:
        raise ValueError("no examples in the first input")
    return axis


def _batched(ndim: int) -> Callable[..., Axis]:
    """A rule for functions of (examples, …) with ``ndim`` dimensions; with one less they take a single example."""

    def rule(at: At, output: Any, x: Tensor, *args: Any, **kwargs: Any) -> Axis:
        others = [at(tensor) for tensor in tensors_in((*args, *kwargs.values()))]
        is_plain = at(x) == 0 and x.ndim == ndim and all(other is NOWHERE for other in others)
        same = tensors_in((output,))[0].shape[0] == x.shape[0]
        return 0 if is_plain and same else LOST

    return rule


def _unreduced(
    at: At, output: Tensor, x: Tensor, target: Tensor, *args: Any, reduction: str = "mean", **kwargs: Any
) -> Axis:
    """A loss of each example; ``target`` is a class's index or of the input's shape."""
    others = [at(tensor) for tensor in tensors_in((*args, *kwargs.values()))]
    if reduction != "none" or args or at(x) != 0 or at(target) not in (0, NOWHERE):
        return LOST
    same = output.ndim > 0 and output.shape[0] == x.shape[0] == target.shape[0]
    return 0 if same and x.ndim >= target.ndim and all(other is NOWHERE for other in others) else LOST


# --- rules of single functions --------------------------------------------------------------------------------------


def _transpose(at: At, output: Any, x: Tensor, dim0: int, dim1: int) -> Axis:
    axis, one, other = _known(at(x)), dim0 % x.ndim, dim1 % x.ndim
    return {one: other, other: one}.get(axis, axis)


def _reverse(at: At, output: Any, x: Tensor) -> Axis:
    return x.ndim - 1 - _known(at(x))


def _swap_last(at: At, output: Any, x: Tensor) -> Axis:
    return _transpose(at, output, x, -2, -1)


def _permute(at: At, output: Any, x: Tensor, *dims: Any) -> Axis:
    order = dims[0] if isinstance(dims[0], (tuple, list)) else dims
    return [dim % x.ndim for dim in order].index(_known(at(x)))


def _remove(at: At, output: Any, x: Tensor, dim: int = 0, *args: Any) -> Axis:
    axis, gone = _known(at(x)), dim % x.ndim
    return LOST if gone == axis else axis - (gone < axis)


def _squeeze(at: At, output: Any, x: Tensor, dim: int) -> Axis:
    return _remove(at, output, x, dim) if x.shape[dim] == 1 else at(x)


def _unsqueeze(at: At, output: Any, x: Tensor, dim: int) -> Axis:
    axis = _known(at(x))
    return axis + (dim % (x.ndim + 1) <= axis)


def _cut(at: At, output: Any, x: Tensor, size: Any, dim: int = 0) -> Axis:
    axis = _known(at(x))
    return LOST if dim % x.ndim == axis else axis


def _narrow(at: At, output: Any, x: Tensor, dim: int, start: Any, length: Any) -> Axis:
    return _cut(at, output, x, length, dim)


def _common(at: At, tensors: Iterable[Tensor]) -> int:
    """The one dimension of the examples in all ``tensors`` that have any."""
    (axis,) = {at(tensor) for tensor in tensors} - {NOWHERE}
    return _known(axis)


def _cat(at: At, output: Tensor, tensors: Any, dim: int = 0) -> Axis:
    axis = _common(at, tensors)
    return LOST if dim % output.ndim == axis else axis


def _stack(at: At, output: Tensor, tensors: Any, dim: int = 0) -> Axis:
    axis = _common(at, tensors)
    return axis + (dim % output.ndim <= axis)


def _reshape(at: At, output: Tensor, x: Tensor, *shape: Any, **kwargs: Any) -> Axis:
    """Rows are cut or joined in their order; ``Move.merges`` has it checked that none is of two examples."""
    axis = _known(at(x))
    if kwargs or any(isinstance(size, torch.dtype) for size in shape):
        return LOST
    if axis == 0:
        return 0
    return axis if output.shape[: axis + 1] == x.shape[: axis + 1] else LOST


def _flatten(at: At, output: Tensor, x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Axis:
    return _reshape(at, output, x)


def _unflatten(at: At, output: Tensor, x: Tensor, dim: Any, sizes: Any) -> Axis:
    return _reshape(at, output, x)


def _expand(at: At, output: Tensor, x: Tensor, *sizes: Any, **kwargs: Any) -> Axis:
    return NOWHERE if at(x) is NOWHERE else _pointwise(at, output, x)


def _flip(at: At, output: Any, x: Tensor, *dims: Any, **kwargs: Any) -> Axis:
    each = dims[0] if dims and isinstance(dims[0], (tuple, list)) else dims or kwargs["dims"]
    return LOST if _among(_known(at(x)), x, each) else at(x)


def _repeat(at: At, output: Any, x: Tensor, *sizes: Any) -> Axis:
    each = sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes
    return 0 if at(x) == 0 and len(each) == x.ndim and each[0] == 1 else LOST


def _repeat_interleave(at: At, output: Any, x: Tensor, repeats: Any, dim: int | None = None, **kwargs: Any) -> Axis:
    return at(x) if isinstance(repeats, int) and dim is not None else LOST


def _matmul(at: At, output: Tensor, one: Tensor, other: Tensor) -> Axis:
    """Rows of ``one``, columns of ``other`` and batches of both keep their place; the dimension summed over is lost."""
    places = set()
    for tensor, summed in (one, one.ndim - 1), (other, max(other.ndim - 2, 0)):
        axis = at(tensor)
        if axis is not NOWHERE:
            if axis == summed:
                return LOST
            is_batch = axis < tensor.ndim - 2
            # Of a vector nothing is left, so the other's remaining dimensions are the output's.
            whole = max(one.ndim, other.ndim) if min(one.ndim, other.ndim) > 1 else tensor.ndim
            places.add((whole - tensor.ndim + axis, is_batch))
    if len(places) != 1 or (NOWHERE not in (at(one), at(other)) and not next(iter(places))[1]):
        return LOST
    place, _ = places.pop()
    return place - (min(one.ndim, other.ndim) == 1 and place >= output.ndim)


def _addmm(at: At, output: Tensor, added: Tensor, one: Tensor, other: Tensor, **kwargs: Any) -> Axis:
    return _matmul(at, output, one, other) if at(added) is NOWHERE else LOST


def _linear(at: At, output: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Axis:
    axis = _known(at(input))
    are_weights = all(at(tensor) is NOWHERE for tensor in tensors_in((weight, bias)))
    return axis if are_weights and axis < input.ndim - 1 else LOST


def _embedding(at: At, output: Any, input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Axis:
    return at(input) if at(weight) is NOWHERE else LOST


def _normalized(
    at: At, output: Any, input: Tensor, shape: Any, weight: Any = None, bias: Any = None, *args: Any, **kwargs: Any
) -> Axis:
    """Over the last dimensions."""
    axis, count = _known(at(input)), 1 if isinstance(shape, int) else len(shape)
    are_weights = all(at(tensor) is NOWHERE for tensor in tensors_in((weight, bias)))
    return axis if are_weights and axis < input.ndim - count else LOST


def _group_norm(at: At, output: Any, input: Tensor, groups: int, *args: Any, **kwargs: Any) -> Axis:
    return _batched(input.ndim)(at, output, input, *args, **kwargs)


def _batch_norm(at: At, output: Any, input: Tensor, *args: Any, training: bool = False, **kwargs: Any) -> Axis:
    trains = args[4] if len(args) > 4 else training
    others = [at(tensor) for tensor in tensors_in((*args, *kwargs.values()))]
    return LOST if trains or at(input) != 0 or any(other is not NOWHERE for other in others) else 0


def _convolution(at: At, output: Tensor, input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Axis:
    return _batched(weight.ndim)(at, output, input, weight, *args, **kwargs)


def _pad(at: At, output: Any, input: Tensor, pad: Any, *args: Any, **kwargs: Any) -> Axis:
    """From the last dimension backwards."""
    axis = _known(at(input))
    return axis if axis < input.ndim - len(pad) // 2 else LOST


def _resize(at: At, output: Tensor, input: Tensor, *args: Any, **kwargs: Any) -> Axis:
    return _batched(input.ndim)(at, output, input, *args, **kwargs) if input.ndim >= 3 else LOST


def _attention(
    at: At, output: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *args: Any, **kwargs: Any
) -> Axis:
    axis = _pointwise(at, output, query, value)  # of one shape but for the last two dimensions
    if any(at(tensor) != axis for tensor in (query, key, value)) or _known(axis) >= query.ndim - 2:
        return LOST
    of_mask = NOWHERE if attn_mask is None else at(attn_mask)
    aligned = of_mask is NOWHERE or output.ndim - attn_mask.ndim + of_mask == axis
    return axis if aligned and query.ndim == key.ndim == value.ndim == output.ndim else LOST


def _gather(at: At, output: Tensor, x: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Axis:
    """Also scattering: row i of each input meets row i of the others, where ``dim`` is another dimension."""
    inputs = [x, index, *tensors_in((*args, *kwargs.values()))]
    axis = _common(at, inputs)
    rows = {tensor.shape[axis] for tensor in inputs if tensor.ndim > 0}
    same = len(rows) == 1 and all(tensor.ndim in (0, x.ndim) for tensor in inputs)
    return axis if same and dim % x.ndim != axis else LOST


def _where(at: At, output: Any, condition: Tensor, input: Any, other: Any) -> Axis:
    return _pointwise(at, output, condition, input, other)


def _set_item(at: At, output: Any, x: Tensor, index: Any, value: Any) -> Axis:
    """Rows of the examples written to the same rows."""
    entries = expanded_index(x, index)
    if entries is None:
        return LOST
    sources = [tensor for tensor in tensors_in((value,)) if tensor.ndim > 0 and at(tensor) is not NOWHERE]
    mask = entries[0]
    if isinstance(mask, Tensor) and mask.dtype is torch.bool:  # something constant where the mask is true
        is_aligned = len(entries) == 1 and not tensors_in((value,)) and mask.ndim <= x.ndim
        return 0 if is_aligned and at(x) in (0, NOWHERE) and at(mask) in (0, NOWHERE) else LOST
    plain = mask == slice(None) if isinstance(mask, slice) else False
    plain = plain and all(isinstance(entry, (int, slice)) for entry in entries[1:])
    region = x.ndim - sum(isinstance(entry, int) for entry in entries)
    aligned = all(at(source) == 0 and source.ndim == region and len(source) == len(x) for source in sources)
    return 0 if plain and aligned and at(x) in (0, NOWHERE) else LOST


def _losses_of_rows(at: At, output: Any, logits: Tensor, labels: Tensor, gamma: Tensor, *args: Any) -> Axis:
    apart = at(logits) == 0 and at(labels) in (0, NOWHERE) and at(gamma) is NOWHERE
    return 0 if apart and logits.shape[0] == labels.shape[0] else LOST


# --- by name --------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    return text.split()


_POINTWISE = _words(
    """
    abs absolute add addcdiv addcmul sub subtract rsub mul multiply div divide true_divide floor_divide remainder fmod
    neg negative positive pow float_power exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan
    asin acos atan atan2 arctan2 sinh cosh tanh asinh acosh atanh sinc sigmoid logit erf erfc erfinv lgamma digamma relu
    relu6 gelu silu elu selu celu mish softplus softsign tanhshrink softshrink hardshrink hardtanh hardswish hardsigmoid
    leaky_relu logsigmoid threshold clamp clip clamp_min clamp_max minimum maximum fmin fmax masked_fill lerp sign sgn
    floor ceil round trunc frac isnan isinf isfinite isposinf isneginf isclose eq ne lt le gt ge equal not_equal less
    less_equal greater greater_equal logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not
    bitwise_xor nan_to_num heaviside hypot logaddexp logaddexp2 xlogy copysign deg2rad rad2deg real imag conj angle
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout bernoulli tril triu
    copy fill zero uniform normal exponential broadcast_to broadcast_tensors
    __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__
    __div__ __rdiv__ __idiv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __ipow__ __neg__ __abs__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __rand__ __iand__ __or__ __ror__ __ior__ __xor__ __rxor__
    __invert__
    """
)

_LIKE_FIRST = _words(
    """
    contiguous clone detach detach_ to float double half bfloat16 type type_as long int short bool byte cpu cuda
    requires_grad_ zeros_like ones_like empty_like full_like rand_like randn_like alias view_as_real
    """
)

_REDUCTIONS = _words(
    """
    sum mean var std prod max min amax amin all any argmax argmin logsumexp median nansum nanmean nanmedian var_mean
    std_mean count_nonzero mode aminmax
    """
)

_MATMUL = ("matmul", "mm", "bmm", "__matmul__")

_UNREDUCED = _words(
    """
    cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss
    huber_loss kl_div
    """
)

_RESHAPES: dict[str, Callable[..., Axis]] = {
    **dict.fromkeys(("view", "reshape", "view_as", "reshape_as"), _reshape),
    "flatten": _flatten,
    "unflatten": _unflatten,
}

_BY_NAME: dict[str, Move] = {
    **dict.fromkeys(_POINTWISE, Move(_pointwise)),
    **{f"{name}_": Move(_pointwise) for name in _POINTWISE if not name.startswith("__")},
    **dict.fromkeys(_LIKE_FIRST, Move(_like_first)),
    **{f"new_{kind}": Move(_of_shape_alone) for kind in ("zeros", "ones", "empty", "full", "tensor")},
    **dict.fromkeys(_REDUCTIONS, Move(_reduce)),
    "norm": Move(_reduce_by_third),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax"), Move(_along(1))),
    "cummin": Move(_along(1)),
    "flip": Move(_flip),
    **dict.fromkeys(("sort", "argsort", "glu"), Move(_along(1, -1))),
    "topk": Move(_along(2, -1)),
    "roll": Move(_along(2)),
    "kthvalue": Move(_reduce_by_third),
    "normalize": Move(_along(2, 1)),
    **dict.fromkeys(_MATMUL, Move(_matmul)),
    "addmm": Move(_addmm),
    "linear": Move(_linear),
    "embedding": Move(_embedding),
    **dict.fromkeys(("layer_norm", "rms_norm"), Move(_normalized)),
    "group_norm": Move(_group_norm),
    "batch_norm": Move(_batch_norm),
    **{f"conv{dims}d": Move(_convolution) for dims in (1, 2, 3)},
    **{f"conv_transpose{dims}d": Move(_convolution) for dims in (1, 2, 3)},
    **{
        f"{adaptive}{kind}_pool{dims}d": Move(_batched(dims + 2))
        for dims in (1, 2, 3)
        for kind in ("max", "avg")
        for adaptive in ("", "adaptive_")
    },
    **dict.fromkeys(("interpolate", "pixel_shuffle", "pixel_unshuffle"), Move(_resize)),
    "pad": Move(_pad),
    "scaled_dot_product_attention": Move(_attention),
    **dict.fromkeys(_UNREDUCED, Move(_unreduced)),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_", "scatter_add_"), Move(_gather)),
    "where": Move(_where),
    "one_hot": Move(_like_first),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), Move(_transpose)),
    "t": Move(_reverse),
    "permute": Move(_permute),
    **dict.fromkeys(("unbind", "select"), Move(_remove)),
    "squeeze": Move(_squeeze),
    "unsqueeze": Move(_unsqueeze),
    **dict.fromkeys(("split", "chunk", "tensor_split", "split_with_sizes"), Move(_cut)),
    "narrow": Move(_narrow),
    "cat": Move(_cat),
    "concat": Move(_cat),
    "stack": Move(_stack),
    **{name: Move(rule, merges=True) for name, rule in _RESHAPES.items()},
    **dict.fromkeys(("expand", "expand_as"), Move(_expand)),
    "repeat": Move(_repeat),
    "repeat_interleave": Move(_repeat_interleave),
    "__setitem__": Move(_set_item),
}

#: By torch function.
MOVES: dict[Callable[..., Any], Move] = {
    **{
        getattr(home, name): move
        for home in (torch, Tensor, F, torch.special, torch._C._nn)
        for name, move in _BY_NAME.items()
        if callable(getattr(home, name, None))
    },
    Tensor.T.__get__: Move(_reverse),  # type: ignore[attr-defined]
    Tensor.mT.__get__: Move(_swap_last),  # type: ignore[attr-defined]
    Tensor.data.__get__: Move(_like_first),  # type: ignore[attr-defined]
}

#: By the name of a custom operation.
CUSTOM: dict[str, Move] = {"dsgd::weighted_losses": Move(_losses_of_rows)}
