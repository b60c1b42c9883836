"""The tasks that a multi-task run joins, as their own files in ``conf/task/`` define them. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from dsgd.config.schema import Modality, Task, TaskForm

_FOLDER = Path(__file__).resolve().parents[2] / "conf" / "task"


UNKNOWN = "no such task"


def why_not(name: str) -> str | None:
    """What keeps task ``name`` from sharing an encoder with others, or None where it can."""
    if not (_FOLDER / f"{name}.yaml").is_file():
        return UNKNOWN
    task = _definition(name)  # as it stands: a file of one's own data interpolates what is not there
    if task.modality is not Modality.text:
        return "is of images"
    if task.form is TaskForm.multiple_choice:
        return "has several inputs an example, rated by one scorer"
    if task.hub_id is None and task.package is None:
        return "names no data of its own"
    return None


@cache
def joinable() -> tuple[str, ...]:
    """Names of the tasks that can share an encoder."""
    return tuple(path.stem for path in sorted(_FOLDER.glob("*.yaml")) if why_not(path.stem) is None)


# --- resolvers for the YAML: names that cannot be joined are left out, and validation tells of them ------------------


def definitions(names: Sequence[str]) -> DictConfig:
    """Name → definition."""
    found = {name: _definition(name) for name in names if why_not(name) is None}
    return DictConfig(found, key_type=str, element_type=Task)


def title(names: Sequence[str]) -> str | None:
    """``mrpc+rte``; None of no names."""
    return "+".join(map(str, names)) or None


def longest(names: Sequence[str]) -> int:
    """The largest ``max_length``."""
    return max([task.max_length for task in _known(names)], default=Task().max_length)


def train_examples(names: Sequence[str]) -> int | None:
    """All tasks' together; None where one of them does not say."""
    return _sum([task.train_examples for task in _known(names)])


def evaluation_examples(names: Sequence[str]) -> int | None:
    """The same of the evaluation splits."""
    return _sum([task.evaluation_examples for task in _known(names)])


def tokens(names: Sequence[str]) -> int | None:
    """The most of an input's tokens, since a batch that mixes tasks is padded for the longest."""
    counts = [task.tokens for task in _known(names)]
    return max([count for count in counts if count is not None], default=None)


def _known(names: Sequence[str]) -> list[Task]:
    return [_task(name) for name in names if why_not(name) is None]


def _sum(counts: list[int | None]) -> int | None:
    present = [count for count in counts if count is not None]
    return sum(present) if present and len(present) == len(counts) else None


def _task(name: str) -> Task:
    task = OmegaConf.to_object(_definition(name))
    assert isinstance(task, Task)
    return task


@cache
def _definition(name: str) -> DictConfig:
    own = OmegaConf.load(_FOLDER / f"{name}.yaml")
    assert isinstance(own, DictConfig)
    own.pop("defaults")
    own = OmegaConf.masked_copy(own, [key for key in own if key in Task.__dataclass_fields__])
    merged = OmegaConf.merge(OmegaConf.structured(Task), own)
    assert isinstance(merged, DictConfig)
    return merged
