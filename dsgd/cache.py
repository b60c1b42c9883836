"""Files that are made once on a machine and read by every run after."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from dsgd.files import DamagedError, digest_of, remove_temporary, replacing, write_atomically

T = TypeVar("T")


def cached(name: str, build: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]) -> T:
    """What ``build`` gives, built by the first run that asks for ``name`` and loaded by all others.

    Runs that start together wait for the one that builds. A file whose checksum is another, or that cannot be loaded,
    is built again; a folder that cannot be written costs the time to build and nothing else.

    Args:
        name: of the file below the cache folder. It must tell everything that the content depends on.
        build: makes the content.
        save: writes it to a path.
        load: reads it back; raises ``ValueError`` or ``OSError`` where the file is not whole.
    """
    file = cache_folder() / name
    with suppress(OSError, ValueError):
        return load_checked(file, load)
    if not _can_write(file.parent):
        return build()
    with FileLock(f"{file}.lock"):
        with suppress(OSError, ValueError):  # another run has built it while this one waited
            return load_checked(file, load)
        content = build()
        with suppress(OSError):  # a full disk
            save_checked(file, content, save)
        return content


def cache_folder() -> Path:
    """``DSGD_CACHE``, else ``dsgd`` in the user's cache folder."""
    own = os.environ.get("DSGD_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dsgd"


def _can_write(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK)


def load_checked(file: Path, load: Callable[[Path], T]) -> T:
    """The content of ``file``, which is what :func:`save_checked` wrote.

    Raises:
        OSError: it or its checksum is not there, or cannot be read.
        ValueError: it is damaged.
    """
    if digest_of(file) != _sum_of(file).read_text(encoding="utf-8"):
        raise DamagedError(f"{file} is damaged: its checksum is another")
    return load(file)


def save_checked(file: Path, content: T, save: Callable[[T, Path], None]) -> None:
    """The file and, last, its checksum; what writers that were killed have left is removed."""
    remove_temporary(file.parent, file.name)
    with replacing(file) as temporary:
        save(content, temporary)
        checksum = digest_of(temporary)
    write_atomically(_sum_of(file), checksum)


def _sum_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.sha256")
