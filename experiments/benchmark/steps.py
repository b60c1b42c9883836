"""Seconds of whole optimiser steps of real trainings: the gradient, clipping, AdamW, and what is recorded.

Every step is the one that ``run.py`` takes, on one thread, of the packaged minilm with made-up batches of 20 × 32
tokens.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from dsgd.config import tree
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.execution import identity_of
from dsgd.runs import RunFolder

if TYPE_CHECKING:
    from dsgd.methods.contracts import LossOutput, Window
    from dsgd.training import Training

EXAMPLES, TOKENS = 20, 32

#: Steps before the clock counts: memory is allocated, and observers have taken their first look.
WARM_UP = 3


class Stepper:
    """Calling it takes the next optimiser step and returns its seconds.

    Args:
        training: as ``make_training`` makes it.
        halves: put every second example into C, the others into W, whatever the model says.
    """

    def __init__(self, training: Training, *, halves: bool = False) -> None:
        self.training = training
        if halves:
            _judge_by_turns(self.training)
        self.training.model.train()
        self.training.observer.start(self.training)
        self._number = 0
        for _ in range(WARM_UP):
            self()

    def __call__(self) -> float:
        """Take a step, with whatever observes it."""
        self._number += 1
        window, training = _window(self._number, self.training.total), self.training
        started = time.perf_counter()
        training.observer.before_step(training, window)
        with training.observer.during_step(training, window):
            training.step(window)
        return time.perf_counter() - started


def make_training(folder: Path, *overrides: str, device: str = "cpu") -> Training:
    """A training as ``run.py`` would begin it on ``device``, on one thread and of steps without an end.

    Args:
        folder: where the run's files may go.
        overrides: as on ``run.py``'s command line.
        device: as ``runtime.device``.
    """
    import torch

    from dsgd.environment import make_accelerator
    from dsgd.training import Training

    torch.set_num_threads(1)
    fixed = [f"results_dir={folder}", "tracking=none", f"runtime.device={device}", "trainer.max_steps=100000"]
    (run,) = expand(read_command([*fixed, *overrides]))
    files = RunFolder(folder / run.id)
    files.write("config.yaml", tree.to_yaml(run.config))
    files.write_json("identity.json", identity_of(run))
    return Training(run.config, files, make_accelerator(run.config.runtime), "none")


def _window(number: int, total: int) -> Window:
    import torch

    from dsgd.methods.contracts import Batch, Step, Window

    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(1000, 30_000, (EXAMPLES, TOKENS), generator=generator)
    labels = torch.randint(2, (EXAMPLES,), generator=generator)
    return Window([Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, labels)], EXAMPLES,
                  Step(number, total))  # fmt: skip


def _judge_by_turns(training: Training) -> None:
    import torch

    judged = training.objective.loss.per_example

    def per_example(*args: object, **kwargs: object) -> LossOutput:
        output: LossOutput = judged(*args, **kwargs)  # type: ignore[arg-type]
        return output._replace(is_correct=torch.arange(len(output.losses), device=output.losses.device) % 2 == 0)

    training.objective.loss.per_example = per_example  # type: ignore[method-assign]
