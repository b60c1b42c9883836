"""Methods against tasks, ours above the paper's: what Tables 1, 2 and 6 have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.audit import row_averages
from experiments.cells import RUNS_TO_JUDGE, Cell, Column, Row, columns_of, rows_of
from experiments.labels import shared_settings
from experiments.names import ensemble_title, method_title, model_title, task_title, variant_title
from experiments.printed import Place, Printed
from experiments.statistics import interquartile_mean
from experiments.tables import Entry, Table, Value, ranked

LEGEND = (
    "Accuracy in %: mean ± sample standard deviation (ddof = 1) over the finished runs, then finished/planned runs "
    "and, where there are any, runs that collapsed (c) or are degenerate (d), failed (f), are running (r) or "
    "are missing (m). — says that there is nothing to compute it from. Best of a model in bold, second underlined; "
    "∗ all runs collapsed.",
    "“paper”: what it prints, then our mean minus its mean and whether its mean lies in (∈) our 95 % bootstrap "
    f"interval over seeds or not (∉); ? where fewer than {RUNS_TO_JUDGE} runs are too few for such an interval. "
    "An average is held against the paper's only over the paper's own tasks.",
)

DASH = "—"


def comparison(
    name: str,
    caption: str,
    frame: pd.DataFrame,
    printed: Mapping[Place, Printed],
    more_rows: Sequence[Row] = (),
) -> Table:
    """The table of an experiment's runs.

    Args:
        name: of the files.
        caption: which table of the paper, a full stop, and what it shows.
        frame: what ``collect`` returns; its models, methods and tasks are the rows and columns.
        printed: the paper's values; a row gets one only if its method is the paper's, unchanged.
        more_rows: what is derived from the same runs, such as ensembles.
    """
    columns = columns_of(frame)
    rows = [*rows_of(frame, columns, printed), *more_rows]
    groups = [[row for row in rows if row.model == model] for model in frame["model"].unique()]
    return Table(
        name=name,
        caption=caption,
        head=["Model", "Method", *(column_title(column) for column in columns), "ACC", "STD"],
        groups=[_group(group) for group in groups],
        notes=[*LEGEND, *_notes(rows, columns, frame, caption.split(".")[0])],
        records=[record for row in rows for record in _records(row, columns)],
    )


def column_title(column: Column) -> str:
    """Of a pair also the task that is evaluated."""
    title = task_title(column.task)
    return f"{title}: {task_title(column.part)}" if column.part else title


def row_title(row: Row) -> str:
    """As the paper writes it."""
    if row.size > 1:
        return ensemble_title(row.label, row.size)
    return variant_title(row.label, row.variant) if row.variant else method_title(row.label)


def entry_of(cell: Cell | None) -> Entry:
    """Mean ± deviation and counts; what is starred or has a dagger stands in the legend."""
    if cell is None:
        return Entry(DASH, "not planned")
    text = DASH if cell.mean is None else f"{cell.mean:.2f} ± {DASH if cell.std is None else f'{cell.std:.2f}'}"
    star, dagger = "∗" if cell.all_collapsed else "", "†" if cell.mixed else ""
    return Entry(f"{star}{text}{star}{dagger}", _counts(cell))


# --- what a person reads --------------------------------------------------------------------------------------------


def _group(rows: Sequence[Row]) -> list[list[Entry]]:
    """One model's rows, each followed by the paper's where it has one."""
    by_column = zip(*(row.cells for row in rows), strict=True)
    styles = [ranked([None if cell is None else cell.mean for cell in cells]) for cells in by_column]
    styles.append(ranked([row.average.mean for row in rows]))
    lines: list[list[Entry]] = []
    for position, row in enumerate(rows):
        cells = [entry_of(cell) for cell in row.cells]
        entries = [*cells, *_averages(row)]
        own = [entry._replace(style=style[position]) for entry, style in zip(entries, styles, strict=False)]
        model = Entry(model_title(row.model) if position == 0 else "")
        lines.append([model, Entry(row_title(row)), *own, entries[-1]])
        if row.printed_average or any(cell is not None and cell.printed for cell in row.cells):
            lines.append([Entry(""), Entry("", "paper"), *map(_printed_entry, row.cells), *_printed_averages(row)])
    return lines


def _counts(cell: Cell) -> str:
    """``9/10, 1f 2c``: nothing that was planned goes unmentioned."""
    done = f"{cell.n}/{cell.planned}" if cell.pool is None else f"{cell.n}× from {cell.pool}/{cell.planned}"
    counts = {
        "c": cell.count("collapsed"),
        "d": cell.count("degenerate"),
        "f": cell.failed,
        "r": cell.running,
        "m": cell.missing if cell.missing < cell.planned else 0,  # 0/10 says it already
    }
    others = " ".join(f"{count}{letter}" for letter, count in counts.items() if count)
    return f"{done}, {others}" if others else done


def _averages(row: Row) -> tuple[Entry, Entry]:
    tasks = sum(cell is not None for cell in row.cells)
    lacking = f"{row.tasks_with_runs}/{tasks} tasks"
    mean, std = row.average
    return (
        Entry(DASH, lacking) if mean is None else Entry(f"{mean:.2f}"),
        Entry(DASH) if std is None else Entry(f"{std:.2f}"),
    )


def _printed_entry(cell: Cell | None) -> Entry:
    if cell is None or cell.printed is None:
        return Entry("")
    verdict = {True: "∈", False: "∉", None: "?"}[cell.holds_printed]
    return Entry("", str(cell.printed) + ("" if cell.difference is None else f", {_signed(cell.difference)} {verdict}"))


def _printed_averages(row: Row) -> tuple[Entry, Entry]:
    if row.printed_average is None:
        return Entry(""), Entry("")
    differences = (
        "" if ours is None else f", {_signed(ours - theirs)}"
        for ours, theirs in zip(row.average, row.printed_average, strict=True)
    )
    mean, std = (f"{theirs:.2f}{text}" for theirs, text in zip(row.printed_average, differences, strict=True))
    return Entry("", mean), Entry("", std)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


# --- what must be said below ----------------------------------------------------------------------------------------


def _notes(rows: Sequence[Row], columns: Sequence[Column], frame: pd.DataFrame, place: str) -> list[str]:
    return [
        *_shared(frame),
        *_readings(rows),
        *_mixtures(rows, columns),
        *_failures(frame),
        *_contradictions(rows, place),
    ]


def _shared(frame: pd.DataFrame) -> Iterator[str]:
    """What the methods' names leave out, because all of them have it."""
    where: dict[str, list[str]] = {}
    for (model, task), settings in shared_settings(frame).items():
        if settings:
            where.setdefault(", ".join(settings), []).append(f"{model_title(model)} on {task_title(task)}")
    for text, places in where.items():
        yield f"Every run of {', '.join(places)} has {text}."


def _readings(rows: Sequence[Row]) -> Iterator[str]:
    """What must be known to compare some rows with the others."""
    if any(row.size > 1 for row in rows):
        yield (
            "Ensembles are majority votes over models drawn from the finished runs (ensembles × from finished/planned "
            "runs): as many as runs are planned, fewer where no more are possible. They share members, so that their "
            "spread is no single runs' spread; how many they share is in table1_ensembles."
        )
    if any(row.variant and any(cell and cell.printed for cell in row.cells) for row in rows):
        yield "Of averaged checkpoints the paper reports the better k for each task; here each k has its row."


def _mixtures(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[str]:
    """Threads, precision, device and versions are no part of a run's identity but can change its last digits."""
    for row in rows:
        for column, cell in zip(columns, row.cells, strict=True):
            if cell is not None and cell.mixed and row.size == 1:
                found = "; ".join(f"{name} {', '.join(values)}" for name, values in cell.mixed.items())
                yield f"† {model_title(row.model)}, {row_title(row)}, {column_title(column)} mixes runs of {found}."


def _failures(frame: pd.DataFrame) -> Iterator[str]:
    """Every run that has a reason not to be there, by method and reason."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run in frame[frame["reason"] != ""].to_dict("records"):
        key = tuple(str(run[column]) for column in ("state", "model", "method", "task", "reason"))
        found.setdefault(key, []).append(str(run["seed"]))
    for (state, model, method, task, reason), seeds in found.items():
        what = f"{model_title(model)}, {method_title(method)}, {task_title(task)}, seed {', '.join(seeds)}"
        yield f"{state.capitalize()}: {what}: {reason}."


def _contradictions(rows: Sequence[Row], place: str) -> Iterator[str]:
    """The averages that the paper prints and that do not follow from its own cells, where they are shown at all."""
    if not any(row.printed_average for row in rows):
        return
    for finding in row_averages():
        if finding.place == place and finding.verdict != "consistent":
            yield f"The paper prints an average of {finding.printed}; from its own cells follows {finding.follows}."


# --- what a program reads -------------------------------------------------------------------------------------------


def _records(row: Row, columns: Sequence[Column]) -> Iterator[dict[str, Value]]:
    for column, cell in zip(columns, row.cells, strict=True):
        if cell is not None:
            yield _record(row, column, cell)
    tasks = [cell for cell in row.cells if cell is not None]
    average, printed = row.average, row.printed_average
    empty = dict.fromkeys(_record(row, columns[0], tasks[0]))
    yield {
        **empty,
        **_identity(row, Column("average")),
        "planned": sum(cell.planned for cell in tasks),
        "n": sum(cell.n for cell in tasks),
        "mean": average.mean,
        "std": average.std,
        "paper_mean": printed.mean if printed else None,
        "paper_std": printed.std if printed else None,
        "difference": average.mean - printed.mean if printed and average.mean is not None else None,
    }


def _record(row: Row, column: Column, cell: Cell) -> dict[str, Value]:
    spread = sorted(cell.accuracies)
    return {
        **_identity(row, column),
        "planned": cell.planned,
        "n": cell.n,
        "pool": cell.pool,
        "failed": cell.failed,
        "running": cell.running,
        "missing": cell.missing,
        **{status: cell.count(status) for status in ("successful", "degenerate", "collapsed")},
        "mean": cell.mean,
        "std": cell.std,
        "median": float(pd.Series(spread).median()) if spread else None,
        "interquartile_mean": float(interquartile_mean(np.array(spread))) if spread else None,
        "min": spread[0] if spread else None,
        "max": spread[-1] if spread else None,
        "interval_low": cell.interval.low if cell.n > 1 else None,
        "interval_high": cell.interval.high if cell.n > 1 else None,
        "paper_mean": cell.printed.mean if cell.printed else None,
        "paper_std": cell.printed.std if cell.printed else None,
        "difference": cell.difference,
        "paper_in_interval": cell.holds_printed,
        "mixed": " ".join(itertools.chain(cell.mixed or ())),
    }


def _identity(row: Row, column: Column) -> dict[str, Value]:
    return {
        "model": row.model,
        "method": row.label,
        "variant": row.variant,
        "ensemble_size": row.size,
        "task": column.task,
        "evaluated_on": column.part,
    }
