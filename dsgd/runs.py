"""The run folder: where a run lies, what state it is in, and files that are whole or absent. Torch-free.

Layout: ``<results_dir>/runs/<model>/<task>/<method label>/seed<seed>-<id>/``. The path is for people; programs find a
run by its ``id``, because two command lines with different labels can name the same run.

Beside the models' folders lie ``.locks`` (held while a run trains), ``.ids`` (where each run lies), ``.replacements``
(where a finished run is trained again) and ``.damaged`` (finished runs that can no longer be read).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsgd import locks
from dsgd.files import DamagedError, read_json, remove_temporary, to_disk, write_atomically
from dsgd.locks import Lock
from dsgd.rows import Row, Seal, damage_of, opened, sealed

if TYPE_CHECKING:
    from dsgd.config.compose import Run

#: What an observed run leaves.
DIAGNOSTIC_FILES = {
    "none": (),
    "gradients": ("diagnostics.parquet",),
    "representations": ("representations.npz",),
    "all": ("diagnostics.parquet", "representations.npz"),
}

#: What ``runtime.keep_checkpoint`` leaves.
WEIGHTS = "checkpoint/model.safetensors"

#: Files of a finished run that its seal leaves out: the seal's own, and those that say what processes did.
UNSEALED = ("metrics.json", "state.json", "error.txt")

State = Literal["missing", "running", "finished", "failed"]


class LostRunError(RuntimeError):
    """Another process trains this run now, or its folder was removed: this one must not write there any more."""

    reason = "lost"


@dataclass(frozen=True)
class Claim:
    """The right to write into a run folder: the run's lock, and a token that the folder's ``state.json`` repeats.

    A child process that trains the run has the same claim as the process that supervises it.
    """

    lock: Lock
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def holds(self, folder: RunFolder) -> bool:
        """Whether nobody has taken the run over: not even after the lock's file was removed."""
        if not self.lock.is_in_place() and not self.lock.retake():
            return False
        return (folder.read("state.json") or {}).get("owner") == self.token


@dataclass(frozen=True)
class Condition:
    """What became of a run, by what is in its folder."""

    state: State
    reason: str = ""  # why it has failed
    row: Row = field(default_factory=dict)  # of a finished run
    seal: Seal = field(default_factory=dict)  # of the same; empty in runs of earlier versions


@dataclass(frozen=True)
class RunFolder:
    """One run's files. ``metrics.json`` is written last, by rename: its presence means finished."""

    path: Path
    claim: Claim | None = field(default=None, compare=False)  # of the processes that train it; None: who only reads

    # --- reading ---

    def condition(self) -> Condition:
        """What the process did; a run whose process is gone without a whole result has failed.

        Of the other files of a finished run the sizes are checked; :meth:`damage` looks at their contents.
        """
        path = self.path / "metrics.json"
        try:
            row, seal = opened(read_json(path), path)
        except FileNotFoundError:
            return self._unfinished()
        except DamagedError as error:
            return Condition("failed", str(error))
        if row.get("id", self.run_id) != self.run_id and self.run_id is not None:
            return Condition("failed", f"{path} is of another run, {row['id']}")
        problem = damage_of(self.path, seal)
        return Condition("failed", problem) if problem else Condition("finished", row=row, seal=seal)

    @property
    def state(self) -> State:
        """See :meth:`condition`."""
        return self.condition().state

    @property
    def reason(self) -> str:
        """Why the run failed, in one line."""
        return self.condition().reason

    @property
    def metrics(self) -> Row:
        """The summary row of a finished run.

        Raises:
            FileNotFoundError: there is none.
            DamagedError: there is one, but it cannot be trusted.
        """
        found = self.condition()
        if found.state == "finished":
            return found.row
        if (self.path / "metrics.json").exists():
            raise DamagedError(found.reason)
        raise FileNotFoundError(f"{self.path} holds no finished run")

    def damage(self) -> str:
        """What is wrong with the contents of a finished run's files, in words; empty where nothing is, or no run.

        Weights and other large files are compared by size alone. Of a run without checksums the predictions are read.
        """
        if not os.path.lexists(self.path / "metrics.json"):
            is_no_folder = os.path.lexists(self.path) and not self.path.is_dir()
            return f"{self.path} is no folder" if is_no_folder else ""
        found = self.condition()
        if found.state != "finished":
            return found.reason
        if found.seal:
            return damage_of(self.path, found.seal, by_content=True)
        return self._unreadable_predictions()

    def whole(self, name: str) -> Path:
        """The path of one of a finished run's files, after its content was compared with what the run wrote.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedError: it is another content.
        """
        path = self.path / name
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file")
        problem = damage_of(self.path, self.condition().seal, by_content=True, names=[name])
        if problem:
            raise DamagedError(problem)
        return path

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dict per optimiser step or evaluation, in order; a line that a kill has torn is left out."""
        try:
            lines = (self.path / "history.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [record for line in lines if (record := _record(line)) is not None]

    @property
    def packages(self) -> dict[str, str]:
        """Versions of what a run was trained with, as far as its ``environment.json`` says."""
        found = (self.read("environment.json") or {}).get("packages")
        return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, or None where it is absent or damaged."""
        try:
            return read_json(self.path / name)
        except (FileNotFoundError, DamagedError):
            return None

    # --- writing ---

    def require_claim(self) -> None:
        """Make sure that this process may still write here; nothing to check for a folder without a claim.

        Raises:
            LostRunError: another process has taken the run over.
        """
        if self.claim is not None and not self.claim.holds(self):
            raise LostRunError("another process trains this run now, or its folder was removed")

    def file(self, name: str) -> Path:
        """The path of a file that is about to be written; raises as :meth:`require_claim`."""
        self.require_claim()
        return self.path / name

    def write(self, name: str, content: str) -> None:
        """Write a text file by rename, so that no reader sees half of it."""
        write_atomically(self.file(name), content)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file by rename."""
        self.write(name, json.dumps(content, indent=2) + "\n")

    def keep_history(self, last_step: int) -> list[dict[str, Any]]:
        """Cut ``history.jsonl`` back to ``last_step``, from where a run resumes; returns what is kept."""
        kept = [record for record in self.history if record["step"] <= last_step]
        self.write("history.jsonl", "".join(json.dumps(record) + "\n" for record in kept))
        return kept

    def append_history(self, records: list[dict[str, Any]]) -> None:
        """Add lines to ``history.jsonl``."""
        with self.file("history.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def mark_starting(self) -> None:
        """Say that this process is about to have the run trained; from now on its claim alone may write here."""
        starting = {"state": "running", **_this_process(), "pid": None, "supervisor": os.getpid()}
        write_atomically(self.path / "state.json", json.dumps({**starting, **self._owner}, indent=2) + "\n")
        self._register()

    def mark_running(self) -> None:
        """Say that this process trains the run."""
        self._write_state({"state": "running"})
        self._register()

    def mark_finished(self, metrics: Row) -> None:
        """Say so, and write the summary row last, with the checksums of all other files."""
        self._write_state({"state": "finished"})
        names = sorted(self._lasting())
        if "history.jsonl" in names:
            to_disk(self.path / "history.jsonl")
        self.write_json("metrics.json", sealed(metrics, self.path, names))

    def mark_failed(self, reason: str, traceback: str | None = None) -> None:
        """Keep the reason in ``state.json`` and the details in ``error.txt``, where the disk takes them.

        Whoever has lost the run writes nothing.
        """
        with suppress(LostRunError):
            with suppress(OSError):
                self.write("error.txt", traceback or reason + "\n")
            with suppress(OSError):
                self._write_state({"state": "failed", "reason": reason})

    def clear(self, keep_checkpoint: bool = True) -> None:
        """Remove what a failed attempt left, except the resume point that the next one goes on from.

        The history stays beside a resume point too: a resumed run cuts it back to the point's step.
        """
        checkpoint = self.path / "checkpoint"
        keep_checkpoint = keep_checkpoint and checkpoint.is_dir()
        keep = {"checkpoint", "history.jsonl"} if keep_checkpoint else set()
        for entry in self.path.iterdir() if self.path.exists() else ():
            if entry.name not in keep:
                _remove(entry)
        if keep_checkpoint:
            remove_temporary(checkpoint)

    # --- parts ---

    @property
    def run_id(self) -> str | None:
        """The run's id by the folder's name; None for a folder that lies in no store."""
        if self.path.parent.name == ".replacements":
            return self.path.name
        named = re.fullmatch(r"seed\d+-(\w+)", self.path.name)
        return named[1] if named else None

    @property
    def _store(self) -> Path | None:
        """The folder ``runs`` that it lies in."""
        depth = 1 if self.path.parent.name == ".replacements" else 3
        parents = self.path.parents
        return parents[depth] if len(parents) > depth and parents[depth].name == "runs" else None

    @property
    def _owner(self) -> dict[str, str]:
        return {} if self.claim is None else {"owner": self.claim.token}

    def _write_state(self, content: dict[str, Any]) -> None:
        self.write_json("state.json", {**content, **_this_process(), **self._owner})

    def _unfinished(self) -> Condition:
        recorded = self.read("state.json")
        if recorded is None:
            begun = any(os.path.lexists(self.path / name) for name in ("config.yaml", "state.json"))
            return Condition("failed", "the process ended without a word") if begun else Condition("missing")
        if recorded.get("state") == "running" and self._is_locked():
            return Condition("running")
        if recorded.get("state") == "finished":
            return Condition("failed", "metrics.json is gone")
        told = str(recorded.get("reason") or "").strip().splitlines()
        return Condition("failed", told[0] if told else "the process ended without a word")

    def _is_locked(self) -> bool:
        """Whether some process holds the run's lock; one that has ended, on whatever host, does not."""
        store, run_id = self._store, self.run_id
        return store is not None and run_id is not None and locks.is_held(_lock_file(store, run_id))

    def _lasting(self) -> Iterator[str]:
        """Names of the files that make up a finished run; the dashboard's are its own."""
        for path in (*self.path.iterdir(), *self.path.glob("checkpoint/*")):
            name = path.relative_to(self.path).as_posix()
            if path.is_file() and name not in UNSEALED and not path.name.startswith("."):
                yield name

    def _register(self) -> None:
        """Note where the run lies, so that it is found by its id without looking through the store."""
        store, run_id = self._store, self.run_id
        if store is None or run_id is None or self.path.parent.name == ".replacements":
            return
        with suppress(OSError):
            if not (store / ".ids").is_dir():
                _note_all(store)
            write_atomically(store / ".ids" / run_id, self.path.relative_to(store).as_posix())

    def _unreadable_predictions(self) -> str:
        from dsgd.evaluation import Predictions

        path = self.path / "predictions.parquet"
        try:
            if os.path.lexists(path):
                Predictions.load(path)
        except (OSError, ValueError) as error:
            return str(error)
        return ""


# --- where a run lies -----------------------------------------------------------------------------------------------


def latest_attempt(run: Run) -> RunFolder:
    """What became of the run when it was last asked for: where a replacement was to be trained and failed, that."""
    replacement, final = replacement_for(run), folder_of(run)
    wanted = run.config.force or (final.state == "finished" and not is_complete(run, final))
    return replacement if wanted and replacement.path.exists() else final


def is_complete(run: Run, folder: RunFolder) -> bool:
    """Whether ``folder`` is finished and holds what was asked for (diagnostics, weights); else it is trained again."""
    found = folder.condition()
    return (
        found.state == "finished"
        and {"accuracy", "status"} <= found.row.keys()
        and has_diagnostics(folder, run.config.diagnostics.name)
        and (not run.config.runtime.keep_checkpoint or (folder.path / WEIGHTS).exists())
    )


def has_diagnostics(folder: RunFolder, diagnostics: str) -> bool:
    """Whether ``folder`` holds the files that these diagnostics leave."""
    return all((folder.path / name).exists() for name in DIAGNOSTIC_FILES[diagnostics])


def folder_of(run: Run) -> RunFolder:
    """Where ``run`` lies already, else where it will lie."""
    results = Path(run.config.results_dir)
    usual = RunFolder(results / usual_path(run))
    if usual.path.exists():
        return usual
    return find(results, run.id) or usual


def usual_path(run: Run) -> Path:
    """Where a run lies in a results folder unless it lies there already under another label."""
    config = run.config
    return Path(
        "runs",
        safe_name(config.model.shown),
        safe_name(config.task.shown),
        safe_name(run.label),
        f"seed{config.seed}-{run.id}",
    )


def find(results: Path, run_id: str) -> RunFolder | None:
    """The folder with this id under ``results``, or None; a store is looked through only where it has no ``.ids``."""
    return finder(results)(run_id)


def finder(results: Path) -> Callable[[str], RunFolder | None]:
    """:func:`find` in one store, for many ids."""
    store = results / "runs"
    return partial(_find, store) if (store / ".ids").is_dir() else _index(store).get


def _find(store: Path, run_id: str) -> RunFolder | None:
    try:
        path = store / (store / ".ids" / run_id).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    folder = RunFolder(path)
    return folder if folder.run_id == run_id and folder._store == store and path.exists() else None


def _index(store: Path) -> dict[str, RunFolder]:
    """Every run of a store by its id."""
    found: dict[str, RunFolder] = {}
    for folder in scan(store.parent):
        found.setdefault(str(folder.run_id), folder)
    return found


def _note_all(store: Path) -> None:
    """Note in ``.ids`` where the runs of an earlier version lie."""
    beside = store / f".ids.{os.getpid()}.tmp"
    beside.mkdir()
    try:
        for run_id, folder in _index(store).items():
            (beside / run_id).write_text(folder.path.relative_to(store).as_posix(), encoding="utf-8")
        beside.rename(store / ".ids")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def scan(results: Path) -> Iterator[RunFolder]:
    """Every run folder under ``results``, in the order of their paths."""
    for path in sorted((results / "runs").glob("[!.]*/*/*/seed*-*")):
        folder = RunFolder(path)
        if folder.run_id is not None:
            yield folder


def lock_file_of(run: Run) -> Path:
    """The file that is locked while a run trains; the kernel releases it when the last holder ends."""
    return _lock_file(Path(run.config.results_dir) / "runs", run.id)


def _lock_file(store: Path, run_id: str) -> Path:
    return store / ".locks" / f"{run_id}.lock"


def replacement_for(run: Run) -> RunFolder:
    """Where a forced run trains, out of the readers' sight, until it succeeds."""
    return replacement(Path(run.config.results_dir), run.id)


def replacement(results: Path, run_id: str) -> RunFolder:
    """The same by ``id``."""
    return RunFolder(results / "runs" / ".replacements" / run_id)


# --- moving whole folders; only for who holds the run's lock --------------------------------------------------------


def swap_in(new: RunFolder, old: RunFolder) -> None:
    """Put a finished replacement in the old folder's place; the old one goes only afterwards."""
    aside = _aside(new)
    if old.path.exists():
        _remove(aside)
        old.path.rename(aside)
    old.path.parent.mkdir(parents=True, exist_ok=True)
    new.path.rename(old.path)
    _remove(aside)


def recover(run: Run) -> None:
    """Bring to an end what a killed process had begun to swap in."""
    new, final = replacement_for(run), folder_of(run)
    aside = _aside(new)
    if aside.exists():
        if not final.path.exists():  # killed between the two renames
            (new.path if new.state == "finished" else aside).rename(final.path)
        _remove(aside)
    elif not run.config.force and not is_complete(run, final) and is_complete(run, new):
        swap_in(new, final)


def set_aside(folder: RunFolder, results: Path) -> Path:
    """Move a folder that cannot be trusted to ``.damaged``, where a person may look at it; returns where it is now."""
    damaged = results / "runs" / ".damaged"
    damaged.mkdir(parents=True, exist_ok=True)
    name = folder.run_id or folder.path.name
    free = next(place for number in range(10**6) if not os.path.lexists(place := damaged / f"{name}-{number}"))
    folder.path.rename(free)
    return free


def _aside(new: RunFolder) -> Path:
    return new.path.with_name(new.path.name + ".old")


def _remove(entry: Path) -> None:
    """A file, a link or a whole folder; nothing where there is none."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


# --- names and records ----------------------------------------------------------------------------------------------


def safe_name(label: str) -> str:
    """A label as a folder name without characters that file systems or globs treat specially."""
    return re.sub(r"[^A-Za-z0-9_.+=,-]", "_", label.replace("[", ",").replace("]", ""))[:120]


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def _record(line: str) -> dict[str, Any] | None:
    """A line of the history: numbers (of a non-finite step also NaN) under their names, and a whole ``step``."""
    try:
        loaded = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("step"), int):
        return None
    return loaded if all(isinstance(value, (int, float)) for value in loaded.values()) else None
