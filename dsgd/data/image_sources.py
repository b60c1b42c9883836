"""Where a task's images and labels come from, and the splits that it fixes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dsgd.config.data import digest
from dsgd.data.decoding import Encoded, decoded
from dsgd.data.images import Pixels
from dsgd.data.splits import stratified_halves, stratified_shares
from dsgd.models.sources import SourceError

if TYPE_CHECKING:
    from dsgd.config.schema import Data, Task

#: Part of the definition of ``digits``, not a run's seed: every run trains and evaluates on the same halves.
DIGITS_SPLIT_SEED = 8

#: A folder's evaluation split goes by one of these names.
EVALUATION_FOLDERS = ("val", "validation", "test")


@dataclass(frozen=True, eq=False)
class ImageCorpus:
    """All images of a task, and which of them train and which evaluate.

    Attributes:
        pixels: (n, h, w, c), c = 1 or 3.
        labels: (n,) int64, positions in ``classes``.
        train: (n_train,) int64, positions in ``pixels``.
        evaluation: (n_evaluation,) int64, the same.
        classes: names in the order of the labels.
    """

    pixels: Pixels
    labels: np.ndarray
    train: np.ndarray
    evaluation: np.ndarray
    classes: list[str]


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
        return folder(task, Path(task.path).expanduser(), size)
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
    labels = np.concatenate([np.asarray(split[columns.label], dtype=np.int64) for split in splits])
    pixels = decoded([image for split in splits for image in _encoded(split, columns.image)], size)
    halves = np.split(np.arange(len(labels)), [len(splits[0])])
    return ImageCorpus(pixels, labels, halves[0], halves[1], classes)


def _hub_split(task: Task, data: Data, split: str, columns: Columns) -> Any:
    from datasets import Image

    from dsgd.data.hub import read_split

    return read_split(task, data, split, columns).cast_column(columns.image, Image(decode=False))


def _encoded(split: Any, column: str) -> list[Encoded]:
    return [image["bytes"] or Path(image["path"]) for image in split[column]]


# --- a folder of one's own ------------------------------------------------------------------------------------------


def folder(task: Task, root: Path, size: int) -> ImageCorpus:
    """``train/<class>/<image>`` below ``root``, and ``val``, ``validation`` or ``test`` of the same classes.

    Without an evaluation folder a share of each class is set aside, by ``task.split_seed``. A class's folder may hold
    folders of its own.

    Raises:
        SourceError: not these folders, fewer than two classes, a class without images or, to be set aside, without a
            second one, or a class of the evaluation folder that training never sees.
    """
    train = _by_class(root / "train")
    if len(train) < 2:
        raise SourceError(f"{root / 'train'} has {len(train)} class folder; a classifier needs two")
    classes = list(train)
    held_out = _evaluation_folder(root, classes)
    evaluation = {} if held_out is None else _by_class(held_out)
    unseen = sorted(set(evaluation) - set(classes))
    if unseen:
        raise SourceError(f"{held_out} has classes that training never sees: {', '.join(unseen)}")
    files = [file for part in (train, evaluation) for of_class in part.values() for file in of_class]
    numbers = [classes.index(name) for part in (train, evaluation) for name, of_class in part.items() for _ in of_class]
    labels, count = np.array(numbers, dtype=np.int64), sum(map(len, train.values()))
    pixels = decoded(files, size)
    parts = (np.arange(count), np.arange(count, len(labels)))
    if held_out is None:
        parts = _set_aside(task, root, labels, files)
    return ImageCorpus(pixels, labels, *parts, classes)


def _evaluation_folder(root: Path, classes: list[str]) -> Path | None:
    """None where there is none; but where another folder has these classes, to set images aside is not meant."""
    for name in EVALUATION_FOLDERS:
        if (root / name).is_dir():
            return root / name
    splits = [of.name for of in _folders(root) if of.name != "train" and any((of / name).is_dir() for name in classes)]
    if splits:
        names = ", ".join(EVALUATION_FOLDERS)
        raise SourceError(f"{root} has {', '.join(splits)} beside train; the folder to evaluate on is one of {names}")
    return None


def _set_aside(task: Task, root: Path, labels: np.ndarray, files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    try:
        return stratified_shares(labels, [digest(str(file)) for file in files], task.evaluation_share, task.split_seed)
    except SourceError as error:
        raise SourceError(f"{root / 'train'}: {error}; give a folder to evaluate on, {root / 'val'}") from error


def _by_class(root: Path) -> dict[str, list[Path]]:
    """Class → its files, both in the order of their names; hidden files are no images."""
    if not root.is_dir():
        raise SourceError(f"no folder {root}; task.path names a folder with train/<class>/<image> in it")
    found = {
        of.name: sorted(path for path in of.rglob("*") if path.is_file() and _shows(path, of)) for of in _folders(root)
    }
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise SourceError(f"{root}: no images of {', '.join(empty)}")
    return found


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and _shows(path, root))


def _shows(path: Path, root: Path) -> bool:
    """Whether neither it nor a folder on the way from ``root`` is hidden."""
    return not any(part.startswith(".") for part in path.relative_to(root).parts)
