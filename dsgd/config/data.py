"""Facts of data that can be known before anything is loaded: how to get them, and what one's own files hold.

Torch-free.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsgd.config.files import FilesError, is_file, is_folder, local_path, nfc
from dsgd.config.folders import mirror_files
from dsgd.config.schema import Task

#: Of a table's columns a message names no more than this.
MOST_NAMED = 20


class DataFileError(FilesError):
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
    if not root or task.hub_id is None or None in whole:
        return None
    folder = local_path(root) / task.hub_id
    rows = tuple(_rows(folder, task.subset, split) for split in ("train", task.evaluation_split))
    return None if rows == whole or 0 in rows else " + ".join(map(str, rows))


def _rows(folder: Path, subset: str | None, split: str) -> int:
    """Rows of a split of a mirror; 0 where there is none."""
    import pyarrow.parquet as pq

    try:
        return sum(pq.read_metadata(file.path).num_rows for file in mirror_files(folder, subset, split))
    except (OSError, ValueError):
        return 0  # reading the data will say what is wrong


# --- tables ---------------------------------------------------------------------------------------------------------


def column_names(path: Path, quotes: bool | None = None) -> list[str]:
    """The columns of a table, from the beginning of the file, as they are spelled there.

    Args:
        path: of the file; the end of its name tells the format.
        quotes: false where quotes are plain characters.

    Raises:
        DataFileError: no file, an unknown format, an empty file, or a beginning that cannot be read.
    """
    if is_folder(path):
        raise DataFileError("is a folder; for images in a folder of each class use task=image_folder")
    if not is_file(path):
        raise DataFileError("no such file")
    if path.suffix.lower() not in FORMATS:
        raise DataFileError(f"give a file that ends in {', '.join(FORMATS)}")
    try:
        if path.stat().st_size == 0:
            raise DataFileError("the file is empty")
        _refuse_another_format(path)
        return FORMATS[path.suffix.lower()](path, quotes)
    except DataFileError:
        raise
    except UnicodeDecodeError as error:
        raise DataFileError(not_utf_8(error)) from error
    except RecursionError as error:
        raise DataFileError(f"is no {path.suffix[1:]}: its first line is nested too deep") from error
    except OSError as error:
        raise DataFileError(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:
        raise DataFileError(f"is no {path.suffix[1:]}: {error}") from error


#: How files of other formats begin, and what to do with them.
BEGINNINGS = {
    b"PAR1": (".parquet", "is a Parquet file; rename it so that it ends in .parquet"),
    b"PK\x03\x04": ("", "is a zip archive or an Excel workbook; save its table as CSV in UTF-8"),
    b"\x1f\x8b": ("", "is compressed by gzip; gunzip it"),
    b"\xd0\xcf\x11\xe0": ("", "is an old Excel workbook; save its table as CSV in UTF-8"),
}


def _refuse_another_format(path: Path) -> None:
    """Name a file by its first bytes where its name says something else."""
    with path.open("rb") as stream:
        first = stream.read(4)
    for beginning, (ending, reason) in BEGINNINGS.items():
        if first.startswith(beginning) and path.suffix.lower() != ending:
            raise DataFileError(reason)


def place_of(column: str, names: list[str]) -> int:
    """Where ``column`` stands among ``names``, whose other names may repeat.

    Raises:
        DataFileError: nowhere, or in several places.
    """
    places = [place for place, name in enumerate(names) if nfc(name) == nfc(column)]
    if not places:
        shown = ", ".join(_shown(name) for name in names[:MOST_NAMED])
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise DataFileError(f"no column {column}; the columns are {shown}{more}")
    if len(places) > 1:
        raise DataFileError(f"several columns are called {column}: {', '.join(str(place + 1) for place in places)}")
    return places[0]


def _shown(name: str) -> str:
    """A column's name; in quotes where blanks stand around it, which could not be seen."""
    return repr(name) if name != name.strip() else name or "(no name)"


def dialect(separator: str, quotes: bool | None) -> dict[str, Any]:
    """What ``csv.reader`` is given."""
    csv.field_size_limit(2**31 - 1)  # else a text of more than 131072 characters is an error
    return {"delimiter": separator, "strict": True, "quoting": csv.QUOTE_NONE if quotes is False else csv.QUOTE_MINIMAL}


def not_utf_8(error: UnicodeDecodeError) -> str:
    """What is wrong with the text, and what helps."""
    where = f"byte 0x{error.object[error.start]:02x}, number {error.start + 1}"
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"is not UTF-8 ({where}) but UTF-16; `iconv -f utf-16 -t utf-8` converts it"
    return f"is not UTF-8 ({where}); `iconv -f latin1 -t utf-8` converts a file in Western European encoding"


def _separated(separator: str) -> Callable[[Path, bool | None], list[str]]:
    def read(path: Path, quotes: bool | None) -> list[str]:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            names = next(csv.reader(stream, **dialect(separator, quotes)), [])
        if len(names) < 2:  # a text and a label at least
            reason = f"its first line, {''.join(names)[:200]!r}, does not name columns with {separator!r} between them"
            raise ValueError(reason)
        return names

    return read


def _json_lines(path: Path, _quotes: bool | None) -> list[str]:
    with path.open(encoding="utf-8-sig") as stream:
        first = json.loads(next((line for line in stream if line.strip()), ""))
    if not isinstance(first, dict):
        raise ValueError("its first line is no object {…}")
    return list(first)


def _parquet(path: Path, _quotes: bool | None) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


#: By the end of the file's name: what gives the columns.
FORMATS: dict[str, Callable[[Path, bool | None], list[str]]] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
