"""The runs of command lines that were composed before, kept on disk: composing many takes longer than skipping them.

Only for runs that turn out to be finished: whatever is to be trained is composed and checked anew. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from dsgd.cache import cache_folder, load_checked, save_checked
from dsgd.config import tree
from dsgd.config.command import Command
from dsgd.config.compose import Run

#: Packages whose release can change what a command line composes to.
COMPOSERS = ("hydra-core", "omegaconf")

#: Environment variables that a composed config or its validation reads.
ENVIRONMENT = ("DSGD_DATA_ROOT", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")


def composition_key(words: Sequence[object], code: Iterable[Path] = ()) -> str:
    """All that a composition depends on but files of the user's own, as 32 hexadecimal digits.

    Args:
        words: what was asked for, in plain values.
        code: further source files that the result depends on.
    """
    digest = hashlib.sha256()
    own = [*tree.CONF.rglob("*.yaml"), *Path(tree.__file__).parent.rglob("*.py")]
    for path in sorted([*own, *code]):
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    versions = [version(package) for package in COMPOSERS]
    environment = [os.environ.get(variable) for variable in ENVIRONMENT]
    digest.update(json.dumps([words, versions, environment]).encode())
    return digest.hexdigest()[:32]


def recall(command: Command) -> list[Run] | None:
    """The distinct runs of a sweep that was remembered; None where there is none."""
    with suppress(OSError, ValueError, pickle.UnpicklingError, AttributeError, ImportError, EOFError):
        found: list[Run] = load_checked(_file(command), lambda path: pickle.loads(path.read_bytes()))
        return found
    return None


def remember(command: Command, runs: list[Run]) -> None:
    """Keep the distinct runs of a sweep, unless their ids depend on files that nothing here sees change."""
    if command.config_dir is None and not any(map(_reads_files, runs)):
        for run in runs:
            _ = run.id, run.cell_id  # computed once and kept with it
        with suppress(OSError):  # where nothing can be written, the next command composes again
            save_checked(_file(command), runs, _save)


def _save(runs: list[Run], path: Path) -> None:
    path.write_bytes(pickle.dumps(runs))


def _file(command: Command) -> Path:
    return cache_folder() / "commands" / f"{composition_key([command.overrides, command.flags])}.pickle"


def _reads_files(run: Run) -> bool:
    """Whether the run is of data or a model that somebody could change under the same name."""
    model, task = run.config.model, run.config.task
    paths = [task.path, task.evaluation_path, run.config.data.root, model.fingerprint, task.fingerprint]
    if model.package is None:  # else the path is one inside the package
        paths.append(model.path)
    return any(path is not None for path in paths)
