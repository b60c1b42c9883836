"""The fused loss on a CUDA device against the same arithmetic in PyTorch and against Liger-Kernel's cross-entropy.

Medians of forward and backward together, of bfloat16 logits, host time included: with few classes a loss costs its
launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

CLASSES = (2, 100, 32_768, 131_072)
ROWS = (20, 512, 8192)
CONTESTANTS = ("fused", "eager", "torch.compile", "liger")

#: Seconds of repetitions behind each median, after as many as the timer wants for warming up.
SECONDS = 0.2


class Cell(NamedTuple):
    """One size, and each contestant's median in microseconds; None where it was not installed or out of memory."""

    classes: int
    rows: int
    medians: dict[str, float | None]


def table(cells: Iterable[Cell]) -> Iterator[str]:
    """Lines of a table, each as soon as it is measured."""
    yield "| classes | rows | " + " | ".join(f"{name} (µs)" for name in CONTESTANTS) + " |"
    yield "|--:" * (2 + len(CONTESTANTS)) + "|"
    for cell in cells:
        medians = ("–" if value is None else f"{value:.0f}" for value in cell.medians.values())
        yield f"| {cell.classes} | {cell.rows} | " + " | ".join(medians) + " |"


def measure() -> Iterator[Cell]:
    """Every size, measured as it is asked for."""
    for classes in CLASSES:
        for rows in ROWS:
            yield Cell(classes, rows, {name: median(name, rows, classes) for name in CONTESTANTS})


def median(name: str, rows: int, classes: int) -> float | None:
    """Microseconds of one forward and backward of the contestant ``name`` on a CUDA device."""
    import torch
    from torch.utils.benchmark import Timer

    if name == "liger" and find_spec("liger_kernel") is None:
        return None
    torch.compiler.reset()  # else the ninth size would run uncompiled
    try:
        run = step(name, rows, classes, "cuda")
        run()
        return float(Timer("run()", globals={"run": run}).blocked_autorange(min_run_time=SECONDS).median * 1e6)
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def step(name: str, rows: int, classes: int, device: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """A function that returns the contestant's mean loss of random logits, and their gradient.

    Liger-Kernel computes cross-entropy alone, without groups, weights and statistics, and writes over the logits.
    """
    import torch

    from dsgd.loss import dsgd_loss

    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(rows, classes, device=device, dtype=torch.bfloat16, generator=generator).requires_grad_()
    labels = torch.randint(classes, (rows,), device=device, generator=generator)
    gamma = torch.tensor(0.5, device=device)

    def ours(backend: str) -> Tensor:
        return dsgd_loss(logits, labels, gamma, rows, backend=backend)[0]  # type: ignore[arg-type]

    def liger() -> Tensor:
        from liger_kernel.transformers import LigerCrossEntropyLoss

        loss: Tensor = LigerCrossEntropyLoss()(logits, labels)
        return loss

    losses: dict[str, Callable[[], Tensor]] = {
        "fused": lambda: ours("triton"),
        "eager": lambda: ours("reference"),
        "torch.compile": torch.compile(lambda: ours("reference"), fullgraph=True),
        "liger": liger,
    }
    loss = losses[name]

    def run() -> tuple[Tensor, Tensor]:
        value = loss()
        return value.detach(), torch.autograd.grad(value, logits)[0]

    return run
