"""Make standard output and standard error safe to write to: what a screen cannot show never ends a run. Torch-free."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO


def guard_streams() -> None:
    """Let no write to standard output or standard error raise in this process; calling it again does nothing.

    A character that the encoding lacks is replaced. Where a stream is closed, full, a pipe without a reader or a
    terminal that is gone, what is written to it from then on is dropped.
    """
    _fill_standard_descriptors()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, GuardedStream):
            continue
        if stream is None:  # the process was started with the descriptor closed
            stream = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
        with suppress(AttributeError, ValueError, OSError):  # a stream of a test or a notebook may lack it
            stream.reconfigure(errors="replace")
        setattr(sys, name, GuardedStream(stream))


class GuardedStream:
    """A text stream whose ``write`` and ``flush`` never raise; everything else is the wrapped stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text`` where that is possible; returns its length in any case."""
        try:
            self._stream.write(text)
        except (OSError, ValueError):  # UnicodeError and "I/O operation on closed file" are ValueErrors
            self._give_up()
        return len(text)

    def flush(self) -> None:
        """Flush where that is possible."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._give_up()

    def writelines(self, lines: Any) -> None:
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self) -> None:
        """Send everything from now on to the null device, so that the flush at exit does not fail either."""
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


def _fill_standard_descriptors() -> None:
    """Open the null device where descriptor 0, 1 or 2 is closed: the next file would get the number, and the output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
