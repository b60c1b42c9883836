"""Which CUDA device a run takes: each device has slots, and a run holds one by file lock. Torch-free."""

from __future__ import annotations

import getpass
import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

#: Kept until the process ends; the kernel gives the slot back however that happens.
_held: dict[int, FileLock] = {}
_log = logging.getLogger(__name__)

#: Share of a device's memory that the probe leaves free, because later batches can be longer than those it saw.
SPARE_MEMORY = 0.15
#: Twice as many runs must together be at least this much faster, else they only take each other's time.
WORTHWHILE = 1.1


@dataclass(frozen=True)
class Load:
    """What k runs at once make of one device: their steps per second together, and its memory's share in use."""

    steps_per_second: float
    memory_share: float


def claim_device(count: int, slots: int = 1, folder: Path | None = None, poll: float = 1.0) -> int:
    """The index of a device of which this process holds a slot from now on; waits while all are taken.

    The emptiest device is filled first: no run shares one while another is free. A process keeps its slot.

    Args:
        count: devices that this process may use.
        slots: runs that one device takes at once.
        folder: where the locks lie; by default one folder a user and machine.
        poll: seconds between two looks.
    """
    if _held:
        return next(iter(_held))
    folder = folder or Path(tempfile.gettempdir()) / f"dsgd-devices-{getpass.getuser()}"
    folder.mkdir(parents=True, exist_ok=True)
    places = [(slot, index) for slot in range(slots) for index in range(count)]
    waited = False
    while True:
        for slot, index in places:
            lock = FileLock(folder / f"cuda{index}-{slot}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            _held[index] = lock
            return index
        if not waited:
            _log.warning("%d run(s) on each of %d CUDA device(s); waiting for one to end", slots, count)
            waited = True
        time.sleep(poll)


def best_sharing(measure: Callable[[int], Load], most: int) -> int:
    """How many runs one device is best shared by: doubled from 1 as long as memory lasts and throughput rises.

    Args:
        measure: the load of so many runs at once.
        most: runs that the machine can take in any case; a run needs a core.
    """
    runs, load = 1, measure(1)
    while 2 * runs <= most and 2 * load.memory_share <= 1 - SPARE_MEMORY:
        doubled = measure(2 * runs)
        if doubled.steps_per_second < WORTHWHILE * load.steps_per_second:
            break
        runs, load = 2 * runs, doubled
    return runs
