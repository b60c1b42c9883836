"""Image files as one array of bytes: decoded once, kept in a memory-mapped cache that runs may share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from dsgd.cache import cached
from dsgd.data.images import Pixels
from dsgd.models.sources import SourceError

#: One image: the bytes of its file, or where the file lies.
Encoded = bytes | Path

#: Square images of one size are kept as they are up to this side, in pixels, and resized batch by batch.
KEPT_SIDE = 64

#: Pillow's modes of grey levels from 0 to 65535.
DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N")


def decoded(images: Sequence[Encoded], size: int) -> Pixels:
    """The pixels (n, h, w, c) uint8 of ``images``, read-only, from the cache where they have been decoded before.

    Small square images of one size are left as they are. All others are cut to their middle square and resized to
    ``size``. c is 1 where every image is grey, else 3. Grey levels of 16 bits are brought to 8.

    Args:
        images: n images in any format that Pillow reads.
        size: pixels a side.

    Raises:
        SourceError: a file is no image, or has grey levels of no known range; the message names it.
    """
    return cached(f"images-{_digest(images, size)}.npy", lambda: _decode(images, size), _save, _load)


def _save(pixels: Pixels, file: Path) -> None:
    np.save(file, pixels)


def _load(file: Path) -> Pixels:
    pixels: Pixels = np.load(file, mmap_mode="r")
    return pixels


def _digest(images: Sequence[Encoded], size: int) -> str:
    """By content, so that moved files are not decoded again and edited ones are."""
    digest = hashlib.sha256(f"{size} {KEPT_SIDE} {DEEP_GREY}".encode())
    for image in images:
        content = image if isinstance(image, bytes) else image.read_bytes()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:32]


def _decode(images: Sequence[Encoded], size: int) -> Pixels:
    shapes, modes = zip(*map(_header, images), strict=True)
    width, height = shapes[0]
    keeps = len(set(shapes)) == 1 and width == height <= KEPT_SIDE
    side, mode = (width if keeps else size), ("L" if set(modes) <= {"L", *DEEP_GREY} else "RGB")
    pixels = np.empty((len(images), side, side, 1 if mode == "L" else 3), dtype=np.uint8)

    def fill(position: int) -> None:
        with _opened(images[position]) as image:
            fitted = ImageOps.fit(_shallow(image).convert(mode), (side, side), Image.Resampling.BICUBIC)
        pixels[position] = np.asarray(fitted).reshape(pixels.shape[1:])

    with ThreadPoolExecutor() as pool:  # Pillow decodes outside the interpreter's lock
        list(pool.map(fill, range(len(images))))
    return pixels


def _header(image: Encoded) -> tuple[tuple[int, int], str]:
    """Width and height, and the colour mode; the pixels are not read."""
    with _opened(image) as opened:
        if opened.mode in ("I", "F"):
            reason = "has grey levels of no known range; save it with 8 bits"
            raise SourceError(f"{_name(image)} {reason}")
        return opened.size, opened.mode


def _shallow(image: Image.Image) -> Image.Image:
    """Pillow's own ``convert`` would make white of every 16-bit level from 255 on."""
    if image.mode not in DEEP_GREY:
        return image
    return Image.fromarray((np.asarray(image) // 257).astype(np.uint8))


@contextmanager
def _opened(image: Encoded) -> Iterator[Image.Image]:
    """Pillow's view of a file, which is decoded no sooner than its pixels are asked for."""
    try:
        with Image.open(BytesIO(image) if isinstance(image, bytes) else image) as opened:
            yield opened
    except OSError as error:  # no image, or half of one
        raise SourceError(f"{_name(image)} cannot be read as an image; remove or repair it ({error})") from error


def _name(image: Encoded) -> str:
    return str(image) if isinstance(image, Path) else "an image of the data set"
