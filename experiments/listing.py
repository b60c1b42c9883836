"""Lists of findings, one dataclass a row: printed as Markdown, written as Markdown and CSV."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsgd.files import replacing, write_atomically
from dsgd.summary import without_html
from experiments.tables import csv_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def print_listing(rows: Sequence[DataclassInstance]) -> None:
    """Print the rows as a Markdown table."""
    print(_markdown(rows))


def write_listing(rows: Sequence[DataclassInstance], folder: Path, name: str, command: str) -> None:
    """Write ``<name>.md``, headed by the command that makes it, and ``<name>.csv`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{name}.md", f"`{command}`\n\n{_markdown(rows)}\n")
    with replacing(folder / f"{name}.csv") as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(cells(rows, as_text=csv_text))


def _markdown(rows: Sequence[DataclassInstance]) -> str:
    header, *body = cells(rows)
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(without_html(cell).replace('|', '∣') for cell in line)} |" for line in lines)


def cells(rows: Sequence[DataclassInstance], as_text: Callable[[str], str] = str) -> list[list[str]]:
    """The fields' names, then a line of texts for each row; fields that are texts pass through ``as_text``."""
    names = [field.name for field in dataclasses.fields(rows[0])]
    values = ([getattr(row, name) for name in names] for row in rows)
    return [names, *([as_text(value) if isinstance(value, str) else str(value) for value in row] for row in values)]
