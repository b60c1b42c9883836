"""A table of one's own as a task: csv, tsv, jsonl or Parquet, with one or two columns of text and one of labels."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgd.config.data import DataFileError, column_names, digest, not_utf_8
from dsgd.data.corpus import Corpus, Template
from dsgd.data.splits import stratified_shares
from dsgd.models.sources import SourceError

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

Columns = dict[str, list[Any]]


def table_corpus(task: Task, _data: Data) -> Corpus:
    """The rows of ``task.path``, and of ``task.evaluation_path`` or a share set aside by ``task.split_seed``.

    Classes are the labels of the training file, by number where all are numbers, else by spelling.

    Raises:
        SourceError: a file is not what it was when the run was planned, or no table, or unfit to train and evaluate a
            classifier on; the message names file, column and row.
    """
    if task.path is None or task.label is None:
        raise SourceError(f"task.path = {task.path}, task.label = {task.label}: give a file and its column of labels")
    if digest(task.path, task.evaluation_path) != task.fingerprint:
        raise SourceError(f"{task.path} is not what it was when the run was planned; start the run again")
    paths = [Path(path).expanduser() for path in (task.path, task.evaluation_path) if path is not None]
    tables = [_checked(path, task.text, task.label) for path in paths]
    classes = _classes(tables[0][task.label], paths[0])
    numbers = [_numbers(table[task.label], classes, path) for table, path in zip(tables, paths, strict=True)]
    train, evaluation = _split(task, tables[0], numbers, paths[0])
    names = {f"text{place}": column for place, column in enumerate(task.text)}
    return Corpus(
        fields={name: [text for table in tables for text in table[column]] for name, column in names.items()},
        template=Template(tuple(f"{{{name}}}" for name in names), cut=tuple(names)),
        labels=np.concatenate(numbers),
        index=np.concatenate([np.arange(len(part)) for part in numbers]),
        train=train,
        evaluation=evaluation,
        classes=classes,
    )


def _split(task: Task, table: Columns, numbers: list[np.ndarray], path: Path) -> tuple[np.ndarray, np.ndarray]:
    if len(numbers) == 2:
        count = len(numbers[0])
        return np.arange(count), np.arange(count, count + len(numbers[1]))
    try:
        inputs = list(zip(*(table[name] for name in task.text), strict=True))
        return stratified_shares(numbers[0], inputs, task.evaluation_share, task.split_seed)
    except SourceError as error:
        raise SourceError(f"{path}: {error}; give a file to evaluate on, task.evaluation_path=…") from error


# --- what is refused ------------------------------------------------------------------------------------------------


def _checked(path: Path, text: list[str], label: str) -> Columns:
    """The columns of a table whose every row has a text and a label."""
    try:
        names = column_names(path)
        absent = [name for name in (*text, label) if name not in names]
        if absent:
            raise DataFileError(f"no column {', '.join(absent)}; the columns are {', '.join(names)}")
        columns = _READERS[path.suffix.lower()](path, [*text, label])
    except DataFileError as error:
        raise SourceError(f"{path}: {error}") from error
    if not columns[label]:
        raise SourceError(f"{path}: no rows")
    for name in text:
        _refuse(path, name, "is empty", [_is_missing(value) for value in columns[name]])
        _refuse(path, name, "is no text", [not _is_text(value) for value in columns[name]])
    _refuse(path, label, "is empty", [_is_missing(value) for value in columns[label]])
    _refuse(path, label, "is no label", [isinstance(value, list | dict | bytes) for value in columns[label]])
    return {**columns, label: [str(value) for value in columns[label]]}


def _refuse(path: Path, column: str, what: str, rows: list[bool]) -> None:
    found = [row for row, bad in enumerate(rows, start=1) if bad]
    if found:
        more = f", and in {len(found) - 1} more rows" if len(found) > 1 else ""
        raise SourceError(f"{path}: column {column} {what} in row {found[0]} of {len(rows)}{more}")


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()


def _is_text(value: Any) -> bool:
    """JSON can spell half a surrogate pair, which is no character."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


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
            raise SourceError(f"{path}: {one!r} and {other!r} are one label in two spellings; write both alike")
    if len(classes) == 1:
        raise SourceError(f"{path}: every label is {classes[0]}; a classifier needs two classes")
    if len(classes) > max(2, len(labels) // 2):
        raise SourceError(
            f"{path}: {len(classes)} different labels in {len(labels)} rows, {classes[0]} to {classes[-1]}; a number "
            "to predict, a text or an identifier is no class: choose another column as task.label"
        )
    return classes


def _order(labels: list[str]) -> Callable[[str], Any]:
    """2 before 10 where all labels are numbers, exactly; else by spelling, blanks around it aside."""
    try:
        finite = all(Decimal(label).is_finite() for label in labels)
    except InvalidOperation:
        finite = False
    return Decimal if finite else str.strip


def _numbers(labels: list[str], classes: list[str], path: Path) -> np.ndarray:
    """(n,) int64, each label's position in ``classes``."""
    positions = {name: number for number, name in enumerate(classes)}
    unseen = sorted(set(labels) - set(classes))
    if unseen:
        never, seen = ", ".join(unseen[:5]), ", ".join(classes[:5])
        raise SourceError(f"{path} has labels that training never sees: {never}; it sees {seen}")
    return np.array([positions[label] for label in labels], dtype=np.int64)


# --- formats --------------------------------------------------------------------------------------------------------


def _separated(separator: str) -> Callable[[Path, list[str]], Columns]:
    """Cells as they are spelled: ``NA`` and ``null`` are texts, and nothing becomes a number."""

    def read(path: Path, columns: list[str]) -> Columns:
        csv.field_size_limit(2**31 - 1)  # else a text of more than 131072 characters is an error
        lines = csv.reader(StringIO(_text(path), newline=""), delimiter=separator, strict=True)
        names, rows = next(lines), []
        try:
            for row in lines:
                if len(row) not in (0, len(names)):
                    raise DataFileError(f"line {lines.line_num} has {len(row)} fields, the header {len(names)}")
                rows.append(row)
        except csv.Error as error:
            raise DataFileError(f"line {lines.line_num}: {error}") from error
        places = {name: names.index(name) for name in columns}
        return {name: [row[place] for row in rows if row] for name, place in places.items()}

    return read


def _json_lines(path: Path, columns: list[str]) -> Columns:
    rows = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataFileError(f"line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise DataFileError(f"line {number} is no object {{…}}")
            rows.append(row)
    return {name: [row.get(name) for row in rows] for name in columns}


def _parquet(path: Path, columns: list[str]) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found: Columns = pq.read_table(path, columns=columns).to_pydict()
    except pa.ArrowException as error:
        raise DataFileError(f"cannot be read: {error}") from error
    return found


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(not_utf_8(error)) from error


#: By the end of the file's name, as in ``dsgd.config.data.FORMATS``.
_READERS: dict[str, Callable[[Path, list[str]], Columns]] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
