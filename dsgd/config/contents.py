"""What the files that a config names hold: fingerprints for the run's identity, found and never set. Torch-free."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsgd.config.data import sample_of
from dsgd.config.files import (
    File,
    FilesError,
    digest,
    digests,
    fingerprint,
    local_path,
    nfc,
    of_names_and_digests,
    remembered,
)
from dsgd.config.folders import image_folder, mirror_files, model_files
from dsgd.config.schema import Config, Model, MultiTask, Task


def with_contents(config: Config) -> Config:
    """``config`` with the fingerprints of the files that it names, and with names in one spelling.

    A fingerprint is None where nothing local is read, where it is the content that the hub has at the pinned revision,
    and where the files cannot be read, which validation tells.
    """
    return replace(
        config,
        model=replace(config.model, **_of_model(config.model), fingerprint=_unless_absent(model_fingerprint, config)),
        task=replace(config.task, **_of_task(config), fingerprint=_unless_absent(task_fingerprint, config)),
    )


def require_unchanged(config: Config) -> None:
    """Look at the files again, as a run does before and after it reads them.

    Raises:
        FilesError: they are not what they were when the run was planned.
    """
    model, task = config.model, config.task
    places = {
        f"model.path = {model.path}": (model.fingerprint, model_fingerprint),
        f"task.path = {task.path}" if task.path else f"data.root = {config.data.root}": (
            task.fingerprint,
            task_fingerprint,
        ),
    }
    for place, (planned, found) in places.items():
        if found(config) != planned:
            raise FilesError(f"{place}: the content is not what it was when the run was planned; start the run again")


def model_fingerprint(config: Config) -> str | None:
    """Of configuration, tokenizer and weights in ``model.path``; None of a packaged model and of one of the hub.

    Raises:
        FilesError: the folder is no saved model.
    """
    model = config.model
    if model.path is None or model.package is not None:
        return None
    folder = local_path(model.path)
    files = model_files(folder)
    return fingerprint(of_names_and_digests(files, digests(folder, files)))


def task_fingerprint(config: Config) -> str | None:
    """Of one's own data, and of a mirror's where it is not what the hub has at the pinned revision.

    Raises:
        FilesError: the files are not there or cannot be read.
    """
    task, root = config.task, config.data.root
    if isinstance(task, MultiTask):
        parts = {name: _of_mirror(own, root) for name, own in task.joined.items()}
        return fingerprint(*(f"{name}:{part}" for name, part in parts.items())) if any(parts.values()) else None
    if task.name == "image_folder" and task.path is not None:
        folder = local_path(task.path)
        return remembered(("images", folder.absolute()), lambda: _of_images(folder))
    if task.path is not None:
        return digest(task.path, task.evaluation_path)
    return _of_mirror(task, root)


def _of_images(folder: Path) -> str:
    files = image_folder(folder).files
    return fingerprint(of_names_and_digests(files, digests(folder, files)))


def _of_mirror(task: Task, root: str | None) -> str | None:
    """None for the rows that ``task.digests`` records, so that the hub and a mirror of it are one run."""
    if not root or task.hub_id is None:
        return None
    folder = local_path(root) / task.hub_id
    splits = dict.fromkeys(("train", task.evaluation_split))
    found = {split: _of_split(folder, task, split) for split in splits}
    if all(known == getattr(task.digests, split, None) for split, known in found.items()):
        return None
    return fingerprint(*(f"{split}:{known}" for split, known in found.items()))


def _of_split(folder: Path, task: Task, split: str) -> str:
    return fingerprint(*digests(folder, mirror_files(folder, task.subset, split), of=rows_digest))


def rows_digest(file: File) -> str:
    """Of the rows of a Parquet file, 64 hexadecimal digits: the same however they are compressed or divided.

    Names and values of all columns count, and the order of the rows; the order and the width of the columns do not.

    Raises:
        FilesError: it is no Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    digest = hashlib.sha256()
    try:
        for batch in pq.ParquetFile(file.path).iter_batches(1000):
            for row in batch.to_pylist():
                digest.update(json.dumps(row, sort_keys=True, default=_plain).encode() + b"\n")
    except (pa.ArrowException, ValueError) as error:
        raise FilesError(f"{file.path} is no Parquet file that can be read: {str(error).splitlines()[0]}") from error
    return digest.hexdigest()


def _plain(value: Any) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)


def _unless_absent(found: Callable[[Config], str | None], config: Config) -> str | None:
    with suppress(FilesError):
        return found(config)
    return None


# --- names ----------------------------------------------------------------------------------------------------------


def _of_model(model: Model) -> dict[str, Any]:
    """A local model goes by its folder's name, and a path inside a package has one spelling."""
    if model.path is None:
        return {}
    if model.package is not None:
        return {"path": posixpath.normpath(model.path)}
    own = local_path(model.path).resolve().name if model.name == "local" else model.name
    return {"title": safe_title(model.title or own)}


def _of_task(config: Config) -> dict[str, Any]:
    task = config.task
    found: dict[str, Any] = {
        "sample": sample_of(task, config.data.root),
        "text": [nfc(column) for column in task.text],
        "label": None if task.label is None else nfc(task.label),
    }
    if task.path is not None:
        found["title"] = safe_title(task.title or local_path(task.path).resolve().stem)
    return found


def safe_title(name: str) -> str:
    """A file's name as tables and folders can show it: no blanks or dots around it, no control character, not empty."""
    kept = "".join(character if character.isprintable() and character not in "/\\|" else "_" for character in nfc(name))
    return kept.strip(" .") or "unnamed"
