"""One run from start to end: skip it, lock it, train it in a child process, and record how it ended. Torch-free.

The child comes from a fork server that has imported torch and transformers once, so a run starts in a tenth of a
second; whatever kills it (an exception, ``os._exit``, the kernel, a timeout) ends one run and never the sweep.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from filelock import Timeout

from dsgd import tracking
from dsgd.config import tree
from dsgd.config.compose import Run
from dsgd.errors import NonFiniteError
from dsgd.runs import RunFolder, folder_of, is_complete, lock_of, replacement_for, swap_in
from dsgd.streams import guard_streams

Outcome = Literal["skipped", "elsewhere", "finished", "failed"]
Say = Callable[[str], None]

#: Imported once by the fork server. A name that is not installed is passed over.
PRELOAD = ("dsgd.training", "sklearn.metrics")


def execute(run: Run, workers: int = 1, alone: bool = True, say: Say = print) -> Outcome:
    """Train ``run`` unless it is finished already, and leave its folder.

    Args:
        run: what to train.
        workers: runs that share this machine's cores now.
        alone: no part of a sweep: it shows its progress in lines too, and waits where another process trains the
            same run, which a sweep leaves to that one.
        say: where a line for the user goes.
    """
    progress = _progress(run, workers, alone)
    if run.config.trainer.processes > 1:
        return _execute_as_rank(run, progress)
    if is_done(run):
        return "skipped"
    try:
        with _locked(run, alone, say):
            if is_done(run):  # another process may have finished it while this one waited for the lock
                return "skipped"
            folder = _prepare(run)
            if run.config.runtime.isolate:
                _in_child(run, folder, _threads(run, workers), progress)
            else:
                _attempt(folder, _threads(run, workers), progress)
            return _conclude(run, folder)
    except Timeout:
        return "elsewhere"
    except OSError as error:  # a full disk, a folder that may not be written: not even the reason can be kept there
        say(f"{run.label} seed {run.config.seed}: {error}")
        return "failed"


def worker_count(jobs: int | None) -> int:
    """Runs at a time under a launcher's ``n_jobs``, where -1 means one for each core, as joblib reads it."""
    return 1 if jobs is None else jobs if jobs > 0 else max(1, usable_cores() + 1 + jobs)


def identity_of(run: Run) -> dict[str, Any]:
    """The columns that say which run a folder holds; the first of ``metrics.json`` and all of ``identity.json``."""
    config = run.config
    return {
        "id": run.id,
        "cell_id": run.cell_id,
        "model": config.model.shown,
        "task": config.task.shown,
        "method": run.label,
        "preset": config.method.name,
        "seed": config.seed,
    }


def is_done(run: Run) -> bool:
    """Whether there is nothing left to train."""
    return not run.config.force and is_complete(run, folder_of(run))


def fork_server(tracker: str = "none") -> multiprocessing.context.ForkServerContext:
    """Where children come from, with what they import already there; the first run's ``tracker`` is part of that."""
    _wait_passively()
    # Inside a joblib worker the default context is loky's, which children of a fork server cannot find.
    multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, *(tracking.PRELOAD if tracker == "wandb" else ())])
    return context


def usable_cores() -> int:
    """Cores that this process may use; macOS cannot say and gives all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _locked(run: Run, wait: bool, say: Say) -> Iterator[None]:
    """Hold the run's lock; where another process holds it, wait and say so, or raise ``Timeout``."""
    lock = lock_of(run)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise
        say("another process trains this run; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _prepare(run: Run) -> RunFolder:
    """The folder to train into, cleared and described. A finished run's own folder is left alone until the end."""
    final = folder_of(run)
    folder = replacement_for(run) if final.state == "finished" else final
    folder.clear(keep_checkpoint=not run.config.force)
    folder.mark_starting()
    folder.write("config.yaml", tree.to_yaml(run.config))
    folder.write_json("identity.json", identity_of(run))
    return folder


def _conclude(run: Run, folder: RunFolder) -> Outcome:
    if folder.state != "finished":
        return "failed"
    final = folder_of(run)
    if folder != final:
        swap_in(folder, final)
    return "finished"


def _execute_as_rank(run: Run, progress: str) -> Outcome:
    """The same for one of the processes of ``accelerate launch``: rank 0 decides, and the others hear of it.

    They train in place, without a child: a rank that fails takes the launch down, and with it the other ranks.
    """
    from accelerate.utils import broadcast_object_list

    from dsgd.environment import make_process_group

    state = make_process_group(run.config)
    lock = lock_of(run)
    decision: list[Any] = [None]
    if state.is_main_process:
        lock.acquire()
        decision = ["skipped" if is_done(run) else _prepare(run)]
    broadcast_object_list(decision)
    (folder,) = decision
    if folder == "skipped":
        return "skipped"
    if not _attempt(folder, _threads(run, run.config.trainer.processes), progress, state.is_main_process):
        sys.exit(1)
    state.wait_for_everyone()
    outcome = _conclude(run, folder) if state.is_main_process else "finished"
    lock.release(force=True)
    return outcome


def _in_child(run: Run, folder: RunFolder, threads: int, progress: str) -> None:
    child = fork_server(run.config.tracking.name).Process(target=_child, args=(folder, threads, progress))
    child.start()
    try:
        child.join(run.config.runtime.timeout)
        ended = _how_it_ended(child, run.config.runtime.timeout)
    except BaseException:  # Ctrl-C among them: nothing goes on behind the user's back
        child.kill()
        child.join()
        if folder.state != "finished":
            folder.mark_failed("interrupted")
        raise
    if ended is not None and (folder.read("state.json") or {}).get("state") == "running":
        folder.mark_failed(ended)  # the child had no time to say so itself


def _how_it_ended(child: BaseProcess, timeout: float | None) -> str | None:
    """None after a good end, else the reason in words."""
    if child.exitcode is None:
        child.kill()
        child.join()
        return f"timeout: still running after {timeout:g} s"
    if child.exitcode < 0:
        return f"killed by signal {-child.exitcode} ({signal.Signals(-child.exitcode).name})"
    return f"the process exited with code {child.exitcode}" if child.exitcode else None


def _wait_passively() -> None:
    """Let idle OpenMP threads sleep; read when torch is first imported.

    Spinning threads cost a factor of five to ten as soon as anything else wants a core (measured with one busy process
    beside a two-thread training on two cores), and a sweep's workers are just that to each other.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _child(folder: RunFolder, threads: int, progress: str) -> None:
    guard_streams()
    threading.Thread(target=_die_with_parent, args=(folder,), daemon=True).start()
    if not _attempt(folder, threads, progress):
        sys.exit(1)


def _die_with_parent(folder: RunFolder) -> None:
    """A child whose parent was killed would train on unseen, without the lock that only the parent holds."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    if folder.state != "finished":
        folder.mark_failed("the process that supervised the run has ended")
    os._exit(1)


def _attempt(folder: RunFolder, threads: int, progress: str, is_main: bool = True) -> bool:
    """Train into ``folder``; whether it went well. An exception becomes the run's reason and ``error.txt``."""
    _wait_passively()
    if is_main:
        folder.mark_running()
    try:
        from dsgd.training import train

        train(folder, threads, progress)
    except Exception as error:
        folder.mark_failed(_one_line(error), traceback.format_exc())
        return False
    return True


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    kind = error.reason if isinstance(error, NonFiniteError) else type(error).__name__
    return kind + (f": {text[0]}" if text else "")


def _progress(run: Run, workers: int, alone: bool) -> str:
    """``auto``: a bar where one terminal shows one run, lines for a run by itself, nothing inside a sweep."""
    wanted = run.config.runtime.progress.value
    if wanted != "auto":
        return wanted
    if sys.stderr.isatty() and workers == 1:
        return "bar"
    return "lines" if alone else "none"


def _threads(run: Run, workers: int) -> int:
    """Compute threads of one run: what is asked for, else this process's cores divided among the workers."""
    return run.config.runtime.threads or max(1, usable_cores() // workers)
