"""Processes that end together: signals that end a sweep, workers that end with their parent. Torch-free."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util
from types import FrameType

#: Bytes that the path of a Unix socket may have (macOS: 104 with its end), less the names that multiprocessing adds.
LONGEST_SOCKET_FOLDER = 103 - len("/pymp-12345678/listener-12345678")

#: Seconds between two looks at whether the parent lives.
POLL = 0.5


class Ended(KeyboardInterrupt):
    """A signal asked this process to end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def endable() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the work as Ctrl-C does: with ``Ended``, and once: the clean-up is undisturbed.

    A signal that is ignored, as SIGHUP is under ``nohup``, stays ignored.
    """
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if _ends_a_process(number)]
    before = {number: signal.getsignal(number) for number in numbers}

    def end(number: int, _frame: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise Ended(number)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with(parent: int) -> None:
    """End this process as soon as ``parent`` is no longer its parent; nothing where it is not now.

    For workers of a launcher, which would go on for minutes after their parent was killed.
    """
    if os.getppid() == parent and parent not in _watched:
        _watched.add(parent)
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


_watched: set[int] = set()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)  # the run's own process and the fork server see it and end too


def with_short_sockets() -> None:
    """Have multiprocessing put its sockets where their paths are short enough, if ``TMPDIR`` is too long for that."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) <= LONGEST_SOCKET_FOLDER:
        return
    short = next((folder for folder in ("/tmp", "/var/tmp") if os.access(folder, os.W_OK | os.X_OK)), None)
    if short is None:
        raise OSError(f"TMPDIR = {usual}: too long for the sockets in it; give a folder with a shorter path")
    tempfile.tempdir = short
    try:
        util.get_temp_dir()  # made once a process and remembered
    finally:
        tempfile.tempdir = usual


def _ends_a_process(number: int) -> bool:
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
