"""What all figures share: size and style, a look for each method, marks for failed runs, and their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dsgd.files import replacing, write_atomically
from experiments import command
from experiments.command import Asked
from experiments.tables import Table, Value, records_to_csv

mpl.use("Agg")

COLUMN, PAGE = 3.3, 6.8  # inches: widths of a column and of a page of the paper

STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # TrueType, whole letters that editors and text search understand
    "ps.fonttype": 42,
}

GREY = "#666666"
FAILURES = {"collapsed": "#A50026", "degenerate": "#E6A23C"}  # of shares of runs, where no method is told by colour


class Look(NamedTuple):
    """By what a method is known in every figure; its colour is no other method's."""

    colour: str
    marker: str
    line: Any = "-"


#: Okabe and Ito's palette for the paper's methods, Tol's for the others: safe for colour-blind readers.
LOOKS = {
    "fft": Look("#D55E00", "o", "--"),
    "dsgd": Look("#0072B2", "D", "-"),
    "focal": Look("#009E73", "s", "-."),
    "lnsr": Look("#CC79A7", "^", ":"),
    "noisytune": Look("#E69F00", "v", (0, (5, 1))),
    "pcgrad": Look("#56B4E9", "P", (0, (3, 1, 1, 1))),
    "swa": Look("#000000", "*", (0, (1, 1))),
    "gradient_stabilizer": Look("#882255", "h", (0, (3, 1, 1, 1, 1, 1))),
    "lora": Look("#117733", "p", (0, (4, 2))),
    "adalora": Look("#332288", "<", (0, (2, 1))),
    "ia3": Look("#999933", ">", (0, (1, 2))),
}


def look_of(preset: str) -> Look:
    """A method's look; grey for one that no figure of the paper shows."""
    return LOOKS.get(preset, Look(GREY, "8"))


@dataclass(frozen=True)
class Drawing:
    """A figure and the numbers in it, a mapping with the same keys for each thing drawn."""

    figure: Figure
    records: Sequence[Mapping[str, Value]]


Draw = Callable[[pd.DataFrame], Drawing]


def main(
    name: str,
    draw: Draw,
    arguments: Sequence[str] | None = None,
    *,
    experiment: str | None = None,
    table: Callable[[str, pd.DataFrame], Table] | None = None,
) -> int:
    """Collect an experiment's runs and write the figure as PNG and PDF, and what it shows as CSV.

    Args:
        name: of the figure.
        draw: from what ``collect`` returns to the figure.
        arguments: of the command line; None = the process's own.
        experiment: whose runs it shows unless ``--experiment`` names a variant; None = that of its own name.
        table: drawn of the same runs, beside the figure.

    Returns:
        0, or 2 if the command line is wrong.
    """

    def produce(asked: Asked, frame: pd.DataFrame) -> list[Path]:
        drawn = drawing(draw, frame, asked.command)
        if table is None:
            return [*save(drawn, asked), *save_records(drawn, asked)]
        return [*command.write_table(table, asked, frame), *save(drawn, asked)]

    return command.run(name, produce, arguments, experiment)


def drawing(draw: Draw, frame: pd.DataFrame, how: str) -> Drawing:
    """The figure in the house's style; an empty frame that says so where no run has finished."""
    with mpl.rc_context(STYLE):
        return draw(frame) if (frame["state"] == "finished").any() else Drawing(empty(told(frame), how), [])


def save(drawn: Drawing, asked: Asked) -> list[Path]:
    """Write ``<name>.png`` at 300 dots an inch and ``<name>.pdf``; returns their paths."""
    asked.folder.mkdir(parents=True, exist_ok=True)
    paths = [asked.folder / f"{asked.name}.{ending}" for ending in ("png", "pdf")]
    with mpl.rc_context(STYLE):
        for path, what in zip(paths, ("Description", "Subject"), strict=True):
            with replacing(path) as temporary:
                drawn.figure.savefig(temporary, format=path.suffix[1:], dpi=300, metadata={what: asked.command})
    return paths


def save_records(drawn: Drawing, asked: Asked) -> list[Path]:
    """Write ``<name>.csv``; returns its path."""
    path = asked.folder / f"{asked.name}.csv"
    write_atomically(path, records_to_csv(drawn.records))
    return [path]


def empty(what: str, how: str) -> Figure:
    """A frame without data that says why."""
    figure, axes = canvas(COLUMN, 1.2)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.text(0.5, 0.5, f"nothing to draw yet: {what}", ha="center", va="center", wrap=True, transform=axes.transAxes)
    axes.set_xlabel(how, fontsize=7, wrap=True)
    return figure


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of that many inches and its axes, as ``plt.subplots`` gives them, outside pyplot's list of figures."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def told(runs: pd.DataFrame) -> str:
    """``7 of 10 runs, 1 failed, 2 missing``: nothing that was planned goes unmentioned."""
    counts = runs["state"].value_counts()
    rest = [f"{counts[state]} {state}" for state in ("failed", "running", "missing") if counts.get(state)]
    return ", ".join([f"{counts.get('finished', 0)} of {len(runs)} runs", *rest])


def status_handles(statuses: Sequence[str]) -> list[Line2D]:
    """Entries of a legend for the marks of these runs."""
    shown = [status for status in MARKS if status in statuses]
    return [Line2D([], [], color=GREY, linestyle="", label=status, **mark(status, GREY, "o")) for status in shown]


MARKS = ("successful", "degenerate", "collapsed")


def mark(status: str, colour: str, marker: str, size: float = 4) -> dict[str, Any]:
    """How a run's point is drawn: filled if it succeeded, open if degenerate, a cross if it collapsed."""
    shape = "x" if status == "collapsed" else marker
    face = colour if status == "successful" else "none"
    return {"marker": shape, "markersize": size, "markerfacecolor": face, "markeredgecolor": colour}


def records_of(frame: pd.DataFrame) -> list[dict[str, Value]]:
    """The rows of a frame whose columns have names and whose entries are plain values; nothing for NaN."""
    return [
        {str(key): None if pd.isna(value) else value for key, value in row.items()} for row in frame.to_dict("records")
    ]


def legend_above(axes: Any, title: str, **options: Any) -> None:
    """A panel's title and legend above it, where they hide nothing."""
    style = {"title": title, "title_fontsize": 8, "borderaxespad": 0.2, **options}
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), **style)


def whole_steps(axes: Any) -> None:
    """No ticks between steps or epochs."""
    axes.xaxis.get_major_locator().set_params(integer=True)


def say(axes: Any, text: str) -> None:
    """Tell inside a panel why it has no data."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=GREY, wrap=True)
