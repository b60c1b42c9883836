"""A self-contained HTML page: sections, tables and pictures, nothing that a network would have to bring."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.figures import STYLE
from experiments.tables import Entry, Table

PIXELS = 150  # of a screen for an inch of a figure, so that its smallest letters are as large as the text

CSS = """
:root { color-scheme: light dark; --ink: #1b1b1b; --back: #ffffff; --faint: #6a6a6a; --line: #d4d4d4; --tint: #f4f4f4;
        --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --back: #16181b; --faint: #a5a5a5; --line: #3b3f45; --tint: #212429; --link: #86bcf5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; color: var(--ink); background: var(--back);
       font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); } small, .note, .empty { color: var(--faint); } .note { font-size: .85rem; margin: .2rem 0; }
nav ul { columns: 16rem; padding-left: 1.2rem; } code { background: var(--tint); padding: .1em .3em; font-size: .85em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; margin: .5rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; }
thead th { border-bottom: 1px solid var(--ink); white-space: nowrap; }
tbody + tbody { border-top: 1px solid var(--line); }
td small { display: block; } img { display: block; max-width: 100%; height: auto; background: #fff; padding: .4rem; }
"""


@dataclass(frozen=True)
class Section:
    """A heading and, below it, HTML; of level 2 (in the table of contents) or 3."""

    anchor: str
    title: str
    body: str
    level: int = 2


def page(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    contents = "".join(f'<li><a href="#{each.anchor}">{text(each.title)}</a></li>' for each in sections)
    body = "".join(
        f'<section id="{each.anchor}"><h{each.level}>{text(each.title)}</h{each.level}>{each.body}</section>\n'
        for each in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{CSS}</style></head>\n<body><h1>{text(title)}</h1>{introduction}"
        f"<nav><h2>Contents</h2><ul>{contents}</ul></nav>\n{body}</body></html>\n"
    )


def text(content: str) -> str:
    """Plain text as HTML; what stands between backticks is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(content))


def paragraph(content: str, kind: str = "") -> str:
    """A paragraph of plain text; ``kind``: note or empty."""
    return f'<p class="{kind}">{text(content)}</p>' if kind else f"<p>{text(content)}</p>"


def grid(head: Sequence[str], groups: Sequence[Sequence[Sequence[str]]]) -> str:
    """A table of cells that are HTML already, under a head of plain text; it scrolls where it is too wide."""
    top = "".join(f"<th>{text(cell)}</th>" for cell in head)
    bodies = "".join(
        f"<tbody>{''.join('<tr>' + ''.join(f'<td>{cell}</td>' for cell in row) + '</tr>' for row in group)}</tbody>"
        for group in groups
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead>{bodies}</table></div>'


def table(content: Table) -> str:
    """A table as Markdown and LaTeX have it, with its caption and notes."""
    groups = [[[_entry(entry) for entry in row] for row in group] for group in content.groups]
    notes = "".join(paragraph(note, "note") for note in content.notes)
    return f"{paragraph(content.caption)}{grid(content.head, groups)}{notes}"


def picture(figure: Figure, description: str) -> str:
    """The figure as an SVG inside the page."""
    file = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    width = round(PIXELS * figure.get_figwidth())
    return f'<img alt="{html.escape(description)}" width="{width}" src="data:image/svg+xml;base64,{data}">'


def _entry(entry: Entry) -> str:
    marks = {"": ("", ""), "best": ("<b>", "</b>"), "second": ("<u>", "</u>")}
    before, after = marks[entry.style]
    detail = f"<small>{text(entry.detail)}</small>" if entry.detail else ""
    return f"{before}{text(entry.text)}{after}{detail}" if entry.text else detail
