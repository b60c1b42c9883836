"""A table of one's own as a task: csv, tsv, jsonl or Parquet, with one or two columns of text and one of labels."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgd.config.data import DataFileError, column_names, dialect, not_utf_8, place_of
from dsgd.config.files import local_path, nfc
from dsgd.config.schema import EmptyCells
from dsgd.data.checks import MOST_NAMED, is_text, shown
from dsgd.data.corpus import Corpus, Template
from dsgd.data.splits import stratified_shares
from dsgd.models.sources import SourceError

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

#: Labels that programs write where there is none, in lower case.
ABSENT_LABELS = ("nan", "null", "na", "n/a", "#n/a", "<na>")

#: What helps where quotes are no quotes.
PLAIN_QUOTES = "where quotes are plain characters, write task.quotes=false"


@dataclass(frozen=True, eq=False)
class Table:
    """Some columns of a file.

    Attributes:
        columns: the name that was asked for → a value for each row.
        lines: where each row begins in the file, from 1.
        unit: what ``lines`` counts, ``line`` or ``row``.
    """

    columns: dict[str, list[Any]]
    lines: list[int]
    unit: str = "line"

    def take(self, kept: Sequence[bool]) -> Table:
        """The rows of which ``kept`` is true."""
        columns = {name: _chosen(values, kept) for name, values in self.columns.items()}
        return Table(columns, _chosen(self.lines, kept), self.unit)


def _chosen(values: list[Any], kept: Sequence[bool]) -> list[Any]:
    return [value for value, keeps in zip(values, kept, strict=True) if keeps]


def table_corpus(task: Task, _data: Data) -> Corpus:
    """The rows of ``task.path``, and of ``task.evaluation_path`` or a share set aside by ``task.split_seed``.

    Classes are the labels of the training file, by number where all are numbers, else by spelling.

    Raises:
        SourceError: a file is no table, or unfit to train and evaluate a classifier on; the message names file, column
            and lines.
    """
    if task.path is None or task.label is None:
        raise SourceError(f"task.path = {task.path}, task.label = {task.label}: give a file and its column of labels")
    paths = [local_path(path) for path in (task.path, task.evaluation_path) if path is not None]
    read = [_read(path, task) for path in paths]
    tables = [_with_texts_and_labels(path, table, task) for path, table in zip(paths, read, strict=True)]
    labels = [table.columns[task.label] for table in tables]
    classes = _classes(labels[0], paths[0])
    numbers = [_numbers(part, classes, path) for part, path in zip(labels, paths, strict=True)]
    train, evaluation = _split(task, tables, numbers, paths)
    names = {f"text{place}": column for place, column in enumerate(task.text)}
    return Corpus(
        fields={name: [text for table in tables for text in table.columns[column]] for name, column in names.items()},
        template=Template(tuple(f"{{{name}}}" for name in names), cut=tuple(names)),
        labels=np.concatenate(numbers),
        index=np.concatenate([np.arange(len(part)) for part in numbers]),
        train=train,
        evaluation=evaluation,
        classes=classes,
        dropped=sum(len(table.lines) for table in read) - sum(len(table.lines) for table in tables),
        dropped_as="rows with empty cells",
    )


def _split(
    task: Task, tables: list[Table], numbers: list[np.ndarray], paths: list[Path]
) -> tuple[np.ndarray, np.ndarray]:
    inputs = [list(zip(*(table.columns[name] for name in task.text), strict=True)) for table in tables]
    if len(tables) == 2:
        if set(inputs[1]) <= set(inputs[0]):
            raise SourceError(f"{paths[1]}: every row is one that is trained on too; give others to evaluate on")
        count = len(numbers[0])
        return np.arange(count), np.arange(count, count + len(numbers[1]))
    try:
        return stratified_shares(numbers[0], inputs[0], task.evaluation_share, task.split_seed)
    except SourceError as error:
        raise SourceError(f"{paths[0]}: {error}; give a file to evaluate on, task.evaluation_path=…") from error


# --- what is refused ------------------------------------------------------------------------------------------------


def _read(path: Path, task: Task) -> Table:
    columns = [*task.text, str(task.label)]
    try:
        names = column_names(path, task.quotes)
        for column in columns:
            place_of(column, names)
        table = _READERS[path.suffix.lower()](path, columns, task.quotes)
    except DataFileError as error:
        raise SourceError(f"{path}: {error}") from error
    if not table.lines:
        raise SourceError(f"{path}: no rows")
    return table


def _with_texts_and_labels(path: Path, table: Table, task: Task) -> Table:
    """The rows that have a text and a label, as ``task.empty`` has it, and every label as text in form NFC."""
    label = str(task.label)
    for name in task.text:
        unfit = [not _is_missing(value) and not is_text(value) for value in table.columns[name]]
        _refuse(path, table, name, "is no text", unfit)
    unfit = [isinstance(value, list | dict | bytes) for value in table.columns[label]]
    _refuse(path, table, label, "is no label", unfit)
    if task.empty is EmptyCells.drop:
        absent = {name: _is_absent_label if name == label else _is_missing for name in table.columns}
        table = table.take(
            [
                not any(absent[name](value) for name, value in zip(table.columns, row, strict=True))
                for row in zip(*table.columns.values(), strict=True)
            ]
        )
        if not table.lines:
            raise SourceError(f"{path}: no rows are left without those with empty cells")
    _refuse_empty(path, table, task)
    texts = {name: ["" if value is None else value for value in table.columns[name]] for name in task.text}
    return Table({**texts, label: [str(value) for value in table.columns[label]]}, table.lines, table.unit)


def _refuse_empty(path: Path, table: Table, task: Task) -> None:
    label, drop = str(task.label), "task.empty=drop leaves such rows out"
    _refuse(path, table, label, "is empty", list(map(_is_missing, table.columns[label])), drop)
    if task.empty is EmptyCells.keep:
        return
    for name in task.text:
        rows = list(map(_is_missing, table.columns[name]))
        _refuse(path, table, name, "is empty", rows, f"{drop}, and task.empty=keep reads an empty text")
    rows = list(map(_is_absent_label, table.columns[label]))
    name = next((value for value, found in zip(table.columns[label], rows, strict=True) if found), "")
    reason = f"is {name!r}, as programs write where there is no label,"
    _refuse(path, table, label, reason, rows, f"{drop}, and task.empty=keep makes it a class")


def _refuse(path: Path, table: Table, column: str, what: str, rows: list[bool], way_out: str = "") -> None:
    places = _chosen(table.lines, rows)
    if places:
        named = ", ".join(map(str, places[:MOST_NAMED]))
        more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
        where = f"{table.unit}{'s' if len(places) > 1 else ''} {named}{more}"
        raise SourceError(f"{path}: column {column} {what} in {where}" + (f"; {way_out}" if way_out else ""))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()


def _is_absent_label(value: Any) -> bool:
    return _is_missing(value) or str(value).strip().lower() in ABSENT_LABELS


def _classes(labels: list[str], path: Path) -> list[str]:
    """The distinct labels in their order.

    Raises:
        SourceError: one class only, or one in two spellings, or so many that they can only be numbers to predict or
            texts.
    """
    distinct = list(dict.fromkeys(labels))  # in their order of appearance: two of one key are told in it too
    order = _order(distinct)
    classes = sorted(distinct, key=order)
    for one, other in pairwise(classes):
        if order(one) == order(other):
            shown_as = ascii if nfc(one) == nfc(other) else repr  # two forms of one accent look alike
            raise SourceError(
                f"{path}: {shown_as(one)} and {shown_as(other)} are one label in two spellings; write both alike"
            )
    if len(classes) == 1:
        raise SourceError(f"{path}: every label is {shown(classes[0])}; a classifier needs two classes")
    if len(classes) > max(2, len(labels) // 2):
        raise SourceError(
            f"{path}: {len(classes)} different labels in {len(labels)} rows, {shown(classes[0])} to "
            f"{shown(classes[-1])}; a number to predict, a text or an identifier is no class: choose another column as "
            "task.label"
        )
    return [nfc(name) for name in classes]


def _order(labels: list[str]) -> Callable[[str], Any]:
    """2 before 10 where all labels are numbers, exactly; else by spelling, blanks around it aside."""
    try:
        finite = all(Decimal(label).is_finite() for label in labels)
    except InvalidOperation:
        finite = False
    return Decimal if finite else lambda label: nfc(label).strip()


def _numbers(labels: list[str], classes: list[str], path: Path) -> np.ndarray:
    """(n,) int64, each label's position in ``classes``."""
    positions = {name: number for number, name in enumerate(classes)}
    normal = {label: nfc(label) for label in set(labels)}
    unseen = sorted(set(normal.values()) - set(classes))
    if unseen:
        never, seen = (", ".join(map(shown, names[:5])) for names in (unseen, classes))
        raise SourceError(f"{path} has labels that training never sees: {never}; it sees {seen}")
    return np.array([positions[normal[label]] for label in labels], dtype=np.int64)


# --- csv and tsv ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of separated values, and the first and the last line that it stands in."""

    cells: list[str]
    first: int
    last: int


def _separated(separator: str) -> Callable[[Path, list[str], bool | None], Table]:
    """Cells as they are spelled: ``NA`` and ``null`` are texts, and nothing becomes a number."""

    def read(path: Path, columns: list[str], quotes: bool | None) -> Table:
        lines = list(StringIO(_text(path), newline=""))
        header, *rows = _rows(lines, separator, quotes)
        rows = [row for row in rows if row.cells]  # a blank line has none
        places = {name: place_of(name, header.cells) for name in columns}
        if quotes is None:
            _refuse_swallowed_rows(lines, rows, separator, len(header.cells), places[columns[-1]])
        for row in rows:
            if len(row.cells) != len(header.cells):
                hint = f"; {PLAIN_QUOTES}" if row.last > row.first else ""
                fields = f"{len(row.cells)} fields, the header {len(header.cells)}"
                raise DataFileError(f"{_lines_text(row)} has {fields}{hint}")
        return Table(
            {name: [row.cells[place] for row in rows] for name, place in places.items()}, [row.first for row in rows]
        )

    return read


def _rows(lines: list[str], separator: str, quotes: bool | None) -> Iterator[Row]:
    reader = csv.reader(lines, **dialect(separator, quotes))
    first = 1
    try:
        for cells in reader:
            yield Row(cells, first, reader.line_num)
            first = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            reason = "a quote opens here and is never closed; close it, or,"
            raise DataFileError(f"line {first}: {reason} {PLAIN_QUOTES}") from error
        where = _lines_text(Row([], first, reader.line_num))
        raise DataFileError(f"{where}: {error}; {PLAIN_QUOTES}") from error


def _refuse_swallowed_rows(lines: list[str], rows: list[Row], separator: str, width: int, label: int) -> None:
    """A quote that is a plain character swallows the rows up to the next one, with their labels.

    So a cell of several lines is suspect where one of them, by itself, has the fields of a row and a label that other
    rows have too.

    Raises:
        DataFileError: there is such a cell; the message names its lines.
    """
    labels = {row.cells[label].strip() for row in rows if len(row.cells) > label}
    for row in rows:
        for number in range(row.first, row.last):
            cells = lines[number - 1].rstrip("\r\n").split(separator)
            if len(cells) == width and cells[label].strip().strip('"') in labels - {""}:
                reason = f"are read as one row, for the quotes, but line {number} looks like a row of its own"
                otherwise = "where a text holds such lines, task.quotes=true"
                raise DataFileError(f"{_lines_text(row)} {reason}; {PLAIN_QUOTES}; {otherwise}")


def _lines_text(row: Row) -> str:
    return f"line {row.first}" if row.first == row.last else f"lines {row.first} to {row.last}"


# --- other formats --------------------------------------------------------------------------------------------------


def _json_lines(path: Path, columns: list[str], _quotes: bool | None) -> Table:
    rows, lines = [], []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            rows.append(_json_object(line, number))
            lines.append(number)
    return Table({name: [_value(row, name) for row in rows] for name in columns}, lines)


def _json_object(line: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line, object_pairs_hook=_without_repeated_keys)
    except RecursionError as error:
        raise DataFileError(f"line {number} is nested too deep") from error
    except ValueError as error:
        raise DataFileError(f"line {number} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataFileError(f"line {number} is no object {{…}}")
    return row


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands in it twice")
    return found


def _value(row: dict[str, Any], column: str) -> Any:
    if column in row:
        return row[column]
    return next((value for name, value in row.items() if nfc(name) == nfc(column)), None)


def _parquet(path: Path, columns: list[str], _quotes: bool | None) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        found = pq.read_table(path, columns=[names[place_of(name, names)] for name in columns])
        values = {name: found[names[place_of(name, names)]].to_pylist() for name in columns}
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot be read: {str(error).partition(chr(10))[0]}") from error
    return Table(values, list(range(1, found.num_rows + 1)), "row")


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(not_utf_8(error)) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataFileError(
            f"line {line} holds a NUL character, which no text has; remove it, or save the file as UTF-8"
        )
    return text


#: By the end of the file's name, as in ``dsgd.config.data.FORMATS``.
_READERS: dict[str, Callable[[Path, list[str], bool | None], Table]] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
