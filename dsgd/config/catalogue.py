"""All methods of ``conf/method/``, as ``python run.py --methods`` lists them.

Read off the presets' files, because composing each of them would take seconds. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dsgd.config.parts import PARTS, SLOTS, Schedule
from dsgd.config.tree import CONF


@dataclass(frozen=True)
class MethodEntry:
    """One preset."""

    name: str
    slots: dict[str, str]  # slot → part, where it is not the plain one
    settings: dict[str, str]  # key → value, where the preset sets more than its slots
    schedule: str | None  # γ_t's shape, where the loss reads one
    paper: str | None  # where the DSGD paper reports it
    description: str  # the first comment of its file


def methods() -> list[MethodEntry]:
    """Every preset, by name."""
    return [_entry(path) for path in sorted((CONF / "method").glob("*.yaml"))]


def table(entries: list[MethodEntry]) -> str:
    """A line for each entry under a header, in columns."""
    rows = [("method", "fills", "γ", "paper", "what it is")]
    for entry in entries:
        fills = " ".join(f"{key}={value}" for key, value in (entry.slots | entry.settings).items())
        rows.append((entry.name, fills or "-", entry.schedule or "-", entry.paper or "-", entry.description))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _entry(path: Path) -> MethodEntry:
    preset: Any = OmegaConf.to_container(OmegaConf.load(path))
    chosen = {
        key.removeprefix("override /"): option
        for default in preset.pop("defaults", [])
        for key, option in default.items()
    }
    method = preset.pop("method")
    slots = {slot: chosen[slot] for slot in SLOTS if slot in chosen}
    settings = dict(_leaves(preset))
    return MethodEntry(
        name=method["name"],
        slots=slots,
        settings=settings,
        schedule=_schedule(chosen, settings) if _reads_schedule(slots.get("loss")) else None,
        paper=method["paper"],
        description=_first_comment(path),
    )


def _reads_schedule(loss: str | None) -> bool:
    kinds = {kind().name: kind for kind in PARTS["loss"]}
    return loss is not None and bool(getattr(kinds[loss], "reads_schedule", False))


def _schedule(chosen: dict[str, str], settings: dict[str, str]) -> str:
    """The shape's name; of the static one also its value, which then is no setting beside it."""
    name = chosen.get("schedule", Schedule().name.value)
    values = [settings.pop(key) for key in list(settings) if key.startswith("schedule.")]
    return " ".join([name, *values])


def _leaves(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            text = f"{value:.3g}" if isinstance(value, float) else str(value)
            yield prefix + key, text.lower() if isinstance(value, bool) else text


def _first_comment(path: Path) -> str:
    comments = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")]
    return next(comment for comment in comments if not comment.startswith("@package"))
