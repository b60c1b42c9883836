"""Training throughput beside ``transformers.Trainer``: same weights, same examples, same batch size.

Both clocks cover making batches, forward, backward, clipping and AdamW, and neither covers evaluation or start-up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgd.config.schema import Modality
from experiments.benchmark.steps import make_training

if TYPE_CHECKING:
    from dsgd.methods.contracts import Window
    from dsgd.training import Training

BATCH = 20

#: Where MRPC itself is not there: normal token counts of sentence pairs, cut at the ends. Assumed, not measured.
MEAN, DEVIATION, LEAST, MOST = 53, 14, 18, 103


class Ours:
    """Calling it trains the next ``steps`` steps and returns the seconds."""

    def __init__(self, training: Training, steps: int) -> None:
        training.model.train()
        self.training, self._steps = training, steps
        self._windows = training.windows()
        self()

    def __call__(self) -> float:
        """Seconds of the next ``steps`` steps."""
        started = _now(self.training)
        for window in islice(self._windows, self._steps):
            self.training.step(window)
        return _now(self.training) - started


class Theirs:
    """The same by ``transformers.Trainer``: its defaults, or ``tuned`` with bf16, dynamic padding and fused AdamW.

    Its k-th call trains on the very batches of the k-th call of ``Ours``. By default it stacks what it is given, so
    that all examples are padded beforehand, to the longest of the split. It pads to the longest of a batch once it is
    given a tokenizer.
    """

    def __init__(self, folder: Path, training: Training, steps: int, *, tuned: bool) -> None:
        from dsgd.models import load_preprocessor

        config = training.config
        self._training, self._steps, self._windows = training, steps, training.windows()
        self._warm_up = list(islice(self._windows, steps))[-1]
        self._length = None if tuned else int(training.data.train.lengths.max())
        reads_text = config.model.modality is Modality.text
        tokenizer = load_preprocessor(config.model) if tuned and reads_text else None
        self._trainer, self._clock = _trainer(folder, training, steps + 1, tokenizer, tuned=tuned)

    def __call__(self) -> float:
        """Seconds of the next ``steps`` steps, after one more to warm up."""
        self._clock.clear()
        windows = [self._warm_up, *islice(self._windows, self._steps)]
        self._trainer.train_dataset = [row for window in windows for row in _examples(window, self._length)]
        self._trainer.train()
        return self._clock[-1] - self._clock[0]


def _trainer(folder: Path, training: Training, steps: int, tokenizer: Any, *, tuned: bool) -> tuple[Any, list[float]]:
    """A ``transformers.Trainer`` that takes its examples in order, and when the first and last of its steps ended."""
    from torch.utils.data import SequentialSampler
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    clock: list[float] = []

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _arguments: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step in (1, steps):  # asking waits for the device
                clock.append(_now(training))

    settings = {"bf16": True, "optim": "adamw_torch_fused"} if tuned else {}
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=training.config.trainer.batch_size, max_steps=steps,
        use_cpu=training.accelerator.device.type == "cpu", report_to="none", save_strategy="no", disable_tqdm=True,
        logging_strategy="no", remove_unused_columns=False, **settings,
    )  # fmt: skip
    trainer = InOrder(
        model=_network(training), args=arguments, processing_class=tokenizer, callbacks=[Clock()],
        train_dataset=[{}],  # each call brings its own
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer, clock


def _examples(window: Window, length: int | None) -> Iterator[dict[str, Any]]:
    """The window's examples as a Trainer takes them: texts without padding, or padded to ``length``."""
    import torch

    for batch in window.batches:
        for row, label in enumerate(batch.labels.tolist()):
            if "pixels" in batch.inputs:
                yield {"pixels": batch.inputs["pixels"][row], "labels": label}
                continue
            size = int(batch.inputs["attention_mask"][row].sum())
            padded = torch.zeros(length or size, dtype=torch.int64)
            ids, mask = padded.clone(), padded
            ids[:size], mask[:size] = batch.inputs["input_ids"][row, :size], 1
            yield {"input_ids": ids, "attention_mask": mask, "labels": label}


def on_mrpc(folder: Path) -> tuple[Training, str]:
    """A training on MRPC; on texts of such lengths where it is not there."""
    from dsgd.config.messages import ConfigErrors
    from dsgd.models.sources import SourceError

    try:
        return make_training(folder, "task=mrpc", f"trainer.batch_size={BATCH}"), "MRPC"
    except (SourceError, ConfigErrors):
        training = make_training(folder, "task=bbc_news", "task.max_length=256", f"trainer.batch_size={BATCH}")
        training.data = training.data.replace(train=_made_up(training.data.train), evaluation=training.data.evaluation)
        return training, "made-up rows of MRPC's assumed lengths"


def _made_up(split: Any) -> Any:
    """The beginnings of the split's first texts, cut to MRPC's lengths."""
    lengths = np.random.default_rng(0).normal(MEAN, DEVIATION, len(split)).clip(LEAST, MOST).astype(np.int64)
    split = split.take(np.arange(len(split)))
    split.sizes[:, 0] = np.minimum(split.sizes[:, 0], lengths)
    return split


def _network(training: Training) -> Any:
    """The same weights as ``training`` started from, answering as the Trainer asks."""
    import torch
    from torch import nn

    from dsgd.models import build_model

    model, classes = training.config.model, len(training.data.classes)
    classifier = build_model(model, classes, training.seeds.initialization)
    if model.modality is Modality.text:
        classifier.network.set_attn_implementation("sdpa")  # as transformers itself chooses, on every device
        return classifier.network

    class Answering(nn.Module):
        """timm's models give logits alone."""

        def __init__(self) -> None:
            super().__init__()
            self.classifier = classifier

        def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.classifier(pixels=pixels)
            return {"loss": nn.functional.cross_entropy(logits.float(), labels), "logits": logits}

    return Answering()


def _now(training: Training) -> float:
    """The time once all that was asked of the device is done."""
    from dsgd.environment import synchronize

    synchronize(training.accelerator.device)
    return time.perf_counter()
