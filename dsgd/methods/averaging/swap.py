"""Averaged weights in the trained ones' place, for the parts of this slot."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def averageable(model: nn.Module) -> dict[str, Tensor]:
    """What training changes and an average can be taken of: trained parameters and floating-point buffers.

    A tied tensor appears once. Whatever else there is, integer buffers say, an evaluation finds as training left it.
    """
    trained = {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}
    return trained | {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


#: Adapts what a model keeps beside its weights, BatchNorm's statistics, to weights that have just been put in place.
Refresh = Callable[[nn.Module], None]


def nothing(_model: nn.Module) -> None:
    """Refresh nothing."""


@contextmanager
@torch.no_grad()
def standing_in(model: nn.Module, average: dict[str, Tensor], refresh: Refresh = nothing) -> Iterator[nn.Module]:
    """``model`` with ``average`` (name → tensor) for its own weights, which return bit for bit on exit."""
    own = averageable(model)
    trained = {name: own[name].clone() for name in average}
    for name, tensor in average.items():
        own[name].copy_(tensor)
    try:
        refresh(model)
        yield model
    finally:
        for name, tensor in trained.items():
            own[name].copy_(tensor)


def at_least_fp32(tensor: Tensor) -> torch.dtype:
    """The dtype to average ``tensor`` in."""
    return torch.promote_types(tensor.dtype, torch.float32)
