"""``runtime.seeds_per_device``: so many runs of a sweep on each CUDA device, as processes. Torch-free but for a probe.

A number is taken as it is. ``auto`` is found by trial before the sweep: the first unfinished run of each model and task
trains a few steps alone, then two at once, and so on, as long as memory lasts and the throughput rises; the smallest
number found serves the whole sweep.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from dsgd.config import tree
from dsgd.config.command import Command
from dsgd.config.compose import Run, usual_launcher
from dsgd.config.cuda import cuda_device_count
from dsgd.config.schema import Config
from dsgd.devices import Load, best_sharing
from dsgd.execution import fork_server, identity_of, is_done, usable_cores
from dsgd.runs import RunFolder

_log = logging.getLogger(__name__)

#: Steps before the clock starts (kernels are loaded, memory is reserved) and on it.
WARM_UP, TIMED = 5, 20
#: Seconds that a trial may take before it counts as failed.
PATIENCE = 300.0


def resolve(runs: list[Run], measure: Callable[[Run, int], Load] | None = None) -> list[Run]:
    """The same runs with a number in the place of ``auto``.

    Args:
        runs: of one sweep.
        measure: the load of so many runs like this one on one device; by default by trial.
    """
    asking = [run for run in runs if run.config.runtime.seeds_per_device == "auto"]
    if not asking:
        return runs
    trial = measure or load_of
    kinds = {(run.config.model.shown, run.config.task.shown): run for run in reversed(asking) if not is_done(run)}
    most = max(1, usable_cores() // max(1, cuda_device_count()))
    best = min((best_sharing(lambda k, run=run: trial(run, k), most) for run in kinds.values()), default=1)  # type: ignore[misc]
    return [_with_number(run, best) if run in asking else run for run in runs]


def launcher(command: Command, runs: Sequence[Run], devices: Callable[[], int] = cuda_device_count) -> list[str]:
    """Overrides that give a sweep a worker for each run that may go at once; none where the user has named a launcher.

    Args:
        command: what the user said.
        runs: of the sweep, numbers resolved.
        devices: counts the CUDA devices.
    """
    sharing = max(int(run.config.runtime.seeds_per_device) for run in runs)
    if sharing == 1 or not usual_launcher(command):
        return []
    return ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={min(len(runs), sharing * max(1, devices()))}"]


def load_of(run: Run, count: int) -> Load:
    """The load of ``count`` processes that each train a few steps of ``run`` at the same time.

    Where one of them fails or takes too long, the device counts as full: the sweep itself will tell what is wrong.
    """
    context = fork_server()
    barrier = context.Barrier(count)
    ends, children = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            here, there = context.Pipe(duplex=False)
            place = _prepare(run, Path(folder) / str(number))
            children.append(context.Process(target=_trial, args=(place, barrier, there), daemon=True))
            children[-1].start()
            there.close()  # so that the child's death is seen as the end of its answer
            ends.append(here)
        try:
            answers = _answers(ends)
        finally:
            for child in children:
                child.kill()
                child.join()
    if len(answers) < count:
        _log.warning("runtime.seeds_per_device = auto: %d run(s) at once failed in the trial", count)
        return Load(0.0, 1.0)
    seconds, shares = zip(*answers, strict=True)
    return Load(count * TIMED / max(seconds), max(shares))


def _answers(ends: list[Connection]) -> list[tuple[float, float]]:
    """What the children send, up to the first that fails to."""
    waiting, found = list(ends), list[tuple[float, float]]()
    deadline = time.monotonic() + PATIENCE
    while waiting:
        ready = connection.wait(waiting, max(0.0, deadline - time.monotonic()))
        if not ready:
            return found
        for end in ready:
            assert isinstance(end, Connection)
            try:
                found.append(end.recv())
            except EOFError:
                return found
            waiting.remove(end)
    return found


def _with_number(run: Run, number: int) -> Run:
    runtime = replace(run.config.runtime, seeds_per_device=str(number))
    return replace(run, config=replace(run.config, runtime=runtime))


def _prepare(run: Run, path: Path) -> RunFolder:
    """A folder of the trial's own, whose config stops early, reports to nobody and takes no slot."""
    config = run.config
    runtime = replace(
        config.runtime, seeds_per_device="1", device=_one_device(config), threads=1, checkpoint_every=None
    )
    trainer = replace(config.trainer, max_steps=WARM_UP + TIMED)
    tracking = replace(config.tracking, name="none")
    folder = RunFolder(path)
    folder.write("config.yaml", tree.to_yaml(replace(config, runtime=runtime, trainer=trainer, tracking=tracking)))
    folder.write_json("identity.json", identity_of(run))
    return folder


def _one_device(config: Config) -> str:
    device = config.runtime.device
    return "cuda:0" if device == "auto" and cuda_device_count() else device


def _trial(folder: RunFolder, barrier: Barrier, answer: Connection) -> None:
    """In a child: warm up, wait for the others, and send the seconds of the timed steps and the memory's share."""
    import torch

    from dsgd.batches import windows
    from dsgd.environment import make_accelerator, memory_share, synchronize
    from dsgd.training import Training

    torch.set_num_threads(1)
    config = tree.load(folder.path / "config.yaml")
    accelerator = make_accelerator(config.runtime)
    training = Training(config, folder, accelerator, "none")
    started = 0.0
    for window in windows(training.data.train, config.trainer, training.seeds.data_order, WARM_UP + TIMED):
        if window.step.number == WARM_UP + 1:
            synchronize(accelerator.device)
            barrier.wait(PATIENCE)
            started = time.perf_counter()
        training.step(window)
    synchronize(accelerator.device)
    seconds = time.perf_counter() - started
    barrier.wait(PATIENCE)  # all have reached their peak before one looks, and none has left
    answer.send((seconds, memory_share(accelerator.device)))
    barrier.wait(PATIENCE)
