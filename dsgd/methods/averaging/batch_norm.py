"""BatchNorm statistics of averaged weights."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dsgd.methods.contracts import Batch


def has_batch_norm(model: nn.Module) -> bool:
    """Whether any layer keeps running statistics."""
    return bool(_layers(model))


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Batch]) -> None:
    """Give ``model`` the means and variances that its present weights produce on ``batches``, each example alike.

    Averaged weights fit no average of the statistics under which they were trained (Izmailov et al. 2018,
    arXiv:1803.05407, section 3.2). As in ``torch.optim.swa_utils.update_bn``, but without dropout, and a smaller last
    batch counts for less.

    Args:
        model: changed in place; its modes and what else it keeps stay as they are.
        batches: on the model's device.
    """
    seen = 0
    with _only_normalising(model) as layers:
        for batch in batches:
            seen += len(batch.labels)
            for layer in layers:
                layer.momentum = len(batch.labels) / seen
            model(**batch.inputs)


def _layers(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]


@contextmanager
def _only_normalising(model: nn.Module) -> Iterator[list[_BatchNorm]]:
    """The BatchNorm layers in training mode and all else in evaluation mode; everything as before on exit."""
    modes = {module: module.training for module in model.modules()}
    kept = [(layer, layer.momentum, layer.num_batches_tracked) for layer in _layers(model)]
    model.eval()
    for layer, _, count in kept:
        layer.train()
        layer.num_batches_tracked = None if count is None else count.clone()
    try:
        yield [layer for layer, _, _ in kept]
    finally:
        for layer, momentum, count in kept:
            layer.momentum, layer.num_batches_tracked = momentum, count
        for module, mode in modes.items():
            module.training = mode
