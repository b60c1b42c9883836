"""The run folder: where a run lies, what state it is in, and files that are whole or absent. Torch-free.

Layout: ``<results_dir>/runs/<model>/<task>/<method label>/seed<seed>-<id>/``. The path is for people; programs find a
run by its ``id``, because two command lines with different labels can name the same run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock

if TYPE_CHECKING:
    from dsgd.config.compose import Run

#: What an observed run leaves.
DIAGNOSTIC_FILES = {
    "none": (),
    "gradients": ("diagnostics.parquet",),
    "representations": ("representations.npz",),
    "all": ("diagnostics.parquet", "representations.npz"),
}

State = Literal["missing", "running", "finished", "failed"]


@dataclass(frozen=True)
class RunFolder:
    """One run's files. ``metrics.json`` is written last, by rename: its presence means finished."""

    path: Path

    @property
    def state(self) -> State:
        """What the process did; a run whose process is gone without a result has failed."""
        if self.read("metrics.json") is not None:
            return "finished"
        recorded = self.read("state.json")
        if recorded is None:
            return "failed" if (self.path / "config.yaml").exists() else "missing"
        return "running" if recorded.get("state") == "running" and _is_alive(recorded) else "failed"

    @property
    def metrics(self) -> dict[str, Any]:
        """The summary row of a finished run."""
        found = self.read("metrics.json")
        if found is None:
            raise FileNotFoundError(f"{self.path} holds no finished run")
        return found

    @property
    def reason(self) -> str:
        """Why the run failed, in one line."""
        recorded = self.read("state.json") or {}
        if recorded.get("state") == "finished":
            return "metrics.json is gone or damaged"
        return str(recorded.get("reason") or "the process ended without a word")

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dict per optimiser step or evaluation, in order; a line that a kill has torn is left out."""
        path = self.path / "history.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [record for line in lines if (record := _parsed(line)) is not None]

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, or None where it is absent or damaged."""
        try:
            return _parsed((self.path / name).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: str) -> None:
        """Write a text file by rename, so that no reader sees half of it."""
        write_atomically(self.path / name, content)

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
        with (self.path / "history.jsonl").open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def mark_starting(self) -> None:
        """Say that this process is about to have the run trained; the one that trains it has no number yet."""
        self.write_json("state.json", {"state": "running", **_this_process(), "pid": None, "supervisor": os.getpid()})

    def mark_running(self) -> None:
        """Say that this process trains the run."""
        self.write_json("state.json", {"state": "running", **_this_process()})

    def mark_finished(self, metrics: dict[str, Any]) -> None:
        """Say so, and write the summary row last."""
        self.write_json("state.json", {"state": "finished", **_this_process()})
        self.write_json("metrics.json", metrics)

    def mark_failed(self, reason: str, traceback: str | None = None) -> None:
        """Keep the reason in ``state.json`` and the details in ``error.txt``."""
        self.write("error.txt", traceback or reason + "\n")
        self.write_json("state.json", {"state": "failed", "reason": reason, **_this_process()})

    def clear(self, keep_checkpoint: bool = True) -> None:
        """Remove what a failed attempt left, except the checkpoint that the next one resumes from.

        The history stays beside a checkpoint too: a resumed run cuts it back to the checkpoint's step.
        """
        keep_checkpoint = keep_checkpoint and (self.path / "checkpoint").exists()
        keep = {"checkpoint", "history.jsonl"} if keep_checkpoint else set()
        for entry in self.path.iterdir() if self.path.exists() else ():
            if entry.name in keep:
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def latest_attempt(run: Run) -> RunFolder:
    """What became of the run when it was last asked for: where a replacement was to be trained and failed, that."""
    replacement, final = replacement_for(run), folder_of(run)
    wanted = run.config.force or (final.state == "finished" and not is_complete(run, final))
    return replacement if wanted and replacement.path.exists() else final


def is_complete(run: Run, folder: RunFolder) -> bool:
    """Whether ``folder`` is finished and holds what the run's diagnostics leave; else it is trained again."""
    return folder.state == "finished" and has_diagnostics(folder, run.config.diagnostics.name)


def has_diagnostics(folder: RunFolder, diagnostics: str) -> bool:
    """Whether ``folder`` holds the files that these diagnostics leave."""
    return all((folder.path / name).exists() for name in DIAGNOSTIC_FILES[diagnostics])


def folder_of(run: Run) -> RunFolder:
    """Where ``run`` lies already, else where it will lie."""
    results = Path(run.config.results_dir)
    found = find(results, run.id)
    if found is not None:
        return found
    return RunFolder(results / usual_path(run))


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
    """The folder with this id under ``results``, or None."""
    paths = sorted((results / "runs").glob(f"*/*/*/seed*-{run_id}"))
    return RunFolder(paths[0]) if paths else None


def scan(results: Path) -> Iterator[RunFolder]:
    """Every run folder under ``results``, in the order of their paths."""
    for path in sorted((results / "runs").glob("[!.]*/*/*/seed*-*")):
        yield RunFolder(path)


def lock_of(run: Run) -> FileLock:
    """Held while a run trains; the kernel releases it when the holder dies, however it dies."""
    path = Path(run.config.results_dir) / "runs" / ".locks" / f"{run.id}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path)


def replacement_for(run: Run) -> RunFolder:
    """Where a forced run trains, out of the readers' sight, until it succeeds."""
    return replacement(Path(run.config.results_dir), run.id)


def replacement(results: Path, run_id: str) -> RunFolder:
    """The same by ``id``."""
    return RunFolder(results / "runs" / ".replacements" / run_id)


def swap_in(new: RunFolder, old: RunFolder) -> None:
    """Put a finished replacement in the old folder's place; the old one goes only afterwards."""
    aside = new.path.with_name(new.path.name + ".old")
    if old.path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        old.path.rename(aside)
    new.path.rename(old.path)
    shutil.rmtree(aside, ignore_errors=True)


def safe_name(label: str) -> str:
    """A label as a folder name without characters that file systems or globs treat specially."""
    return re.sub(r"[^A-Za-z0-9_.+=,-]", "_", label.replace("[", ",").replace("]", ""))[:120]


def write_atomically(path: Path, content: str) -> None:
    """Write ``content`` beside ``path`` and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave a whole name over half a content
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def _is_alive(recorded: dict[str, Any]) -> bool:
    """Whether the recorded process lives; of another host's processes nothing can be said, so they count as alive."""
    if recorded.get("host") != socket.gethostname():
        return True
    pid = recorded["pid"] or recorded["supervisor"]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended and only waits to be reaped, which a parent that was killed never does."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        loaded = json.loads(text)
    except json.JSONDecodeError:
        return None
    return loaded if isinstance(loaded, dict) else None
