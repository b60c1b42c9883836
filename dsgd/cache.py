"""Files that are made once on a machine and read by every run after."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

T = TypeVar("T")


def cached(name: str, build: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]) -> T:
    """What ``build`` gives, built by the first run that asks for ``name`` and loaded by all others.

    Runs that start together wait for the one that builds. A file that cannot be loaded is built again; a folder that
    cannot be written costs the time to build and nothing else.

    Args:
        name: of the file below the cache folder. It must tell everything that the content depends on.
        build: makes the content.
        save: writes it to a path.
        load: reads it back; raises ``ValueError`` or ``OSError`` where the file is not whole.
    """
    file = cache_folder() / name
    with suppress(OSError, ValueError):
        return load(file)
    if not _can_write(file.parent):
        return build()
    with FileLock(f"{file}.lock"):
        with suppress(OSError, ValueError):  # another run has built it while this one waited
            return load(file)
        content = build()
        with suppress(OSError):  # a full disk
            _replace(file, content, save)
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


def _replace(file: Path, content: T, save: Callable[[T, Path], None]) -> None:
    """Under another name first, so that no reader sees half a file."""
    temporary = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        save(content, temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
