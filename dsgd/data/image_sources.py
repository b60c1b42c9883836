"""Where a task's images and labels come from, and the splits that it fixes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dsgd.config import files
from dsgd.config.folders import image_folder
from dsgd.data.checks import require_labels
from dsgd.data.decoding import Encoded, decoded
from dsgd.data.images import Pixels
from dsgd.data.splits import stratified_halves, stratified_shares
from dsgd.models.sources import SourceError

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

#: Part of the definition of ``digits``, not a run's seed: every run trains and evaluates on the same halves.
DIGITS_SPLIT_SEED = 8


@dataclass(frozen=True, eq=False)
class ImageCorpus:
    """All images of a task, and which of them train and which evaluate.

    Attributes:
        pixels: (n, h, w, c), c = 1 or 3.
        labels: (n,) int64, positions in ``classes``.
        train: (n_train,) int64, positions in ``pixels``.
        evaluation: (n_evaluation,) int64, the same.
        classes: names in the order of the labels.
        contents: of each image's file, equal where one is a copy of another; empty where it is not known.
    """

    pixels: Pixels
    labels: np.ndarray
    train: np.ndarray
    evaluation: np.ndarray
    classes: list[str]
    contents: list[str] = field(default_factory=list)


def read_images(task: Task, data: Data, size: int) -> ImageCorpus:
    """The images of ``task``.

    Args:
        task: which data: digits by ``task.package``, a folder by ``task.path``, else a data set of the hub.
        data: where data sets of the hub are looked for.
        size: pixels a side that the model takes; images of many sizes are brought to it.

    Raises:
        SourceError: the data are not there, or are not what the task promises.
    """
    if task.package == "sklearn":
        return digits()
    if task.path is not None:
        return folder(task, files.local_path(task.path), size)
    return hub(task, data, size)


def digits() -> ImageCorpus:
    """Handwritten digits of UCI's test set (Alpaydin & Kaynak 1998), 8 by 8, as scikit-learn ships them; two halves."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.images[..., None] * (255 / 16)).round().astype(np.uint8)  # grey levels are 0 to 16
    labels = found.target.astype(np.int64)
    train, evaluation = stratified_halves(labels, DIGITS_SPLIT_SEED)
    return ImageCorpus(pixels, labels, train, evaluation, [str(name) for name in found.target_names])


# --- the hub --------------------------------------------------------------------------------------------------------


class Columns(NamedTuple):
    """Where a data set of the hub keeps what is needed of it."""

    image: str
    label: str


#: By ``task.hub_id``.
HUB_COLUMNS = {
    "uoft-cs/cifar10": Columns("img", "label"),
    "uoft-cs/cifar100": Columns("img", "fine_label"),
}


def hub(task: Task, data: Data, size: int) -> ImageCorpus:
    """The split ``train`` and the evaluation split of a data set of the hub, or of a mirror of it.

    Raises:
        SourceError: nothing is there, or not these columns; or the task's data set is none of ``HUB_COLUMNS``.
    """
    if task.hub_id not in HUB_COLUMNS:
        raise SourceError(f"task.hub_id = {task.hub_id}: the image sets are {', '.join(HUB_COLUMNS)}")
    columns = HUB_COLUMNS[task.hub_id]
    splits = [_hub_split(task, data, split, columns) for split in ("train", task.evaluation_split)]
    classes: list[str] = splits[0].features[columns.label].names
    names = ("train", task.evaluation_split)
    for split, name in zip(splits, names, strict=True):
        require_labels(split[columns.label], len(classes), f"{task.hub_id}, split {name}")
    labels = np.concatenate([np.asarray(split[columns.label], dtype=np.int64) for split in splits])
    images = [
        image for split, name in zip(splits, names, strict=True) for image in _encoded(split, name, columns.image)
    ]
    halves = np.split(np.arange(len(labels)), [len(splits[0])])
    digests = [image.digest for image in images]
    return ImageCorpus(decoded(images, size), labels, halves[0], halves[1], classes, digests)


def _hub_split(task: Task, data: Data, split: str, columns: Columns) -> Any:
    from datasets import Image

    from dsgd.data.hub import read_split

    return read_split(task, data, split, columns).cast_column(columns.image, Image(decode=False))


def _encoded(split: Any, name: str, column: str) -> list[Encoded]:
    found = []
    for row, image in enumerate(split[column], start=1):
        content = None if image is None else image["bytes"] or (Path(image["path"]) if image["path"] else None)
        if content is None:
            raise SourceError(f"split {name}: column {column} is empty in row {row}")
        known = hashlib.sha256(content if isinstance(content, bytes) else content.read_bytes()).hexdigest()
        found.append(Encoded(f"row {row} of split {name}", content, known))
    return found


# --- a folder of one's own ------------------------------------------------------------------------------------------


def folder(task: Task, root: Path, size: int) -> ImageCorpus:
    """``train/<class>/<image>`` below ``root``, and ``val``, ``validation`` or ``test`` of the same classes.

    Without an evaluation folder a share of each class is set aside, by ``task.split_seed``. A class's folder may hold
    folders of its own. A class without images in the evaluation folder trains and is not evaluated, whether its folder
    is empty or missing.

    Raises:
        SourceError: see :func:`dsgd.config.folders.image_folder`; or a file is no image, or no class has a second
            image to set aside.
    """
    try:
        found = image_folder(root)
        digests = files.digests(root, found.files)
    except files.FilesError as error:
        raise SourceError(str(error)) from error
    classes = list(found.train)
    parts = (found.train, found.evaluation)
    numbers = [classes.index(name) for part in parts for name, of_class in part.items() for _ in of_class]
    labels, count = np.array(numbers, dtype=np.int64), sum(map(len, found.train.values()))
    if found.evaluation_folder is None:
        rows = _set_aside(task, root, labels, digests)
    else:
        rows = (np.arange(count), np.arange(count, len(labels)))
    images = [Encoded(file.path, Path(file.path), known) for file, known in zip(found.files, digests, strict=True)]
    return ImageCorpus(decoded(images, size), labels, *rows, classes, digests)


def _set_aside(task: Task, root: Path, labels: np.ndarray, digests: list[str]) -> tuple[np.ndarray, np.ndarray]:
    try:
        return stratified_shares(labels, digests, task.evaluation_share, task.split_seed)
    except SourceError as error:
        raise SourceError(f"{root / 'train'}: {error}; give a folder to evaluate on, {root / 'val'}") from error
