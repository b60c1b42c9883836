"""Which files of a folder a run reads: of an image folder, of a mirror of the hub, of a saved model. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dsgd.config.files import File, FilesError, is_file, is_folder, is_junk, listing, nfc, remembered

#: A folder's evaluation split goes by one of these names.
EVALUATION_FOLDERS = ("val", "validation", "test")

WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"  # what stands in its place where the weights are spread over several files

#: What else decides what a saved model computes: its configuration and its tokenizer.
MODEL_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "adapter_config.json",
    "adapter_model.safetensors",
)


# --- images ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageFolder:
    """The files of ``train/<class>/`` and of the evaluation folder.

    Attributes:
        train: class → its files, both in the order of their names.
        evaluation: the same; a class without files is left out. Empty where there is no evaluation folder.
        evaluation_folder: its name, None where there is none.
        beside: files directly in ``train`` or in the evaluation folder, which belong to no class and are not read.
    """

    train: dict[str, list[File]]
    evaluation: dict[str, list[File]]
    evaluation_folder: str | None
    beside: int

    @property
    def files(self) -> list[File]:
        """All that are read, named from the root: those to train on first."""
        parts = [("train", self.train), (self.evaluation_folder or "", self.evaluation)]
        return [
            File(f"{folder}/{name}/{file.name}", file.path, file.state)
            for folder, classes in parts
            for name, files in classes.items()
            for file in files
        ]


def image_folder(root: Path) -> ImageFolder:
    """What is read of ``root``.

    A class's folder may hold folders of its own. An evaluation folder need not have every class.

    Raises:
        FilesError: no folder ``train``, fewer than two classes, a class without files to train on, a class of the
            evaluation folder that training never sees, or names that differ only in how they are spelled.
    """
    return remembered(("image_folder", root.absolute()), lambda: _image_folder(root))


def _image_folder(root: Path) -> ImageFolder:
    if not is_folder(root / "train"):
        there = "has no folder train" if is_folder(root) else "is no folder"
        raise FilesError(f"{root} {there}; give a folder with train/<class>/<image> in it")
    train, beside = _by_class(root / "train")
    if len(train) < 2:
        raise FilesError(f"{root / 'train'} has {len(train)} class folder; a classifier needs two")
    empty = [name for name, files in train.items() if not files]
    if empty:
        raise FilesError(f"{root / 'train'}: no images of {', '.join(empty)}")
    held_out = _evaluation_folder(root, train)
    if held_out is None:
        return ImageFolder(train, {}, None, beside)
    classes, more = _by_class(root / held_out)
    evaluation = {name: files for name, files in classes.items() if files}
    unseen = [name for name in evaluation if name not in train]
    if unseen:
        raise FilesError(f"{root / held_out} has classes that training never sees: {', '.join(unseen)}")
    if not evaluation:
        raise FilesError(f"{root / held_out} holds no images; fill it, or remove it to set a share of train aside")
    if len(evaluation) == 1:
        only = next(iter(evaluation))
        raise FilesError(f"{root / held_out} has images of {only} alone; to judge a classifier it needs two classes")
    return ImageFolder(train, evaluation, held_out, beside + more)


def one_name_twice(names: Iterable[str]) -> tuple[str, str] | None:
    """Two of ``names`` that differ only in the form of their Unicode or in blanks around them, or None."""
    by_spelling = sorted(dict.fromkeys(names), key=lambda name: (nfc(name).strip(), name))
    for one, other in pairwise(by_spelling):
        if nfc(one).strip() == nfc(other).strip():
            return one, other
    return None


def _by_class(root: Path) -> tuple[dict[str, list[File]], int]:
    """Class → its files, and how many files lie beside the classes' folders."""
    try:
        entries = [entry for entry in root.iterdir() if not is_junk(entry.name)]
    except OSError as error:
        raise FilesError(f"{root}: {error.strerror}") from error
    folders = [entry.name for entry in entries if is_folder(entry)]
    twice = one_name_twice(folders)
    if twice is not None:
        raise FilesError(f"{root}: {twice[0]!a} and {twice[1]!a} are one class in two spellings")
    found: dict[str, list[File]] = {name: [] for name in sorted(map(nfc, folders))}
    beside = 0
    for file in listing(root, may_be_empty=True):
        name, _, rest = file.name.partition("/")
        if rest:
            found[name].append(File(rest, file.path, file.state))
        else:
            beside += 1
    return found, beside


def _evaluation_folder(root: Path, classes: Iterable[str]) -> str | None:
    """None where there is none; but where another folder has these classes, to set images aside is not meant."""
    for name in EVALUATION_FOLDERS:
        if is_folder(root / name):
            return name
    others = sorted(of for of in root.iterdir() if is_folder(of) and of.name != "train" and not is_junk(of.name))
    splits = [of.name for of in others if any(is_folder(of / name) for name in classes)]
    if splits:
        names = ", ".join(EVALUATION_FOLDERS)
        raise FilesError(f"{root} has {', '.join(splits)} beside train; the folder to evaluate on is one of {names}")
    return None


# --- a mirror of the hub --------------------------------------------------------------------------------------------


def mirror_files(folder: Path, subset: str | None, split: str) -> list[File]:
    """The Parquet files of a split as the hub lays them out, ``<subset>/<split>-00000-of-00001.parquet``, in order.

    Raises:
        FilesError: there is none; the message says which splits there are.
    """
    where = folder / (subset or "")
    found = [file for file in listing(where, may_be_empty=True) if "/" not in file.name] if is_folder(where) else []
    parquet = [file for file in found if file.name.endswith(".parquet")]
    of_split = [file for file in parquet if _split(file) == split]
    if not of_split:
        there = ", ".join(sorted(set(map(_split, parquet)))) or "none"
        raise FilesError(f"{where} holds no {split}-*.parquet; its splits: {there}")
    return of_split


def _split(file: File) -> str:
    return file.name.removesuffix(".parquet").partition("-")[0]


# --- a saved model --------------------------------------------------------------------------------------------------


def model_files(folder: Path) -> list[File]:
    """Configuration, tokenizer and weights of a saved model, as far as they are there.

    Raises:
        FilesError: no such folder, no weights in safetensors, or not all the files that an index of shards names.
    """
    if not is_folder(folder):
        raise FilesError(f"{folder}: no such folder; give that of a saved model")
    names = [name for name in MODEL_FILES if is_file(folder / name)]
    if is_file(folder / WEIGHTS):
        names.append(WEIGHTS)
    elif is_file(folder / SHARDS):
        names += [SHARDS, *_shards(folder)]
    else:
        raise FilesError(f"{folder} holds no {WEIGHTS}, the only format that is read; save_pretrained() writes it")
    return [listing(folder / name)[0]._replace(name=name) for name in names]


def _shards(folder: Path) -> list[str]:
    try:
        names = sorted(set(json.loads((folder / SHARDS).read_text())["weight_map"].values()))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise FilesError(f"{folder / SHARDS} is no index of shards ({type(error).__name__})") from error
    others = [str(name) for name in names if not str(name).endswith(".safetensors") or Path(str(name)).name != name]
    if others:
        raise FilesError(f"{folder}: {SHARDS} names {', '.join(others[:3])}; only safetensors files beside it are read")
    absent = [name for name in names if not is_file(folder / str(name))]
    if absent:
        raise FilesError(f"{folder}: {SHARDS} names {', '.join(map(str, absent[:3]))}, which is not there")
    return names
