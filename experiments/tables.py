"""A table as data, and the same table as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from dsgd.files import write_atomically
from dsgd.summary import markdown_table, markdown_text, without_html


class Entry(NamedTuple):
    """What stands at one place of a table."""

    text: str
    detail: str = ""  # set smaller where that is possible
    style: Literal["", "best", "second"] = ""


Value = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Head and body have one width; ``groups`` are runs of rows between which a rule is drawn."""

    name: str
    caption: str
    head: Sequence[str]
    groups: Sequence[Sequence[Sequence[Entry]]]
    notes: Sequence[str] = ()
    records: Sequence[Mapping[str, Value]] = field(default=())  # the CSV, a row each, all with the same keys


def write(table: Table, folder: Path) -> list[Path]:
    """Write ``<name>.md``, ``.csv`` and ``.tex`` into ``folder``, each whole or not at all; returns their paths."""
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    paths = {ending: folder / f"{table.name}.{ending}" for ending in texts}
    for ending, path in paths.items():
        write_atomically(path, texts[ending])
    return list(paths.values())


def to_markdown(table: Table) -> str:
    """Caption, an aligned table, and the notes as a list."""
    rows = [[_markdown(entry) for entry in row] for group in table.groups for row in group]
    lines = markdown_table([[markdown_text(text) for text in table.head], *rows])
    notes = [f"- {without_html(note)}" for note in table.notes]
    return "\n".join([f"**{without_html(table.caption)}**", "", *lines, *([""] if notes else []), *notes]) + "\n"


def to_csv(table: Table) -> str:
    """One line a record."""
    return records_to_csv(table.records)


def records_to_csv(records: Sequence[Mapping[str, Value]]) -> str:
    """Numbers unrounded to the fourth decimal, nothing where there is none; the first record's keys are the head."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in record.items()} for record in records)
    return text.getvalue()


def to_latex(table: Table) -> str:
    r"""A ``table*`` float with booktabs rules; needs ``\usepackage{booktabs,graphicx}``."""
    body: list[str] = []
    for group in table.groups:
        body += [r"\midrule", *(" & ".join(_latex(entry) for entry in row) + r" \\" for row in group)]
    return "\n".join(
        [
            r"% \usepackage{booktabs,graphicx}",
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{escape(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\linewidth}{!}{%",
            rf"\begin{{tabular}}{{{'l' * len(table.head)}}}",
            r"\toprule",
            " & ".join(escape(text) for text in table.head) + r" \\",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *(rf"\par\smallskip{{\footnotesize {escape(note)}\par}}" for note in table.notes),
            r"\end{table*}",
            "",
        ]
    )


def ranked(values: Sequence[float | None]) -> list[Literal["", "best", "second"]]:
    """The style of each value: equal ones, as printed, share a place; one value alone is no best."""
    shown = [None if value is None else round(value, 2) for value in values]
    present = [value for value in shown if value is not None]
    places = sorted(set(present), reverse=True)[:2] if len(present) > 1 else []
    styles: list[Literal["", "best", "second"]] = ["best", "second"]
    return ["" if value not in places else styles[places.index(value)] for value in shown]


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "∗": r"$^{*}$",
    "†": r"$^{\dagger}$",
    "∈": r"$\in$",
    "∉": r"$\notin$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "γ": r"$\gamma$",
    "τ": r"$\tau$",
    "—": "---",
    "–": "--",
    "“": "``",
    "”": "''",
    "≠": r"$\ne$",
    "β": r"$\beta$",
    "₂": "$_2$",
    "`": "",
}


def escape(text: str) -> str:
    """``text`` for LaTeX, where it means itself."""
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown(entry: Entry) -> str:
    marks = {"": ("", ""), "best": ("**", "**"), "second": ("<u>", "</u>")}
    before, after = marks[entry.style]
    text = f"{before}{markdown_text(entry.text)}{after}" if entry.text else ""
    return " ".join(part for part in (text, markdown_text(entry.detail)) if part)


def _latex(entry: Entry) -> str:
    commands = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
    text = commands[entry.style].format(escape(entry.text)) if entry.text else ""
    detail = rf"{{\scriptsize {escape(entry.detail)}}}" if entry.detail else ""
    return " ".join(part for part in (text, detail) if part)


def _plain(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return csv_text(value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def csv_text(text: str) -> str:
    """``text`` as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
