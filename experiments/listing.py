"""Lists of findings, one dataclass a row: printed as Markdown, written as Markdown and CSV."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def print_listing(rows: Sequence[DataclassInstance]) -> None:
    """Print the rows as a Markdown table."""
    print(_markdown(rows))


def write_listing(rows: Sequence[DataclassInstance], folder: Path, name: str, command: str) -> None:
    """Write ``<name>.md``, headed by the command that makes it, and ``<name>.csv`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"`{command}`\n\n{_markdown(rows)}\n", encoding="utf-8")
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(cells(rows))


def _markdown(rows: Sequence[DataclassInstance]) -> str:
    header, *body = cells(rows)
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)


def cells(rows: Sequence[DataclassInstance]) -> list[list[str]]:
    """The fields' names, then a line of texts for each row."""
    names = [field.name for field in dataclasses.fields(rows[0])]
    return [names, *([str(getattr(row, name)) for name in names] for row in rows)]
