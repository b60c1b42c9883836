"""What a folder of a saved model says of itself before its weights are loaded. Torch-free."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dsgd.config.architectures import ARCHITECTURES
from dsgd.config.files import FilesError, is_file, local_path
from dsgd.config.folders import model_files

#: Types of safetensors that are read as weights; whole numbers would have to be scaled first.
FLOATING = ("F64", "F32", "F16", "BF16")

#: What wrappers put before the names of the weights that they save, and how to save without it.
WRAPPERS = {
    "module.": "DataParallel or DistributedDataParallel: save model.module",
    "_orig_mod.": "torch.compile: save model._orig_mod",
}

#: Bytes of a safetensors header; the format's own limit.
LONGEST_HEADER = 100_000_000

#: Tokens that a message names.
SHOWN = 3


def require_loadable(path: str) -> None:
    """Check the folder of a saved model as far as that needs no weights.

    Raises:
        FilesError: it is not there, holds an adapter, names of a wrapper, or weights of a type that is not trained.
    """
    folder = local_path(path)
    _refuse_adapter(folder)
    for file in model_files(folder):
        if file.name.endswith(".safetensors"):
            _check_tensors(Path(file.path))


def text_model_problem(path: str, max_length: int) -> tuple[str, str] | None:
    """Say which key does not fit the saved text model, and why; None where all fit as far as its files tell.

    Args:
        path: of the folder, which :func:`require_loadable` accepts.
        max_length: tokens of an input, special ones included.
    """
    folder = local_path(path)
    config = _json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        return "model.path", f"is a {kind}; the text models that can be trained are {', '.join(ARCHITECTURES)}"
    longest = _longest_input(config)
    if longest is not None and max_length > longest:
        return "task.max_length", f"the model in {folder} takes {longest} tokens at most"
    lacking = _tokens_without_rows(folder, config)
    if lacking:
        named = ", ".join(lacking[:SHOWN]) + (", …" if len(lacking) > SHOWN else "")
        reason = f"its tokenizer has {len(lacking)} added token(s) without an embedding row: {named}"
        return "model.path", f"{reason}; call model.resize_token_embeddings(len(tokenizer)) and save it again"
    return None


# --- weights --------------------------------------------------------------------------------------------------------


def _refuse_adapter(folder: Path) -> None:
    if not is_file(folder / "adapter_config.json"):
        return
    way_out = "merge it into the model (merge_and_unload), save that, and give its folder"
    raise FilesError(f"{folder} holds a PEFT adapter (adapter_config.json), which would freeze the model; {way_out}")


def _check_tensors(file: Path) -> None:
    state = file.stat()
    problem = _tensor_problem(file, state.st_size, state.st_mtime_ns)
    if problem:
        raise FilesError(problem)


@cache
def _tensor_problem(file: Path, _size: int, _modified: int) -> str:
    """What is wrong with the names and types of a safetensors file, in words; remembered, as headers can be long."""
    tensors = _header(file)
    for name, tensor in tensors.items():
        kind = str(tensor.get("dtype"))
        if kind not in FLOATING and name.endswith((".weight", ".bias")):
            return f"{file}: {name} is stored as {kind}; give weights in one of {', '.join(FLOATING)}"
    for prefix, reason in WRAPPERS.items():
        if any(prefix in f".{name}" for name in tensors):
            return f"{file}: names of its weights begin with {prefix!r}, as saved from {reason}"
    return ""


def _header(file: Path) -> dict[str, dict[str, Any]]:
    """Name to dtype, shape and place of every tensor (the format: 8 bytes of length, then as many of JSON)."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > LONGEST_HEADER:
                raise ValueError("its header is too long")
            header = json.loads(stream.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
        header.pop("__metadata__", None)
        if not all(isinstance(tensor, dict) for tensor in header.values()):
            raise ValueError("its header names no tensors")
    except (OSError, ValueError, struct.error, RecursionError, AttributeError) as error:
        raise FilesError(f"{file} is no safetensors file, or is cut off ({error})") from error
    found: dict[str, dict[str, Any]] = header
    return found


# --- configuration and tokenizer ------------------------------------------------------------------------------------


def _longest_input(config: dict[str, Any]) -> int | None:
    """Tokens of the longest input; None where positions are relative or the configuration does not say."""
    rows, positions = config.get("max_position_embeddings"), ARCHITECTURES[config["model_type"]].positions
    if positions == "relative" or not isinstance(rows, int):
        return None
    padding = config.get("pad_token_id")
    return rows - padding - 1 if positions == "table_behind_padding" and isinstance(padding, int) else rows


def _tokens_without_rows(folder: Path, config: dict[str, Any]) -> list[str]:
    """Tokens that the tokenizer was given after training and whose id has no row; the pad token is never looked up."""
    rows = config.get("vocab_size")
    if not isinstance(rows, int) or not is_file(folder / "tokenizer.json"):
        return []
    padding = _pad_token(folder)
    return [token for token, number in _added(folder) if number >= rows and token != padding]


def _pad_token(folder: Path) -> str | None:
    file = folder / "tokenizer_config.json"
    token = _json(file).get("pad_token") if is_file(file) else None
    return str(token.get("content")) if isinstance(token, dict) else token


def _added(folder: Path) -> Iterator[tuple[str, int]]:
    for token in _json(folder / "tokenizer.json").get("added_tokens") or []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            yield str(token.get("content")), token["id"]


def _json(file: Path) -> dict[str, Any]:
    try:
        state = file.stat()
        return _parsed(file, state.st_size, state.st_mtime_ns)
    except (OSError, ValueError, RecursionError) as error:
        raise FilesError(f"{file} cannot be read ({type(error).__name__}); save_pretrained() writes it") from error


@cache
def _parsed(file: Path, _size: int, _modified: int) -> dict[str, Any]:
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found
