"""Training throughput beside ``transformers.Trainer``: same weights, same examples, same batch size.

Both clocks cover making batches, forward, backward, clipping and AdamW, and neither covers evaluation or start-up.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgd.config.schema import Modality
from experiments.benchmark.steps import make_training

if TYPE_CHECKING:
    from dsgd.training import Training

BATCH = 20

#: Where MRPC itself is not there: normal token counts of sentence pairs, cut at the ends. Assumed, not measured.
MEAN, DEVIATION, LEAST, MOST = 53, 14, 18, 103


class Ours:
    """Calling it trains the next ``steps`` steps and returns the seconds."""

    def __init__(self, training: Training, steps: int) -> None:
        self.training = training
        self.training.model.train()
        self._windows = self.training.windows()
        self._steps = steps
        self()

    def __call__(self) -> float:
        """Seconds of the next ``steps`` steps."""
        started = _now(self.training)
        for _ in range(self._steps):
            self.training.step(next(self._windows))
        return _now(self.training) - started


class Theirs:
    """The same by ``transformers.Trainer``: its defaults, or ``tuned`` with bf16, dynamic padding and fused AdamW.

    By default it stacks what it is given, so that all examples are padded beforehand, to the longest of the split. It
    pads to the longest of a batch once it is given a tokenizer.
    """

    def __init__(self, folder: Path, training: Training, steps: int, *, tuned: bool) -> None:
        from transformers import Trainer, TrainerCallback, TrainingArguments

        from dsgd.models import load_preprocessor

        self._clock = clock = []  # type: list[float]

        class Clock(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, _arguments: Any, state: Any, *_: Any, **__: Any) -> None:
                if state.global_step in (1, steps + 1):  # asking waits for the device
                    clock.append(_now(training))

        config, split, self._calls = training.config, training.data.train, 0
        on_cpu, reads_text = training.accelerator.device.type == "cpu", config.model.modality is Modality.text
        self._rows = _unpadded(split) if tuned else _padded(split)
        settings = {"bf16": True, "optim": "adamw_torch_fused"} if tuned else {}
        arguments = TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=config.trainer.batch_size, max_steps=steps + 1,
            use_cpu=on_cpu, report_to="none", save_strategy="no", disable_tqdm=True, logging_strategy="no",
            remove_unused_columns=False, **settings,
        )  # fmt: skip
        self._trainer = Trainer(
            model=_network(training), args=arguments, train_dataset=self._rows, callbacks=[Clock()],
            processing_class=load_preprocessor(config.model) if tuned and reads_text else None,
        )  # fmt: skip

    def __call__(self) -> float:
        """Seconds of ``steps`` steps after a first, of other batches each time."""
        self._clock.clear()
        self._calls += 1
        order = np.random.default_rng(self._calls).permutation(len(self._rows))  # its own shuffle is the same each time
        self._trainer.train_dataset = [self._rows[row] for row in order]
        self._trainer.train()
        return self._clock[-1] - self._clock[0]


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


def _unpadded(split: Any) -> list[dict[str, Any]]:
    """Rows as a collator with a tokenizer takes them; of images, which have no padding, as the default one does."""
    kept = ("input_ids", "pixels")
    batches = (split.batch(np.array([row])) for row in range(len(split)))
    return [
        {**{name: batch.inputs[name][0] for name in kept if name in batch.inputs}, "labels": int(batch.labels[0])}
        for batch in batches
    ]


def _padded(split: Any) -> list[dict[str, Any]]:
    whole = split.batch(np.arange(len(split)))
    columns = {name: whole.inputs[name] for name in ("input_ids", "attention_mask")}
    return [{**{name: column[row] for name, column in columns.items()}, "labels": int(whole.labels[row])}
            for row in range(len(split))]  # fmt: skip


def _network(training: Training) -> Any:
    """The same weights as ``training`` started from, answering as the Trainer asks."""
    import torch
    from torch import nn

    from dsgd.models import build_model

    model, classes = training.config.model, len(training.data.classes)
    classifier = build_model(model, classes, training.seeds.initialization)
    if model.modality is Modality.text:
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
