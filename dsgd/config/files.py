"""Files of one's own: one listing and one digest, for a run's identity and for the readers of data. Torch-free."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import time
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dsgd.cache import cache_folder
from dsgd.files import write_atomically

T = TypeVar("T")

#: A folder of more files and folders than this is refused, so that a wrong path is told in seconds.
MOST_ENTRIES = 1_000_000

#: What systems leave in folders, in lower case; hidden files (``.DS_Store``) are passed over too.
JUNK = ("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx")

#: A file that changed less than this before it was hashed may change again without another time stamp.
SETTLES_AFTER = 2_000_000_000  # nanoseconds

#: Hashing that takes longer than this shows a progress bar on a terminal, in seconds.
QUIET = 2.0


class FilesError(ValueError):
    """Files of one's own are not there or cannot be used; the message says why and what would help."""


class File(NamedTuple):
    """A file of a listing."""

    name: str  # the path below the listed folder: "/" between the parts, Unicode in form NFC
    path: str
    state: tuple[int, ...]  # size, modification time, change time, device and inode: equal where nothing was written

    @property
    def size(self) -> int:
        """Bytes."""
        return self.state[0]


def local_path(path: str) -> Path:
    """``path`` with ``~`` expanded where there is such a home folder."""
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def is_folder(path: Path) -> bool:
    """Whether a folder is there; a name that no file system takes is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether a regular file is there; a pipe or a device is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def nfc(text: str) -> str:
    """``text`` in the Unicode form NFC: macOS writes the accent of ``é`` as a character of its own, Linux does not."""
    return unicodedata.normalize("NFC", text)


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is passed over."""
    return name.startswith(".") or name.lower() in JUNK


# --- one list of files ----------------------------------------------------------------------------------------------


def listing(root: Path, may_be_empty: bool = False) -> list[File]:
    """Every regular file below ``root``, in the order of the parts of their names; ``root`` itself where it is a file.

    Links are followed, and a link to a folder that it lies in is passed over. So are hidden files and folders, and
    what systems leave (``JUNK``).

    Raises:
        FilesError: nothing is there, no file is in it and it may not be empty, more than ``MOST_ENTRIES``, a link to
            what is not there, or a file or folder that may not be read.
    """
    found = remembered(("listing", os.path.abspath(root)), lambda: _listing(root))  # noqa: PTH100 - links stay
    if not found and not may_be_empty:
        raise FilesError(f"{root} holds no files")
    return found


def _listing(root: Path) -> list[File]:
    try:
        state = root.stat()
    except (OSError, ValueError) as error:
        raise FilesError(f"{root}: {_reason(error)}") from error
    if stat.S_ISREG(state.st_mode):
        return [File("", str(root), _state(state))]
    return sorted(_below(root, state), key=lambda file: file.name.split("/"))


def _below(root: Path, state: os.stat_result) -> Iterator[File]:
    """Depth first, with a stack of its own: folders may lie deeper than Python recurses."""
    seen = 0
    first = (state.st_dev, state.st_ino)  # with each folder its own, chained to those of the folders that it lies in
    waiting: list[tuple[str, str, tuple[tuple[int, int], Any]]] = [(str(root), "", (first, None))]
    while waiting:
        folder, prefix, chain = waiting.pop()
        for entry in _entries(folder):
            seen += 1
            if seen > MOST_ENTRIES:
                raise FilesError(f"{root} holds more than {MOST_ENTRIES} files and folders; give a smaller folder")
            found = None if is_junk(entry.name) else _followed(entry)
            if found is None:
                continue
            name = prefix + nfc(entry.name)
            if stat.S_ISREG(found.st_mode):
                yield File(name, entry.path, _state(found))
            elif stat.S_ISDIR(found.st_mode) and not _lies_in((found.st_dev, found.st_ino), chain):
                waiting.append((entry.path, f"{name}/", ((found.st_dev, found.st_ino), chain)))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise FilesError(f"{folder}: {_reason(error)}") from error


def _followed(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The state of what the entry leads to; None where it leads to itself or has just gone."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno == errno.ELOOP or not entry.is_symlink():
            return None
        if error.errno == errno.ENOENT:
            raise FilesError(f"{entry.path} is a link to what is not there; remove it or mend it") from error
        raise FilesError(f"{entry.path}: {_reason(error)}") from error


def _lies_in(place: tuple[int, int], chain: Any) -> bool:
    while chain is not None:
        if chain[0] == place:
            return True
        chain = chain[1]
    return False


def _state(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


# --- digests, remembered between starts -----------------------------------------------------------------------------


def sha256(file: File) -> str:
    """Of the bytes, 64 hexadecimal digits."""
    with open(file.path, "rb") as stream:  # noqa: PTH123 - of 60000 files
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(root: Path, files: Sequence[File], of: Callable[[File], str] = sha256) -> list[str]:
    """What ``of`` gives for each of ``files``, which is computed anew only where a file has changed.

    The cache folder keeps it by size, times and inode. A file that was written less than two seconds before is not
    kept, since it could be written again with the same time.

    Args:
        root: what was listed.
        files: of its listing.
        of: computes a digest from a file's content; by its name the cache tells it from others.

    Raises:
        FilesError: a file may not be read, or is gone.
    """
    place = f"{of.__qualname__}\n{os.path.abspath(root)}"  # noqa: PTH100
    store = cache_folder() / "digests" / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}.json"
    known = _load(store)
    found = {file.name: known[file.name][1] for file in files if known.get(file.name, ((),))[0] == list(file.state)}
    absent = [file for file in files if file.name not in found]
    if absent:
        settled = {name: kept for name, kept in known.items() if name in found}
        with _bar(sum(file.size for file in absent)) as advance:
            for file in absent:
                now = time.time_ns()
                found[file.name] = _computed(file, of)
                if _is_settled(file, now):
                    settled[file.name] = [list(file.state), found[file.name]]
                advance(file.size)
        if any(file.name in settled for file in absent):
            _save(store, settled)
    return [found[file.name] for file in files]


def _computed(file: File, of: Callable[[File], str]) -> str:
    try:
        return of(file)
    except OSError as error:
        raise FilesError(f"{file.path}: {_reason(error)}") from error


def _is_settled(file: File, now: int) -> bool:
    return all(abs(now - moment) > SETTLES_AFTER for moment in file.state[1:3])


def _load(store: Path) -> dict[str, Any]:
    """What was kept, or nothing where the file is absent or damaged."""
    with suppress(OSError, ValueError):
        checksum, _, content = store.read_text().partition("\n")
        if hashlib.sha256(content.encode()).hexdigest() == checksum:
            kept: dict[str, Any] = json.loads(content)
            return kept
    return {}


def _save(store: Path, content: dict[str, Any]) -> None:
    """Whole or not at all; a cache that cannot be written costs time only."""
    text = json.dumps(content)
    with suppress(OSError):
        write_atomically(store, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, where that is a terminal and the time is long."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from tqdm import tqdm

    bar = tqdm(total=total, desc="hashing", unit="B", unit_scale=True, delay=QUIET, leave=False)

    def advance(count: int) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone ends no run
            bar.update(count)

    try:
        yield advance
    finally:
        with suppress(OSError, ValueError):
            bar.close()


# --- within one planning --------------------------------------------------------------------------------------------

_memory: dict[Any, Any] | None = None


@contextmanager
def remembering() -> Iterator[None]:
    """Inside, each folder is listed once, however many runs are planned over it."""
    global _memory
    outer = _memory
    _memory = {} if outer is None else outer
    try:
        yield
    finally:
        _memory = outer


def remembered(key: Hashable, compute: Callable[[], T]) -> T:
    """What ``compute`` gives, inside ``remembering`` once for each ``key``."""
    if _memory is None:
        return compute()
    if key not in _memory:
        _memory[key] = compute()
    found: T = _memory[key]
    return found


# --- fingerprints ---------------------------------------------------------------------------------------------------


def fingerprint(*parts: str) -> str:
    """16 hexadecimal digits of digests."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def of_names_and_digests(files: Sequence[File], known: Sequence[str]) -> str:
    """One digest of several files, in which their names count."""
    lines = [f"{file.name}:{digest}" for file, digest in zip(files, known, strict=True)]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def digest(*paths: str | None) -> str | None:
    """The fingerprint of the content of files and folders, whatever they are called and wherever they lie.

    Inside a folder the names count. None where the first path is None.

    Raises:
        FilesError: see :func:`listing` and :func:`digests`.
    """
    if paths[0] is None:
        return None
    return fingerprint(*(_digest(local_path(path)) for path in paths if path is not None))


def _digest(path: Path) -> str:
    files = listing(path)
    known = digests(path, files)
    return known[0] if files[0].name == "" else of_names_and_digests(files, known)
