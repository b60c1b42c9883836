"""Files that are whole or absent, and how one tells: writing by rename, checksums, JSON that was written by others."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class DamagedError(ValueError):
    """A file that is there does not hold what was written into it; the message names it and says what is wrong."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which becomes ``path`` once the block ends well; else nothing of it stays.

    The content reaches the disk before the name does: a power cut leaves the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.tmp-{path.name}")  # by its ending some writers tell the format
    try:
        yield temporary
        to_disk(temporary)
        temporary.replace(path)
        with suppress(OSError):  # some file systems cannot do this for a folder
            to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: str) -> None:
    """Write a text file by rename, so that no reader sees half of it."""
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def remove_temporary(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of ``name`` have left in ``folder``; only for who alone writes there."""
    for left in folder.glob(f".*.tmp-{name}"):
        left.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedError: it cannot be read, or it holds something else.
    """
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"{path}: there is no such file") from error
    except OSError as error:  # a folder, a circle of links
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: not JSON, or nested too deeply") from error
    if not isinstance(loaded, dict):
        raise DamagedError(f"{path} is damaged: not a JSON object")
    return loaded


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_json(content: Any) -> str:
    """SHA-256 of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def to_disk(path: Path) -> None:
    """Wait until what was written to a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
