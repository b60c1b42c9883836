"""What a run writes while it trains: history first, then the dashboard and the screen."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec

import torch
from accelerate import Accelerator
from tqdm import tqdm

from dsgd.errors import NonFiniteError
from dsgd.methods.contracts import Statistics, Window
from dsgd.runs import RunFolder
from dsgd.tracking import Tracker

P = ParamSpec("P")

#: Statistics that are counts of the window's examples.
COUNTS = ("wrong", "correct", "ties", "nonfinite")


class Recorder:
    """Keeps each step's statistics on the device and reads them all at once at the logging interval."""

    def __init__(
        self, folder: RunFolder, tracker: Tracker, progress: Progress, accelerator: Accelerator, log_every: int
    ) -> None:
        self.folder = folder
        self.tracker = tracker
        self.progress = progress
        self.accelerator = accelerator
        self.log_every = log_every
        self._waiting: list[tuple[dict[str, Any], int, Statistics, Statistics]] = []

    def step(self, window: Window, known: dict[str, float], sums: Statistics, others: Statistics) -> None:
        """Take one optimiser step's numbers.

        Args:
            window: the step's examples.
            known: numbers that the host knows already, such as the learning rate.
            sums: this process's sums over its micro-batches; the window's are the sums over processes.
            others: numbers that are the same on every process.
        """
        self._waiting.append(({"step": window.step.number, **known}, window.size, sums, others))
        if len(self._waiting) >= self.log_every:
            self.flush()

    def evaluation(self, step: int, numbers: dict[str, float]) -> None:
        """Record an evaluation after ``step`` optimiser steps, which have been flushed."""
        record = {"step": step, **{f"eval/{name}": value for name, value in numbers.items()}}
        self._write([record])
        self.progress.evaluation(record)

    def note(self, step: int, name: str, value: float) -> None:
        """Record one number of a part that acts beside the steps; nothing where it did nothing."""
        if value != 0:
            self._write([{"step": step, name: value}])

    def flush(self) -> None:
        """Read what waits on the device.

        Raises:
            NonFiniteError: at the first step with a non-finite loss or logit; its record is written before.
        """
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        sums = self._read([sums for _, _, sums, _ in waiting], add_up=True)
        others = self._read([others for _, _, _, others in waiting], add_up=False)
        records = [
            {**known, **step_record(size, total), **{key(name): value for name, value in other.items()}}
            for (known, size, _, _), total, other in zip(waiting, sums, others, strict=True)
        ]
        self._write(records)
        self.progress.steps(records)
        for record in records:
            if record["train/nonfinite"]:
                raise NonFiniteError(f"{record['train/nonfinite']:.0f} non-finite losses at step {record['step']}")

    def _read(self, statistics: list[Statistics], add_up: bool) -> list[dict[str, float]]:
        """One transfer from the device for all steps and names."""
        names = list(statistics[0])
        if not names:
            return [{} for _ in statistics]
        table = torch.stack([torch.stack([row[name].double() for name in names]) for row in statistics])
        if add_up:
            table = self.accelerator.reduce(table, reduction="sum")
        return [dict(zip(names, row, strict=True)) for row in table.tolist()]

    def _write(self, records: list[dict[str, Any]]) -> None:
        if self.accelerator.is_main_process:
            self.folder.append_history(records)
            self.tracker.log(records)


def step_record(size: int, sums: dict[str, float]) -> dict[str, float]:
    """History keys of one step: counts as they are, other sums as means over the window's m examples."""
    record = {key(name): value if name in COUNTS else value / size for name, value in sums.items()}
    return {**record, "train/wrong_share": sums["wrong"] / size}


def key(name: str) -> str:
    """The history's key of a statistic: a part's own ``part/name`` as it is, the common ones under ``train/``."""
    return name if "/" in name else f"train/{name}"


def _never_raises(show: Callable[P, None]) -> Callable[P, None]:
    """Drop what cannot be shown: no screen may end a training."""

    @wraps(show)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with suppress(OSError, ValueError):  # a pipe without a reader, a full disk, an encoding without γ
            show(*args, **kwargs)

    return guarded


@_never_raises
def show(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Progress:
    """A bar on a terminal, a line an evaluation elsewhere, or nothing."""

    def __init__(self, total: int, style: str) -> None:
        self.total = total
        self.lines = style == "lines"
        tqdm.set_lock(threading.RLock())  # the default one is a semaphore that a killed process leaks
        self.bar = tqdm(total=total, leave=False, unit="step", disable=style != "bar")
        self._correct = self._seen = 0.0
        self._summary = ""
        self._first, self._started = 0, time.perf_counter()

    @_never_raises
    def start_at(self, step: int) -> None:
        """Count from ``step``, where a run resumes."""
        self._first = step
        self.bar.update(step)

    @_never_raises
    def steps(self, records: list[dict[str, Any]]) -> None:
        """Show the newest step, and the training accuracy since the last evaluation."""
        self._correct += sum(record["train/correct"] for record in records)
        self._seen += sum(record["train/correct"] + record["train/wrong"] for record in records)
        last = records[-1]
        self._summary = f"loss {last['train/loss']:.3f}, training accuracy {self._correct / max(self._seen, 1):.1%}"
        if "train/gamma" in last:
            self._summary += f", γ {last['train/gamma']:.2f}"
        self.bar.update(len(records))
        self.bar.set_postfix_str(self._summary)

    @_never_raises
    def evaluation(self, record: dict[str, Any]) -> None:
        """Show an evaluation's accuracy."""
        step = record["step"]
        parts = [f"step {step}/{self.total}: evaluation accuracy {record['eval/accuracy']:.2%}", self._summary]
        if step > self._first:
            seconds = (time.perf_counter() - self._started) / (step - self._first) * (self.total - step)
            parts.append(f"{seconds:.0f} s left")
        self._correct = self._seen = 0.0
        text = ", ".join(part for part in parts if part)
        if self.lines:
            show(text)
        elif not self.bar.disable:
            self.bar.write(text)

    @_never_raises
    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()
