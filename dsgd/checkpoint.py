"""Resume points of a running training, and the evaluated weights of a finished one where they are asked for."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_model
from torch import nn

from dsgd.methods.contracts import Step

if TYPE_CHECKING:
    from dsgd.training import Training

_log = logging.getLogger(__name__)


def resume(training: Training) -> int:
    """Continue from the folder's resume point, if there is one; returns the last step that is done, else 0.

    The numbers go on exactly as if nothing had happened: weights, optimiser, schedules, random streams, the method's
    own state; the history is cut back to the same step and mirrored again.
    """
    state = _load(_resume_point(training))
    if state is None:
        if training.accelerator.is_main_process:
            training.folder.keep_history(-1)
        return 0
    training.bare.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.lr_schedule.load_state_dict(state["lr_schedule"])
    for slot, part in training.parts.items():
        if slot in state["parts"]:
            part.load_state_dict(state["parts"][slot])
    training.best = state["best"]
    training.clock.seconds, training.clock.examples = state["clock"]
    step: int = state["step"]
    if training.accelerator.is_main_process:
        training.recorder.tracker.log(training.folder.keep_history(step))
    training.recorder.progress.start_at(step)
    _set_random_state(state["random"][training.accelerator.process_index])
    return step


def save_if_due(training: Training, step: Step) -> None:
    """Write a resume point every ``runtime.checkpoint_every`` steps, by rename; not after the last step."""
    every = training.config.runtime.checkpoint_every
    if every is None or step.number % every or step.number == step.total:
        return
    training.recorder.flush()  # the history up to here belongs to the point, and a non-finite run must not resume
    random = _gather([_random_state()], training)
    if not training.accelerator.is_main_process:
        return
    state = {
        "step": step.number,
        "model": training.bare.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "lr_schedule": training.lr_schedule.state_dict(),
        "parts": {slot: part.state_dict() for slot, part in training.parts.items() if hasattr(part, "state_dict")},
        "best": training.best,
        "clock": (training.clock.seconds, training.clock.examples),
        "random": random,
    }
    path = _resume_point(training)
    path.parent.mkdir(exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def close(training: Training, model: nn.Module) -> None:
    """Drop the resume point; leave the weights of ``model`` in its place where ``runtime.keep_checkpoint`` is set."""
    if not training.accelerator.is_main_process:
        return
    folder = _resume_point(training).parent
    shutil.rmtree(folder, ignore_errors=True)
    if training.config.runtime.keep_checkpoint:
        folder.mkdir()
        save_model(model, str(folder / "model.safetensors"))


def _load(path: Path) -> dict[str, Any] | None:
    """What a resume point holds; None where there is none, or where it cannot be read: then training starts anew."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torn bytes raise whatever they happen to spell
        _log.warning("%s cannot be read (%s); the run starts from its first step", path, error)
        return None
    return state


def _resume_point(training: Training) -> Path:
    return training.folder.path / "checkpoint" / "resume.pt"


def _random_state() -> dict[str, Any]:
    """The dropout stream: torch's generators, of the CPU and of the device in use."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])


def _gather(mine: list[Any], training: Training) -> list[Any]:
    if training.accelerator.num_processes == 1:
        return mine
    from accelerate.utils import gather_object

    gathered: list[Any] = gather_object(mine)
    return gathered
