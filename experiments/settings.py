"""Data and settings as they are composed, each beside what the paper prints: Tables 3 to 5, Figures 5 and 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from dsgd.config import tree
from dsgd.config.schema import Config
from experiments.cells import Record
from experiments.tables import Entry, Table, Value

LEGEND = "Ours is composed from the configs; (paper …) is what the paper prints, ≠ where that is another value."


class Setting(NamedTuple):
    """A column: its head, our value of a planned run, and the paper's key for it, if it prints one."""

    title: str
    ours: Callable[[Record], Value]
    paper: str = ""


class Line(NamedTuple):
    """A row: what it is called, a planned run that stands for it, and the paper's values by key."""

    names: tuple[str, ...]
    run: Record
    printed: Mapping[str, Value]


def settings_table(
    name: str,
    caption: str,
    heads: Sequence[str],
    lines: Sequence[Line],
    settings: Sequence[Setting],
    notes: Sequence[str],
) -> Table:
    """A line each, its names under ``heads`` and then its settings."""
    return Table(
        name=name,
        caption=caption,
        head=[*heads, *(setting.title for setting in settings)],
        groups=[[[*map(Entry, line.names), *(_entry(line, setting) for setting in settings)] for line in lines]],
        notes=[LEGEND, *notes],
        records=[_record(heads, line, setting) for line in lines for setting in settings],
    )


def config_of(run: Record) -> Config:
    """The whole config of a planned run."""
    return _composed(tuple(run["overrides"]))


def first_of_each(runs: Sequence[Record], *columns: str) -> list[Record]:
    """For each distinct value of ``columns``, the first run that has it."""
    found: dict[tuple[str, ...], Record] = {}
    for run in runs:
        found.setdefault(tuple(str(run[column]) for column in columns), run)
    return list(found.values())


@cache
def _composed(overrides: tuple[str, ...]) -> Config:
    with tree.loader():
        return tree.typed(tree.compose(overrides))


def _entry(line: Line, setting: Setting) -> Entry:
    ours, printed = setting.ours(line.run), line.printed.get(setting.paper)
    if printed is None:
        return Entry(_text(ours))
    return Entry(_text(ours), f"(paper {_text(printed)})" + (" ≠" if ours not in (None, printed) else ""))


def _record(heads: Sequence[str], line: Line, setting: Setting) -> dict[str, Value]:
    ours, printed = setting.ours(line.run), line.printed.get(setting.paper)
    return {
        **dict(zip(map(str.lower, heads), line.names, strict=True)),
        "setting": setting.title,
        "ours": _text(ours),
        "paper": None if printed is None else _text(printed),
        "agrees": None if ours is None or printed is None else ours == printed,
    }


def _text(value: Value) -> str:
    if value is None:
        return "—"
    return f"{value:g}" if isinstance(value, float) else str(value)
