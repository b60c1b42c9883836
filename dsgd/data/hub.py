"""Data sets of the hub, or of a mirror folder that is laid out like it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets.exceptions import DatasetsError

from dsgd.config.data import how_to_get
from dsgd.config.files import is_folder, local_path
from dsgd.config.folders import mirror_files
from dsgd.models.sources import SourceError

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task


def read_split(task: Task, data: Data, split: str, columns: Sequence[str]) -> datasets.Dataset:
    """One split of ``task.hub_id``, from Parquet files alone: no code of a data set ever runs.

    What comes from the hub is kept in the library's own cache, under its lock, so that runs may start together.

    Args:
        task: names the data set, its subset and, for the hub, the revision.
        data: where it lies: the folder ``<root>/<hub_id>`` of a mirror, or the hub where there is no root.
        split: ``train``, ``validation`` or ``test``, as the data set has them.
        columns: which of its columns are wanted.

    Raises:
        SourceError: nothing is there, or not these columns; the message says how to get it.
    """
    where = location(task, data)
    try:
        with _quiet():
            dataset = _of_mirror(where, task, split) if data.root else _of_hub(where, task, split)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise SourceError(_absent(task, where, split, error)) from error
    absent = [column for column in columns if column not in dataset.column_names]
    if absent:
        there = ", ".join(dataset.column_names)
        raise SourceError(f"{where}, split {split}: no column {', '.join(absent)}; the columns are {there}")
    return dataset.select_columns(list(columns))


def location(task: Task, data: Data) -> str:
    """What ``load_dataset`` is given: the mirror's folder of ``task``, or its hub id.

    Raises:
        SourceError: the task names no data set, or the mirror has no such folder.
    """
    if task.hub_id is None:
        raise SourceError(f"task.hub_id = null: task {task.name} is read from the hub or a mirror of it")
    if not data.root:
        return task.hub_id
    folder = local_path(data.root) / task.hub_id
    if not is_folder(folder):
        raise SourceError(f"no folder {folder}; {how_to_get(task, data.root)}")
    return str(folder)


def _of_hub(where: str, task: Task, split: str) -> datasets.Dataset:
    return datasets.load_dataset(where, task.subset, split=split, revision=task.revision)


def _of_mirror(where: str, task: Task, split: str) -> datasets.Dataset:
    """Without the library's cache: datasets 5.2 keeps a folder's rows there even after its files have changed."""
    files = mirror_files(Path(where), task.subset, split)
    return datasets.Dataset(pa.concat_tables(pq.read_table(file.path, memory_map=True) for file in files))


def _absent(task: Task, where: str, split: str, error: Exception) -> str:
    subset = f", subset {task.subset}" if task.subset else ""
    reason = str(error).strip().partition("\n")[0]
    return (
        f"cannot read split {split} of {where}{subset} ({type(error).__name__}: {reason}); {how_to_get(task, 'MIRROR')}"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars, which would fill a sweep's log."""
    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not bars:
            datasets.enable_progress_bars()
