"""Dynamic Scaled Gradient Descent (arXiv 2604.27987): the loss, its schedules and the suite around them.

Exports are loaded on first use, so that ``import dsgd`` costs nothing and the torch-free parts stay torch-free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgd.group_gradients import GroupGradients
    from dsgd.loss import DSGDLoss, dsgd_loss
    from dsgd.schedules import CosineSchedule, DescendingSchedule, LinearSchedule, StaticSchedule

    __version__: str

__all__ = [
    "CosineSchedule",
    "DSGDLoss",
    "DescendingSchedule",
    "GroupGradients",
    "LinearSchedule",
    "StaticSchedule",
    "__version__",
    "dsgd_loss",
]

_HOMES = {
    "CosineSchedule": "dsgd.schedules",
    "DSGDLoss": "dsgd.loss",
    "DescendingSchedule": "dsgd.schedules",
    "GroupGradients": "dsgd.group_gradients",
    "LinearSchedule": "dsgd.schedules",
    "StaticSchedule": "dsgd.schedules",
    "dsgd_loss": "dsgd.loss",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dsgd")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0+unknown"
