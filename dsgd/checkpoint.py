"""Resume points of a running training, and the evaluated weights of a finished one where they are asked for."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_model
from torch import Tensor, nn

from dsgd.environment import code_version
from dsgd.files import replacing
from dsgd.methods.contracts import Step
from dsgd.runs import WEIGHTS

if TYPE_CHECKING:
    from dsgd.training import Training

_log = logging.getLogger(__name__)


class UnfitError(ValueError):
    """A resume point that this run must not go on from; the message says why."""


def resume(training: Training) -> int:
    """Continue from the folder's resume point, if there is one; returns the last step that is done, else 0.

    The numbers go on exactly as if nothing had happened: weights, optimiser, schedules, random streams, the method's
    own state, what the diagnostics have seen; the history is cut back to the same step and mirrored again. A point
    that is damaged, of another run or of another version of the code, or that lacks what the diagnostics need, is left
    alone with a warning, and the run starts from its first step.
    """
    path = _resume_point(training)
    try:
        state = _load(path, training) if path.exists() else None
    except UnfitError as error:
        _log.warning("%s %s; the run starts from its first step", path, error)
        state = None
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
    training.observer.resume(training, state["observer"])
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
        "of": _origin(training),
        "history": _history_digest(training, step.number),
        "step": step.number,
        "model": training.bare.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "lr_schedule": training.lr_schedule.state_dict(),
        "parts": {slot: part.state_dict() for slot, part in training.parts.items() if hasattr(part, "state_dict")},
        "best": training.best,
        "clock": (training.clock.seconds, training.clock.examples),
        "observer": training.observer.state_dict(),
        "random": random,
    }
    state["checksum"] = checksum(state)
    training.folder.require_claim()
    with replacing(_resume_point(training)) as temporary, temporary.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # as of a full disk, which torch's writer hides
                raise error.__context__ from error
            raise


def close(training: Training, model: nn.Module) -> None:
    """Drop the resume point; leave the weights of ``model`` in its place where ``runtime.keep_checkpoint`` is set."""
    if not training.accelerator.is_main_process:
        return
    folder = training.folder.file("checkpoint")
    shutil.rmtree(folder, ignore_errors=True)
    if training.config.runtime.keep_checkpoint:
        with replacing(training.folder.file(WEIGHTS)) as temporary:
            save_model(model, str(temporary))


def checksum(state: Mapping[str, Any]) -> str:
    """SHA-256 over all tensors and plain values of a state, whatever the file that holds it looks like."""
    digest = hashlib.sha256()
    for piece in _pieces(state):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[Any]:
    """``value`` as objects of bytes, with its type and shape, so that no two states give the same."""
    if isinstance(value, Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)}".encode()
        flat = value.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy()
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key, entry in value.items():
            yield from _pieces(key)
            yield from _pieces(entry)
    elif isinstance(value, (list, tuple)):
        yield f"sequence {len(value)}".encode()
        for entry in value:
            yield from _pieces(entry)
    else:
        yield f"{type(value).__name__} {value!r}".encode()


def _load(path: Path, training: Training) -> dict[str, Any]:
    """What a resume point holds.

    Raises:
        UnfitError: it cannot be read, or it is not a point that this very run may go on from.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        whole = state.pop("checksum") == checksum(state)
    except Exception as error:  # torn bytes raise whatever they happen to spell
        raise UnfitError("cannot be read") from error
    if not whole:
        raise UnfitError("is damaged: its checksum is another")
    if state["of"]["id"] != _origin(training)["id"]:
        raise UnfitError(f"is of another run, {state['of']['id']}")
    if state["of"] != _origin(training):
        raise UnfitError("was written by another version of the code")
    if state["history"] != _history_digest(training, state["step"]):
        raise UnfitError("does not fit the history beside it")
    if not training.observer.can_resume(state["observer"]):
        raise UnfitError("lacks what the diagnostics saw before it")
    return state


def _origin(training: Training) -> dict[str, Any]:
    """Which run, and which code, a resume point is of."""
    identity = training.folder.read("identity.json") or {}
    return {"id": identity.get("id"), **code_version()}


def _history_digest(training: Training, step: int) -> str:
    """Of the history up to ``step``."""
    records = [record for record in training.folder.history if record["step"] <= step]
    return hashlib.sha256(repr(records).encode()).hexdigest()


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
