"""Facts of data that can be known before anything is loaded: how to get them, and what one's own files hold.

Torch-free.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from dsgd.config.schema import Task


class DataFileError(ValueError):
    """A file of one's own cannot be read as a table; the message says why and what would help."""


def how_to_get(task: Task, root: str) -> str:
    """The way to a copy of a data set of the hub, for a machine without a connection."""
    revision = f" --revision {task.revision}" if task.revision else ""
    command = f"hf download {task.hub_id} --repo-type dataset{revision} --local-dir {root}/{task.hub_id}"
    return f"`{command}` fetches it where there is a connection; then set data.root={root}, or DSGD_DATA_ROOT"


def sample_of(task: Task, root: str | None) -> str | None:
    """``10000 + 2000`` where a mirror holds that many rows to train and to evaluate on, and not the whole data set's.

    None where it holds the whole, where the task's YAML does not say how many rows that is, and for the hub.
    """
    whole = (task.train_examples, task.evaluation_examples)
    if root is None or task.hub_id is None or None in whole:
        return None
    folder = Path(root).expanduser() / task.hub_id / (task.subset or "")
    rows = tuple(_rows(folder, split) for split in ("train", task.evaluation_split))
    return None if rows == whole or 0 in rows else " + ".join(map(str, rows))


def _rows(folder: Path, split: str) -> int:
    """Rows of a split as the hub lays it out, ``<split>-00000-of-00001.parquet``; 0 where there is none."""
    files = sorted(folder.glob(f"{split}-*.parquet"))
    if not files:
        return 0
    import pyarrow.parquet as pq

    try:
        return sum(pq.read_metadata(file).num_rows for file in files)
    except (OSError, ValueError):
        return 0  # reading the data will say what is wrong


# --- resolvers for the YAMLs ----------------------------------------------------------------------------------------


def stem(path: str | None) -> str | None:
    """``reviews`` of ``~/data/reviews.csv``; None of None."""
    return None if path is None else Path(path).expanduser().resolve().stem


def digest(*paths: str | None) -> str | None:
    """16 hexadecimal digits of the content of files and folders, whatever they are called and wherever they lie.

    Inside a folder the names count. None where the first path is None or a path is not there, which validation tells.
    """
    there = [Path(path).expanduser() for path in paths if path is not None]
    if paths[0] is None or not all(path.exists() for path in there):
        return None
    return hashlib.sha256("\n".join(map(_digest, there)).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    if path.is_file():
        state = path.stat()
        return _file_digest(path.resolve(), state.st_size, state.st_mtime_ns)
    inside = [f"{file.relative_to(path)}:{_digest(file)}" for file in sorted(path.rglob("*")) if file.is_file()]
    return hashlib.sha256("\n".join(inside).encode()).hexdigest()


@cache
def _file_digest(path: Path, _size: int, _modified: int) -> str:
    """Remembered: a config is composed several times for one run."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- tables ---------------------------------------------------------------------------------------------------------


def column_names(path: Path) -> list[str]:
    """The columns of a table, from the beginning of the file.

    Raises:
        DataFileError: no file, an unknown format, an empty file, a beginning that cannot be read, or columns that
            share a name.
    """
    if path.is_dir():
        raise DataFileError("is a folder; for images in a folder of each class use task=image_folder")
    if not path.is_file():
        raise DataFileError("no such file")
    if path.suffix.lower() not in FORMATS:
        raise DataFileError(f"give a file that ends in {', '.join(FORMATS)}")
    if path.stat().st_size == 0:
        raise DataFileError("the file is empty")
    try:
        names = FORMATS[path.suffix.lower()](path)
    except UnicodeDecodeError as error:
        raise DataFileError(not_utf_8(error)) from error
    except (ValueError, csv.Error) as error:
        raise DataFileError(f"is no {path.suffix[1:]}: {error}") from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataFileError(f"several columns are called {', '.join(twice)}")
    return names


def not_utf_8(error: UnicodeDecodeError) -> str:
    """What is wrong with the text, and what helps."""
    where = f"byte 0x{error.object[error.start]:02x}, number {error.start + 1}"
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"is not UTF-8 ({where}) but UTF-16; `iconv -f utf-16 -t utf-8` converts it"
    return f"is not UTF-8 ({where}); `iconv -f latin1 -t utf-8` converts a file in Western European encoding"


def _separated(separator: str) -> Callable[[Path], list[str]]:
    def read(path: Path) -> list[str]:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            names = next(csv.reader(stream, delimiter=separator), [])
        if len(names) < 2:  # a text and a label at least
            reason = f"its first line, {''.join(names)!r}, does not name columns with {separator!r} between them"
            raise ValueError(reason)
        return names

    return read


def _json_lines(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig") as stream:
        first = json.loads(next((line for line in stream if line.strip()), ""))
    if not isinstance(first, dict):
        raise ValueError("its first line is no object {…}")
    return list(first)


def _parquet(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


#: By the end of the file's name: what gives the columns.
FORMATS: dict[str, Callable[[Path], list[str]]] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
