"""Locks that the kernel releases when their last holder ends, however it ends. Torch-free.

A lock is ``flock`` on an open file. It belongs to the open file and not to a process, so a child that inherits the
descriptor holds it too, and goes on holding it when its parent is killed.
"""

from __future__ import annotations

import fcntl
import os
import time
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

#: Seconds between two attempts, and for how long an attempt is repeated in any case: who looks whether a lock is held
#: holds it for an instant.
POLL, INSTANT = 0.02, 0.2


class Lock:
    """A lock that is held; see :func:`take`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def is_in_place(self) -> bool:
        """Whether the locked file still bears its name: after ``rm`` another process can lock a new one."""
        return _is_file_at(self.path, self._descriptor)

    def retake(self) -> bool:
        """Lock the file that bears the name now; whether nobody else holds it."""
        again = _try(self.path)
        if again is None:
            return False
        os.close(self._descriptor)
        self._descriptor = again
        return True

    def release(self) -> None:
        """Let go, for all processes that share this lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        """To a child process that is being started, together with the open file."""
        context.assert_spawning(self)
        return _inherit, (self.path, reduction.DupFd(self._descriptor))


def take(path: Path, wait: float = INSTANT) -> Lock | None:
    """Lock the file at ``path``, made where there is none; None where another holds it for over ``wait`` seconds.

    Raises:
        OSError: no file can be made there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait
    while True:
        descriptor = _try(path)
        if descriptor is not None:
            return Lock(path, descriptor)
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at ``path``; nothing is written."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _try(path: Path) -> int | None:
    """An open and locked file at ``path``, or None where another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    if _is_file_at(path, descriptor):
        return descriptor
    os.close(descriptor)  # removed between opening and locking
    return None


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _inherit(path: Path, sent: Any) -> Lock:
    descriptor: int = sent.detach()
    os.set_inheritable(descriptor, False)  # a program that the child starts must not hold the lock
    return Lock(path, descriptor)
