"""One run from start to end: skip it, lock it, train it in a child process, and record how it ended. Torch-free.

The child comes from a fork server that has imported torch and transformers once, so a run starts in a tenth of a
second; whatever kills it (an exception, ``os._exit``, the kernel, a timeout) ends one run and never the sweep.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from dsgd import locks, tracking
from dsgd.config import tree
from dsgd.config.compose import Run
from dsgd.errors import NonFiniteError
from dsgd.locks import Lock
from dsgd.processes import with_short_sockets
from dsgd.runs import (
    Claim,
    LostRunError,
    RunFolder,
    folder_of,
    is_complete,
    lock_file_of,
    recover,
    replacement_for,
    set_aside,
    swap_in,
)
from dsgd.streams import guard_streams

Word = Literal["skipped", "elsewhere", "finished", "failed"]
Say = Callable[[str], None]

#: Imported once by the fork server. A name that is not installed is passed over.
PRELOAD = ("dsgd.training", "sklearn.metrics")

#: Characters of a reason that travel from a child to its supervisor: a pipe holds them although nobody reads yet.
LONGEST_REASON = 2000


class Outcome(str):
    """What :func:`execute` did with a run, one of ``Word``, and in ``reason`` why where the run is not finished."""

    __slots__ = ("reason",)
    reason: str

    def __new__(cls, word: Word, reason: str = "") -> Outcome:
        """The word itself, so that it compares and prints as one."""
        outcome = super().__new__(cls, word)
        outcome.reason = reason
        return outcome


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
    try:
        if run.config.trainer.processes > 1:
            return _execute_as_rank(run, progress, say)
        if is_done(run):
            return Outcome("skipped")
        with _locked(run, alone, say) as lock:
            if lock is None:
                return Outcome("elsewhere", "another process trains it")
            recover(run)
            if is_done(run):  # another process may have finished it while this one waited for the lock
                return Outcome("skipped")
            folder = _prepare(run, lock, say)
            train = _in_child if run.config.runtime.isolate else _attempt_here
            return _conclude(run, folder, train(run, folder, _threads(run, workers), progress))
    except OSError as error:  # a full disk, a folder that may not be written: not even the reason can be kept there
        return Outcome("failed", _one_line(error))


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
    """Whether there is nothing left to train: the run is finished, and its files are what it wrote."""
    if run.config.force:
        return False
    folder = folder_of(run)
    return is_complete(run, folder) and not folder.damage()


def fork_server(tracker: str = "none") -> multiprocessing.context.ForkServerContext:
    """Where children come from, with what they import already there; the first run's ``tracker`` is part of that."""
    _wait_passively()
    with_short_sockets()
    # Inside a joblib worker the default context is loky's, which children of a fork server cannot find.
    multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, *(tracking.PRELOAD if tracker == "wandb" else ())])
    return context


def usable_cores() -> int:
    """Cores that this process may use; macOS cannot say and gives all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _locked(run: Run, wait: bool, say: Say) -> Iterator[Lock | None]:
    """Hold the run's lock; where another process holds it, wait and say so, or give None."""
    path = lock_file_of(run)
    lock = locks.take(path)
    if lock is None and wait:
        say("another process trains this run; waiting for it")
        lock = locks.take(path, wait=math.inf)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release()


def _prepare(run: Run, lock: Lock, say: Say) -> RunFolder:
    """The folder to train into, cleared and described. A finished run's own folder is left alone until the end."""
    final = folder_of(run)
    problem = final.damage()
    if problem:
        say(f"{problem}; trained again, the old folder is now {set_aside(final, Path(run.config.results_dir))}")
        final = folder_of(run)
    folder = replacement_for(run) if final.state == "finished" else final
    folder = replace(folder, claim=Claim(lock))
    folder.clear(keep_checkpoint=not run.config.force)
    folder.mark_starting()
    folder.write("config.yaml", tree.to_yaml(run.config))
    folder.write_json("identity.json", identity_of(run))
    return folder


def _conclude(run: Run, folder: RunFolder, reason: str) -> Outcome:
    """What became of the attempt at ``folder``, which says ``reason`` itself where it failed."""
    if folder.claim is not None and not folder.claim.holds(folder):
        was_removed = folder.read("state.json") is None
        return Outcome("failed", reason) if was_removed else Outcome("elsewhere", "another process trains it")
    found = folder.condition()
    if found.state != "finished":
        return Outcome("failed", reason or found.reason)
    final = folder_of(run)
    if folder != final:
        swap_in(folder, final)
    return Outcome("finished")


def _execute_as_rank(run: Run, progress: str, say: Say) -> Outcome:
    """The same for one of the processes of ``accelerate launch``: rank 0 decides, and the others hear of it.

    They train in place, without a child: a rank that fails takes the launch down, and with it the other ranks.
    """
    from accelerate.utils import broadcast_object_list

    from dsgd.environment import make_process_group

    state = make_process_group(run.config)
    folder: RunFolder | None = None
    decision: list[Path | None] = [None]
    if state.is_main_process:
        lock = locks.take(lock_file_of(run), wait=math.inf)
        assert lock is not None
        recover(run)
        folder = None if is_done(run) else _prepare(run, lock, say)
        decision = [None if folder is None else folder.path]
    broadcast_object_list(decision)
    (path,) = decision
    if path is None:
        return Outcome("skipped")
    if _attempt(folder or RunFolder(path), _threads(run, run.config.trainer.processes), progress, folder is not None):
        sys.exit(1)
    state.wait_for_everyone()
    if folder is None or folder.claim is None:
        return Outcome("finished")
    outcome = _conclude(run, folder, "")
    folder.claim.lock.release()
    return outcome


def _attempt_here(_run: Run, folder: RunFolder, threads: int, progress: str) -> str:
    return _attempt(folder, threads, progress)


def _in_child(run: Run, folder: RunFolder, threads: int, progress: str) -> str:
    """Train in a child process; returns why it failed, else nothing."""
    context, timeout = fork_server(run.config.tracking.name), run.config.runtime.timeout
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(folder, threads, progress, there))
    with here:
        try:
            with there:
                child.start()
            child.join(timeout)
            ended = _how_it_ended(child, timeout)
        except BaseException as error:  # Ctrl-C among them: nothing goes on behind the user's back
            if child.pid is not None:
                child.kill()
                child.join()
            if folder.state != "finished":
                folder.mark_failed(_one_line(error) if isinstance(error, Exception) else "interrupted")
            raise
        reason = _received(here) or ended or ""
    if ended is not None and (folder.read("state.json") or {}).get("state") == "running":
        folder.mark_failed(reason)  # the child had no time to say so itself
    return reason


def _received(end: Connection) -> str:
    """What a child that has ended said of why it failed: it may not have been able to write it down."""
    try:
        return str(end.recv()) if end.poll() else ""
    except (EOFError, OSError):
        return ""


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


def _child(folder: RunFolder, threads: int, progress: str, supervisor: Connection) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # what reaches the whole group is the supervisor's to answer
        signal.signal(number, signal.SIG_IGN)
    guard_streams()
    threading.Thread(target=_die_with_parent, args=(folder,), daemon=True).start()
    reason = _attempt(folder, threads, progress)
    if reason:
        with suppress(OSError):
            supervisor.send(reason[:LONGEST_REASON])
        sys.exit(1)


def _die_with_parent(folder: RunFolder) -> None:
    """A child whose parent was killed would train on unseen, and nobody could stop it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    if folder.state != "finished":
        folder.mark_failed("the process that supervised the run has ended")
    os._exit(1)


def _attempt(folder: RunFolder, threads: int, progress: str, is_main: bool = True) -> str:
    """Train into ``folder``; returns why it failed, else nothing. An exception becomes ``error.txt`` too."""
    _wait_passively()
    try:
        if is_main:
            folder.mark_running()
        from dsgd.training import train

        train(folder, threads, progress)
    except Exception as error:
        reason = _one_line(error)
        folder.mark_failed(reason, traceback.format_exc())
        return reason
    return ""


def _one_line(error: Exception) -> str:
    """The first line of what the error says, after the reason that our own errors have, or its type."""
    text = str(error).strip().splitlines()
    kind = error.reason if isinstance(error, (NonFiniteError, LostRunError)) else type(error).__name__
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
