"""Training, top to bottom: prepare the run, walk its optimiser steps, evaluate, leave the results in its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy

from dsgd import checkpoint, evaluation
from dsgd.batches import evaluation_batches, steps_per_epoch, tasks_of, total_steps, windows
from dsgd.config import schema, tree
from dsgd.config.contents import require_unchanged
from dsgd.config.parts import SLOTS
from dsgd.config.schema import Config, Modality, MultiTask, TaskBatches
from dsgd.data import Examples, TaskData, facts, load_task
from dsgd.diagnostics import make_observer
from dsgd.environment import describe_environment, make_accelerator
from dsgd.evaluation import Predictions
from dsgd.methods import build
from dsgd.methods.averaging.batch_norm import estimate_statistics, has_batch_norm
from dsgd.methods.contracts import Adapter, Averaging, Gradient, Statistics, Step, Transform, Window
from dsgd.models import Classifier, build_model, load_preprocessor, require_fp32
from dsgd.models.multitask import leave_idle_heads
from dsgd.objective import ScaledObjective, unwrapped
from dsgd.optimization import make_lr_schedule, make_optimizer, trainable
from dsgd.randomness import streams
from dsgd.recorder import Progress, Recorder, show
from dsgd.runs import RunFolder
from dsgd.schedules import make_schedule
from dsgd.tracking import NoTracker, Tracker, make_tracker


def train(folder: RunFolder, threads: int, progress: str) -> None:
    """Train the run that ``folder``'s ``config.yaml`` describes and leave its results there.

    Args:
        folder: holds ``config.yaml`` and ``identity.json``; receives everything else.
        threads: CPU threads for compute.
        progress: ``bar``, ``lines`` or ``none``.

    Raises:
        NonFiniteError: a loss or logit was NaN or infinite.
        SourceError: weights or data are not where the config says.
    """
    started = time.perf_counter()
    torch.set_num_threads(threads)
    config = tree.load(folder.path / "config.yaml")
    accelerator = make_accelerator(config.runtime)
    if accelerator.is_main_process:
        folder.write_json("environment.json", describe_environment(accelerator, threads))
    training = Training(config, folder, accelerator, progress)
    try:
        result = training.run()
    except BaseException:
        training.recorder.tracker.finish({}, exit_code=1)  # else the dashboard shows a run that never ended
        raise
    if accelerator.is_main_process:
        identity = folder.read("identity.json") or {}
        metrics = {**identity, **result, "seconds": time.perf_counter() - started}
        folder.mark_finished(metrics)
        training.recorder.tracker.finish(metrics)


@dataclass
class Clock:
    """Seconds spent in training steps, evaluation apart, and examples seen."""

    seconds: float = 0.0
    examples: int = 0


class Training:
    """One run in progress: model, optimiser, the method's slots, and what is recorded of them."""

    def __init__(self, config: Config, folder: RunFolder, accelerator: Accelerator, progress: str) -> None:
        self.config, self.folder, self.accelerator = config, folder, accelerator
        self.seeds = streams(config)
        require_unchanged(config)
        self.data = _shrunk(
            load_task(
                config.task, config.data, load_preprocessor(config.model), self.seeds.subset, self.seeds.bootstrap
            ),
            config,
        )
        self.read = facts.summary(
            self.data.facts, self.data.classes, self.data.train.labels, self.data.evaluation.labels
        )
        self._tell_what_was_read(progress)
        self.total = total_steps(len(self.data.train), config)
        schedule = config.schedule
        gamma = make_schedule(schedule.name.value, self.total, schedule.tau, schedule.gamma)
        context = {
            "schedule": gamma,
            "total_steps": self.total,
            "class_counts": self.data.class_counts,
            "adapter_seed": self.seeds.initialization,
            "noise_seed": self.seeds.dropout + accelerator.process_index,
            "refresh": self._refresh_batch_norm,
        }
        self.parts = {slot: build(slot, getattr(config, slot), **context) for slot in SLOTS}

        heads = [len(classes) for classes in self.data.classes_by_task.values()]
        model = build_model(config.model, len(self.data.classes), self.seeds.initialization, self.data.choices, heads)
        require_unchanged(config)  # again: what was read in between is what was planned
        initialize = self.parts["initialization"]
        self.initial_change = change_by(model.to(accelerator.device), lambda: initialize(model, InitialTraining(self)))
        model = self.parts["adapter"](model)
        require_fp32(model)  # adapters too
        self.optimizer = make_optimizer(model.to(accelerator.device), config.trainer)
        self.lr_schedule = make_lr_schedule(self.optimizer, config.trainer, self.total)
        self.parameters = trainable(model)
        if config.runtime.compile:
            model.network.compile(dynamic=False)
        self.model: nn.Module = accelerator.prepare_model(model)
        self.bare = unwrapped(self.model.train())  # said once more: the device decides how attention is computed
        self.objective = ScaledObjective(
            self.parts["loss"], self.parts["regularizer"], self.parts["adapter"], accelerator
        )
        self.observer = make_observer(config.diagnostics)
        self.recorder = self._recorder(progress)
        self.clock, self.best = Clock(), {"accuracy_best": 0.0, "best_step": 0}
        # Last, so that nothing above shifts the stream; each rank has masks of its own.
        torch.manual_seed(self.seeds.dropout + accelerator.process_index)

    def run(self) -> dict[str, Any]:
        """All steps and evaluations; returns the summary row without the run's identity."""
        first = checkpoint.resume(self) + 1
        if first == 1:
            self.observer.start(self)
            self.recorder.note(0, "initialization/relative_change", self.initial_change)
            self.evaluate(step=0)
        for window in self.windows(first):
            self.observer.before_step(self, window)
            with self.observer.during_step(self, window):
                self.step(window)
            if self._evaluation_is_due(window.step):
                self.evaluate(window.step.number)
            checkpoint.save_if_due(self, window.step)
        self.observer.finish(self)
        averaging: Averaging = self.parts["averaging"]
        trained = snapshot(self.bare)
        with averaging.result(self.bare) as model:
            self.recorder.flush()
            self.recorder.note(self.total, "averaging/relative_change", relative_change(trained, model))
            predictions = self.evaluate(self.total)
            checkpoint.close(self, model)
        variants = self._evaluate_variants(averaging.variants(self.bare))
        self.recorder.progress.close()
        return {**self._summary(predictions), **variants, **averaging.summary()}

    def _tell_what_was_read(self, progress: str) -> None:
        """One line; a run of a sweep, which shows no progress, says only what a reader of its results must know."""
        length, shown = self.config.task.max_length, [] if progress == "none" else [facts.line]
        lines = [line(self.read, length) for line in shown]
        if self.config.runtime.progress is not schema.Progress.none:
            lines += facts.warnings(self.read, length, own=self.config.task.path is not None)
        if self.accelerator.is_main_process:
            for text in lines:
                show(text)

    def windows(self, first: int = 1) -> Iterator[Window]:
        """This process's part of the examples of every optimiser step from ``first`` on."""
        order = (self.data.train, self.config.trainer, self.seeds.data_order, self.total, first)
        homogeneous, by_length = _one_task_a_step(self.config), splits_by_length(self.config, self.accelerator.device)
        return windows(*order, self.accelerator.process_index, homogeneous=homogeneous, by_length=by_length)

    def step(self, window: Window) -> None:
        """One optimiser step: the method's slots in their fixed order."""
        started = time.perf_counter()
        gradient: Gradient = self.parts["gradient"]
        transform: Transform = self.parts["transform"]
        adapter: Adapter = self.parts["adapter"]
        averaging: Averaging = self.parts["averaging"]
        known = self._known_before(window.step)
        self.optimizer.zero_grad(set_to_none=True)
        others: Statistics = dict(gradient(self.model, window, self.objective))
        leave_idle_heads(self.bare, window.tasks)
        others |= transform(self.parameters, self.optimizer, window.step)
        self.optimizer.step()
        self.lr_schedule.step()
        others |= adapter.after_step(self.bare, window.step)
        averaging.update(self.bare, window.step)
        self.recorder.step(window, known, self.objective.collect(), others)
        self.clock.seconds += time.perf_counter() - started
        self.clock.examples += window.size

    def evaluate(self, step: int) -> Predictions:
        """Predict the whole evaluation split with the weights that stand in the model, and record how well."""
        self.recorder.flush()  # a non-finite step is named before its logits are met here
        started = time.perf_counter()
        predictions = predict(self.model, self.data, self.config, self.accelerator)
        numbers = self._scored(predictions)  # raises where a logit is not finite
        if step > 0 and numbers["accuracy"] > self.best["accuracy_best"]:
            self.best = {"accuracy_best": numbers["accuracy"], "best_step": step}
        shown = {name: numbers[name] for name in ("accuracy", "mcc", "macro_f1", "predicted_share_max")}
        shown |= {f"accuracy/{task}": value for task, value in numbers.get("accuracy_by_task", {}).items()}
        collapsed = float(numbers["status"] == "collapsed")
        self.recorder.evaluation(step, {**shown, "collapsed": collapsed, "seconds": time.perf_counter() - started})
        return predictions

    def _evaluate_variants(self, variants: dict[str, AbstractContextManager[nn.Module]]) -> dict[str, Any]:
        """Accuracy and status of further averages, as ``accuracy_<name>``; their predictions beside the run's own."""
        found: dict[str, Any] = {}
        for name, weights in variants.items():
            with weights:
                predictions = predict(self.model, self.data, self.config, self.accelerator)
            if self.accelerator.is_main_process:
                predictions.save(self.folder.file(f"predictions_{name}.parquet"))
            row = self._scored(predictions)
            found |= {f"accuracy_{name}": row["accuracy"], f"status_{name}": row["status"]}
        return found

    def _refresh_batch_norm(self, model: nn.Module) -> None:
        """Every process looks at the whole training split, so that all find the same statistics."""
        if has_batch_norm(model):
            split, size = self.data.train, self.config.runtime.eval_batch_size
            batches = (split.batch(rows).to(self.accelerator.device) for rows in evaluation_batches(split, size))
            estimate_statistics(model, batches)

    def _scored(self, predictions: Predictions) -> dict[str, Any]:
        """What every task is measured by, and what this one adds."""
        usual = evaluation.evaluate(predictions, self.config.evaluation, multiple_choice=self.data.choices > 1)
        return {**usual, **self.data.score(predictions)}

    def _evaluation_is_due(self, step: Step) -> bool:
        """At each epoch's end or every so many steps; the end of training has its own evaluation."""
        every = self.config.trainer.evaluate_every or steps_per_epoch(len(self.data.train), self.config.trainer)
        return step.number % every == 0 and step.number < step.total

    def _known_before(self, step: Step) -> dict[str, float]:
        epoch = (step.number - 1) / steps_per_epoch(len(self.data.train), self.config.trainer)
        known = {"epoch": epoch, "train/lr": float(self.lr_schedule.get_last_lr()[-1])}
        gamma = getattr(self.parts["loss"], "gamma", None)
        return {**known, "train/gamma": gamma(step)} if gamma else known

    def _recorder(self, style: str) -> Recorder:
        identity = self.folder.read("identity.json") or {}
        tracker: Tracker = NoTracker()
        if self.accelerator.is_main_process:
            tracker = make_tracker(
                self.config.tracking,
                folder=self.folder.path,
                run_id=identity["id"],
                name=f"{identity['method']} seed {identity['seed']}",
                group="/".join(identity[column] for column in ("model", "task", "method")),
                tags=[identity["model"], identity["task"], identity["preset"]],
                config=asdict(self.config),
            )
        shown = Progress(self.total, style if self.accelerator.is_main_process else "none")
        return Recorder(self.folder, tracker, shown, self.accelerator, self.config.runtime.log_every)

    def _summary(self, predictions: Predictions) -> dict[str, Any]:
        if self.accelerator.is_main_process:
            predictions.save(self.folder.file("predictions.parquet"))
        return {
            **self._scored(predictions),
            **self.best,
            "steps": self.total,
            "train_seconds": self.clock.seconds,
            "examples_per_second": self.clock.examples / self.clock.seconds,
            "data": self.read,
            "n_train": len(self.data.train),
            "class_counts": self.data.class_counts,
            "subset_hash": self.data.subset_hash,
            "trainable_parameters": sum(parameter.numel() for parameter in self.parameters),
            "precision": self.accelerator.mixed_precision if self.accelerator.mixed_precision != "no" else "fp32",
            "device": str(self.accelerator.device),
            "threads": torch.get_num_threads(),
            "thresholds": asdict(self.config.evaluation),
        }


@torch.inference_mode()
def predict(model: nn.Module, data: TaskData, config: Config, accelerator: Accelerator) -> Predictions:
    """Logits of every row of the evaluation split, in its order, gathered from all processes."""
    model.eval()
    split, classes = data.evaluation, data.classes
    bare = unwrapped(model)
    scores = torch.zeros(len(split), len(classes), device=accelerator.device)
    size, rank, processes = config.runtime.eval_batch_size, accelerator.process_index, accelerator.num_processes
    for rows in evaluation_batches(split, size, rank, processes):
        batch = split.batch(rows).to(accelerator.device)
        scores[torch.as_tensor(rows, device=scores.device)] = bare(**batch.inputs).float()
    model.train()
    scores = accelerator.reduce(scores, reduction="sum")  # each row was filled by one process
    tasks = tasks_of(split) if data.classes_by_task else None
    return Predictions(split.index, split.labels, scores.cpu().numpy(), classes, tasks, data.classes_by_task)


def _one_task_a_step(config: Config) -> bool:
    return isinstance(config.task, MultiTask) and config.task.batches is TaskBatches.homogeneous


def splits_by_length(config: Config, device: torch.device) -> bool:
    """Whether a batch is computed in parts of like length: on a GPU, a few long rows cost less than a second launch."""
    if config.runtime.split_by_length is not None:
        return config.runtime.split_by_length
    is_text = config.model.modality is Modality.text
    return device.type == "cpu" and is_text and not config.loss.needs_whole_window()


def change_by(model: nn.Module, change: Callable[[], None]) -> float:
    """How far ``change`` moves the weights of ``model``: ‖Δθ‖/‖θ‖."""
    before = snapshot(model)
    change()
    return relative_change(before, model)


def snapshot(model: nn.Module) -> list[torch.Tensor]:
    """Copies of all parameters."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def relative_change(before: list[torch.Tensor], model: nn.Module) -> float:
    """‖θ − θ_before‖/‖θ_before‖ over all parameters together."""
    moved = torch._foreach_sub([parameter.detach() for parameter in model.parameters()], before)
    distance, size = (torch.stack(torch._foreach_norm(tensors)).norm() for tensors in (moved, before))
    return float(distance / size)


class InitialTraining:
    """What an initialization may use (``contracts.InitializationContext``)."""

    def __init__(self, training: Training) -> None:
        self._training = training
        first = torch.Generator().manual_seed(training.seeds.initialization)
        # Seeded by a draw: the seed itself would repeat the very numbers that the fresh head has drawn.
        self.generator = torch.Generator().manual_seed(int(torch.randint(2**31, (1,), generator=first)))

    def train_head(self, model: Classifier, epochs: int, lr: float) -> None:
        """Mean cross-entropy over the head's parameters alone, at a constant rate, in the run's own batches.

        The features below the head are fixed, so the whole model is in evaluation mode: no dropout, no random draw.
        Every process trains on the whole window, hence all to the same head.
        """
        training, trainer = self._training, self._training.config.trainer
        alone = {"processes": 1, "accumulation": trainer.accumulation * trainer.processes}
        trainer = replace(trainer, lr=lr, layer_decay=1.0, **alone)
        total = epochs * steps_per_epoch(len(training.data.train), trainer)
        total = min(total, training.config.debug.max_steps or total)
        with _head_alone(model):
            optimizer = make_optimizer(model, trainer)
            for window in windows(training.data.train, trainer, training.seeds.data_order, total):
                for batch in window.batches:
                    moved = batch.to(training.accelerator.device)
                    with training.accelerator.autocast():
                        logits = model(**moved.inputs)
                    loss = cross_entropy(logits.float(), moved.labels, reduction="sum") / window.size
                    torch.autograd.backward(loss)
                leave_idle_heads(model, window.tasks)
                optimizer.step()
                optimizer.zero_grad()


@contextmanager
def _head_alone(model: Classifier) -> Iterator[None]:
    """Only what is not pretrained trains, and everything is in evaluation mode; both as before on exit."""
    head = {id(parameter) for module in model.fresh for parameter in module.parameters()}
    frozen = [parameter for parameter in trainable(model) if id(parameter) not in head]
    mode = model.training
    for parameter in frozen:
        parameter.requires_grad_(False)
    model.eval()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        model.train(mode)


def _shrunk(data: TaskData, config: Config) -> TaskData:
    """``debug`` keeps the first examples of each split, in an order that mixes the classes."""
    examples, keep_all = config.debug.examples, config.debug.full_evaluation
    if examples is None:
        return data
    return data.replace(
        train=_first(data.train, examples),
        evaluation=data.evaluation if keep_all else _first(data.evaluation, examples),
    )


def _first(split: Examples, examples: int) -> Examples:
    order = np.random.default_rng(0).permutation(len(split))
    return split.take(np.sort(order[:examples]))
