"""What a composed config must satisfy before anything is imported or loaded. Torch-free.

Ranges stand in the schema beside the fields; here are the walk over them and the rules that look at several keys.
Every problem is one line that names the key, the value, what is allowed and, where there is one, the nearest spelling.
"""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

from dsgd.config.fields import Allowed
from dsgd.config.parts import PARTS, SLOTS, Loss
from dsgd.config.schema import Config, ImbalanceKind


class ConfigErrors(ValueError):  # noqa: N818 - it holds all of them
    """Every problem of a command line or config, one line each in ``problems``."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))

    def __str__(self) -> str:
        count = len(self.problems)
        head = "1 error in the configuration" if count == 1 else f"{count} errors in the configuration"
        return "\n".join([f"{head}; nothing was trained.", *(f"  {problem}" for problem in self.problems)])


def describe(key: str, value: Any, allowed: str, known: Iterable[str] = ()) -> str:
    """One problem as one line; ``known`` are the spellings among which the nearest is looked for."""
    near = nearest(str(value), known)
    hint = f" (did you mean {near}?)" if near else ""
    return f"{key} = {value}: {allowed}{hint}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known spelling nearest to ``word``, or None where nothing is near."""
    spellings = {spelling.lower(): spelling for spelling in known}
    matches = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.6)
    return spellings[matches[0]] if matches else None


def problems(config: Config) -> list[str]:
    """All problems of one composed config, ranges first, then the rules over several keys."""
    found = list(_out_of_range(config, ""))
    for rule in RULES:
        found += rule(config)
    return found


def allowed_text(schema: type[Any], name: str) -> str:
    """What may stand in field ``name`` of the dataclass ``schema``, in words."""
    field = {field.name: field for field in dataclasses.fields(schema)}[name]
    kind, optional = _without_none(typing.get_type_hints(schema)[name])
    text = field.metadata["allowed"].text if "allowed" in field.metadata else _type_text(kind)
    if kind is int:
        text = text.replace("a number", "a whole number")
    return f"give {text}" + (" or null" if optional else "")


def _out_of_range(node: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(node):
        key, value = prefix + field.name, getattr(node, field.name)
        allowed: Allowed | None = field.metadata.get("allowed")
        if dataclasses.is_dataclass(value):
            yield from _out_of_range(value, key + ".")
        elif allowed is not None and value is not None and not allowed.accepts(value):
            yield describe(key, value, allowed_text(type(node), field.name))


def _without_none(kind: Any) -> tuple[Any, bool]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        rest = [part for part in typing.get_args(kind) if part is not type(None)]
        return rest[0], len(rest) < len(typing.get_args(kind))
    return kind, False


def _type_text(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(member.value for member in kind)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(kind, "a list" if typing.get_origin(kind) is list else "a group of keys")


# --- rules over several keys ----------------------------------------------------------------------------------------


def _parts_match_their_names(config: Config) -> list[str]:
    """``loss.name=focal`` renames a part without choosing it."""
    found = []
    for slot in SLOTS:
        part = getattr(config, slot)
        if part.name != type(part)().name:
            names = [kind().name for kind in PARTS[slot]]
            found.append(describe(f"{slot}.name", part.name, f"choose the part itself, {slot}={part.name}", names))
    return found


def _window_rules_see_the_whole_window(config: Config) -> list[str]:
    if not (isinstance(config.loss, Loss) and config.loss.needs_whole_window()):
        return []
    reason = f"loss={config.loss.name} as set weighs by sums over the whole window, so it must be 1"
    return [
        describe(f"trainer.{name}", value, reason)
        for name in ("accumulation", "processes")
        if (value := getattr(config.trainer, name)) != 1
    ]


def _imbalance_factor_is_used(config: Config) -> list[str]:
    imbalance = config.task.imbalance
    if imbalance.kind is not ImbalanceKind.none and imbalance.factor == 1:
        return [describe("task.imbalance.factor", 1, f"kind={imbalance.kind.value} needs a number below 1")]
    return []


def _processes_match_the_launcher(config: Config) -> list[str]:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if config.trainer.processes == world:
        return []
    how = f"this launch has {world}; start with `torchrun --nproc_per_node {config.trainer.processes} run.py …`"
    return [describe("trainer.processes", config.trainer.processes, how)]


def _device_exists(config: Config) -> list[str]:
    device = config.runtime.device
    forms = ("auto", "cpu", "cuda", "mps")
    match = re.fullmatch(r"(auto|cpu|mps|cuda)|cuda:(\d+)", device)
    if match is None:
        return [describe("runtime.device", device, "give auto, cpu, cuda, cuda:N or mps", forms)]
    if device == "mps" and sys.platform != "darwin":
        return [describe("runtime.device", device, "this machine is no Mac; give auto, cpu, cuda or cuda:N")]
    if device.startswith("cuda"):
        count, wanted = cuda_device_count(), int(match[2] or 0)
        if wanted >= count:
            there = f"cuda:0 to cuda:{count - 1}" if count else "none"
            return [
                describe("runtime.device", device, f"CUDA devices on this machine: {there}; auto takes what is there")
            ]
    return []


def _tracking_is_known(config: Config) -> list[str]:
    names = ("wandb", "none")
    if config.tracking.name in names:
        return []
    return [describe("tracking.name", config.tracking.name, "give wandb or none", names)]


#: Each rule returns its problems as lines.
RULES: tuple[Callable[[Config], list[str]], ...] = (
    _parts_match_their_names,
    _window_rules_see_the_whole_window,
    _imbalance_factor_is_used,
    _processes_match_the_launcher,
    _device_exists,
    _tracking_is_known,
)


def cuda_device_count() -> int:
    """CUDA devices that this process may use, asked of the driver, so that torch need not be imported.

    The driver itself honours ``CUDA_VISIBLE_DEVICES``.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
