"""Rules about the parts of a method: what cannot act together, and what their lists hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsgd.config.messages import describe
from dsgd.config.parts import (
    EMA,
    LDAM,
    LNSR,
    SWA,
    AdaLoRA,
    ClassBalanced,
    Focal,
    Full,
    LNSRReading,
    LogitAdjustment,
    Loss,
    ReinitTop,
    Spikes,
)
from dsgd.config.schema import Config, ImbalanceKind, MultiTask


def _window_rules_see_the_whole_window(config: Config) -> list[str]:
    if not (isinstance(config.loss, Loss) and config.loss.needs_whole_window()):
        return []
    reason = f"loss={config.loss.name} as set weighs by sums over the whole window, so it must be 1"
    return [
        describe(f"trainer.{name}", value, reason)
        for name in ("accumulation", "processes")
        if (value := getattr(config.trainer, name)) != 1
    ]


def _lists_hold_what_their_parts_read(config: Config) -> list[str]:
    """A list's type says nothing of its length or its values."""
    found: list[str] = []
    if isinstance(config.averaging, SWA):
        most = config.averaging.checkpoints
        wanted = f"give different whole numbers from 1 to averaging.checkpoints = {most}"
        found += _list_problem("averaging.last", config.averaging.last, lambda value: 1 <= value <= most, wanted)
        if len(set(config.averaging.last)) < len(config.averaging.last):
            found.append(describe("averaging.last", config.averaging.last, wanted))
    if isinstance(config.gradient, Spikes):
        wanted = "give optimiser steps, whole numbers from 1"
        found += _list_problem("gradient.steps", config.gradient.steps, lambda value: value >= 1, wanted)
    if isinstance(config.regularizer, LNSR):
        wanted = "give a number of at least 0 for each of the last layers"
        found += _list_problem("regularizer.weights", config.regularizer.weights, lambda value: value >= 0, wanted)
    if isinstance(config.loss, Focal) and config.loss.alpha_by_class is not None:
        wanted = "give a number in [0, 1] for each class, or null"
        values = config.loss.alpha_by_class
        found += _list_problem("loss.alpha_by_class", values, lambda value: 0 <= value <= 1, wanted)
    return found


def _list_problem(key: str, values: list[Any], accepts: Callable[[Any], bool], wanted: str) -> list[str]:
    """One line where the list is empty or a value of it is not accepted."""
    return [] if values and all(map(accepts, values)) else [describe(key, values, wanted)]


def _alpha_is_given_once(config: Config) -> list[str]:
    if not isinstance(config.loss, Focal) or None in (config.loss.alpha, config.loss.alpha_by_class):
        return []
    reason = f"loss.alpha_by_class = {config.loss.alpha_by_class} says it already; set one of the two to null"
    return [describe("loss.alpha", config.loss.alpha, reason)]


def _fresh_blocks_train(config: Config) -> list[str]:
    if isinstance(config.adapter, Full) or not isinstance(config.initialization, ReinitTop):
        return []
    reason = f"adapter={config.adapter.name} freezes the blocks, so fresh ones would stay random; use adapter=full"
    return [describe("initialization", "reinit_top", reason)]


def _adalora_has_ranks_to_cut_and_time_for_it(config: Config) -> list[str]:
    adapter, found = config.adapter, []
    if not isinstance(adapter, AdaLoRA):
        return []
    if adapter.target_r >= adapter.initial_r:
        reason = f"must be below adapter.initial_r = {adapter.initial_r}; to cut nothing, use adapter=lora"
        found.append(describe("adapter.target_r", adapter.target_r, reason))
    if adapter.warmup + adapter.final >= 1:
        reason = f"with adapter.warmup = {adapter.warmup:g} no step is left to cut ranks in; their sum must be below 1"
        found.append(describe("adapter.final", f"{adapter.final:g}", reason))
    return found


def _averages_keep_adalora_s_budget(config: Config) -> list[str]:
    """An average with weights from before the last cut has more ranks than the budget: cut ones come back."""
    adapter, averaging = config.adapter, config.averaging
    if not isinstance(adapter, AdaLoRA):
        return []
    if isinstance(averaging, EMA):
        reason = "adapter=adalora cuts ranks, and an average with earlier weights brings them back; use averaging=last"
        return [describe("averaging", "ema", reason)]
    if isinstance(averaging, SWA) and averaging.last:
        k, share = max(averaging.last), adapter.final
        if (k - 1) / averaging.checkpoints >= share:
            reason = (
                f"of {averaging.checkpoints} checkpoints the last {k} begin before adapter=adalora has cut the last "
                f"rank, which averaging would bring back; take those of the last adapter.final = {share:g} of the steps"
            )
            return [describe("averaging.last", averaging.last, reason)]
    return []


def _parts_know_of_joined_tasks(config: Config) -> list[str]:
    """What counts classes, or means one head, has no meaning over several tasks' heads."""
    task, loss, found = config.task, config.loss, []
    if not isinstance(task, MultiTask):
        return []
    if isinstance(loss, LDAM | ClassBalanced | LogitAdjustment):
        reason = "goes by the training examples of each class, and every joined task has classes of its own"
        found.append(describe("loss", loss.name, reason))
    smoothing = getattr(loss, "label_smoothing", 0.0)
    if smoothing and len({part.classes for part in task.joined.values()}) > 1:
        found.append(
            describe("loss.label_smoothing", smoothing, "the joined tasks differ in their number of classes; give 0")
        )
    if isinstance(config.regularizer, LNSR) and config.regularizer.reading is LNSRReading.head:
        found.append(describe("regularizer.reading", "head", "task=multitask has a head for each task; give blocks"))
    if task.imbalance.kind is not ImbalanceKind.none:
        kind = task.imbalance.kind.value
        found.append(describe("task.imbalance.kind", kind, "joined tasks are as their own files say; give none"))
    return found


#: Each gives its problems as lines.
RULES: tuple[Callable[[Config], list[str]], ...] = (
    _window_rules_see_the_whole_window,
    _lists_hold_what_their_parts_read,
    _alpha_is_given_once,
    _fresh_blocks_train,
    _adalora_has_ranks_to_cut_and_time_for_it,
    _averages_keep_adalora_s_budget,
    _parts_know_of_joined_tasks,
)
