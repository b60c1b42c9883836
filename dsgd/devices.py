"""Which CUDA device a run takes where a machine has several: one run a device, held by a file lock."""

from __future__ import annotations

import getpass
import tempfile
import time
from pathlib import Path

from filelock import FileLock, Timeout

#: Kept until the process ends; the kernel gives the device back however that happens.
_held: dict[int, FileLock] = {}


def claim_device(count: int, folder: Path | None = None, poll: float = 1.0) -> int:
    """The index of a device that no other run on this machine holds; waits while all are taken.

    A process keeps the device that it was given once.

    Args:
        count: devices that this process may use.
        folder: where the locks lie; by default one folder a user and machine.
        poll: seconds between two looks.
    """
    if _held:
        return next(iter(_held))
    folder = folder or Path(tempfile.gettempdir()) / f"dsgd-devices-{getpass.getuser()}"
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        for index in range(count):
            lock = FileLock(folder / f"cuda{index}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            _held[index] = lock
            return index
        time.sleep(poll)
