"""Whole optimiser steps of the paper's models on a CUDA device: ours beside ``transformers.Trainer``'s.

Both train the same random weights in the published shapes, in bf16, with fused AdamW, on the same kind of batches; the
times cover making batches. Memory is what building and training add to the device, at its peak.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from experiments.benchmark import checkpoints, trainer
from experiments.benchmark.ratios import interval, paired
from experiments.benchmark.steps import make_training

if TYPE_CHECKING:
    import torch


Trains = TypeVar("Trains", bound=Callable[[], float])  # for some steps, and gives their seconds


class Case(NamedTuple):
    """What a model is trained on: overrides, and what they come to."""

    overrides: tuple[str, ...]
    shown: str


CASES = {
    "roberta_large": Case(("task=bbc_news", "task.max_length=128", "trainer.batch_size=20"), "20 × 128 tokens"),
    "llama_3_2_1b": Case(("task=bbc_news", "task.max_length=128", "trainer.batch_size=20"), "20 × 128 tokens"),
    "vit_base": Case(("task=digits", "trainer.batch_size=64"), "64 × 224² pixels"),
}

STEPS, PAIRS = 10, 6
GIB = 2**30


def measure(device: str = "cuda", cases: dict[str, Case] = CASES, **changes: Any) -> Iterator[dict[str, Any]]:
    """A record for each of ``cases``, as it is measured; ``changes`` of the shapes are for trials."""
    import torch

    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = _contest(name, case, Path(folder), torch.device(device), changes)
            except torch.OutOfMemoryError:
                found = {"error": "out of memory"}
        if device == "cuda":
            torch.cuda.empty_cache()
        yield {"model": name, "batch": case.shown, **found}


def table(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines of a table, each as soon as it is measured."""
    yield "| model | batch | ours (ms) | Trainer (ms) | Trainer / ours, 95 % interval | ours (GiB) | Trainer (GiB) |"
    yield "|---|---|--:|--:|---|--:|--:|"
    for record in records:
        start = f"| {record['model']} | {record['batch']} | "
        if "error" in record:
            yield start + f"{record['error']} | – | – | – | – |"
            continue
        low, high = record["ratio"]["low"], record["ratio"]["high"]
        ratio = f"{record['ratio']['median']:.3f}, {low:.3f} to {high:.3f}"
        times, memory = (" | ".join(f"{record[f'{who}_{unit}']:.{digits}f}" for who in ("ours", "trainer"))
                         for unit, digits in (("ms", 1), ("gib", 2)))  # fmt: skip
        yield start + f"{times} | {ratio} | {memory} |"


def _contest(name: str, case: Case, folder: Path, device: torch.device, changes: dict[str, Any]) -> dict[str, Any]:
    place = checkpoints.write(name, folder / "checkpoint", device, **changes)
    said = (f"model={name}", f"model.path={place}", "runtime.precision=bf16", *case.overrides)
    ours, ours_memory = _peak(device, lambda: trainer.Ours(make_training(folder, *said, device=device.type), STEPS))
    theirs, their_memory = _peak(device, lambda: trainer.Theirs(folder, ours.training, STEPS, tuned=True))
    seconds: tuple[list[float], list[float]] = [], []
    ratios = paired(_noted(theirs, seconds[1]), _noted(ours, seconds[0]), PAIRS)
    ours_ms, trainer_ms = (float(np.median(values)) / STEPS * 1e3 for values in seconds)
    return {
        "ours_ms": ours_ms,
        "trainer_ms": trainer_ms,
        "ratio": interval(ratios)._asdict(),
        "ours_gib": ours_memory,
        "trainer_gib": their_memory,
    }


def _noted(measured: Callable[[], float], seconds: list[float]) -> Callable[[], float]:
    def call() -> float:
        seconds.append(measured())
        return seconds[-1]

    return call


def _peak(device: torch.device, build: Callable[[], Trains]) -> tuple[Trains, float]:
    """What ``build`` returns, called once, and the GiB of the device that both took at their peak; 0 on a CPU."""
    import torch

    if device.type != "cuda":
        return build(), 0.0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    built = build()
    built()
    return built, (torch.cuda.max_memory_allocated() - before) / GIB
