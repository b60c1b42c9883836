"""Image files as one array of bytes: decoded once, kept in a memory-mapped cache that runs may share."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from dsgd.cache import cached
from dsgd.data.images import Pixels
from dsgd.models.sources import SourceError

T = TypeVar("T")

#: Raised when the same files are decoded to other pixels, so that pixels of before are not taken for these.
DECODER_VERSION = 2

#: Square images of one size are kept as they are up to this side, in pixels, and resized batch by batch.
KEPT_SIDE = 64

#: Of unusable files a message names no more than this.
MOST_NAMED = 10

#: Pillow's modes of grey levels from 0 to 65535.
DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N")

#: By EXIF's orientation, what turns an image upright; 1 is upright.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Encoded:
    """One image as it is stored.

    Attributes:
        name: what a message calls it.
        content: the bytes of its file, or where the file lies.
        digest: SHA-256 of its bytes.
    """

    name: str
    content: bytes | Path
    digest: str


def decoded(images: Sequence[Encoded], size: int) -> Pixels:
    """The pixels (n, h, w, c) uint8 of ``images``, read-only, from the cache where they have been decoded before.

    They are what a viewer shows: turned as the camera's orientation says, and what is transparent over white. Small
    square images of one size are left as they are. All others are cut to their middle square and resized to ``size``.
    c is 1 where every image is grey, else 3. Grey levels of 16 bits are brought to 8.

    Args:
        images: n images in any format that Pillow reads.
        size: pixels a side.

    Raises:
        SourceError: files are no images, too large, or have grey levels of no known range; the message names them all.
    """
    return cached(f"images-{_digest(images, size)}.npy", lambda: _decode(images, size), _save, _load)


def _save(pixels: Pixels, file: Path) -> None:
    np.save(file, pixels)


def _load(file: Path) -> Pixels:
    pixels: Pixels = np.load(file, mmap_mode="r")
    return pixels


def _digest(images: Sequence[Encoded], size: int) -> str:
    """By content, so that moved files are not decoded again and edited ones are."""
    digest = hashlib.sha256(f"{DECODER_VERSION} {size} {KEPT_SIDE} {DEEP_GREY}".encode())
    for image in images:
        digest.update(image.digest.encode())
    return digest.hexdigest()[:32]


def _decode(images: Sequence[Encoded], size: int) -> Pixels:
    headers, failed = _of_each(images, lambda _place, image: _header(image))
    if failed:  # the pixels of the others are looked at too, so that one message names all
        failed |= _of_each(images, lambda place, image: None if place in failed else _load_pixels(image))[1]
        raise _refusal(failed, len(images))
    shapes, modes = {size for size, _ in headers.values()}, {mode for _, mode in headers.values()}
    width, height = headers[0][0]
    keeps = len(shapes) == 1 and width == height <= KEPT_SIDE
    side, mode = (width if keeps else size), ("L" if modes <= {"L", *DEEP_GREY} else "RGB")
    pixels = np.empty((len(images), side, side, 1 if mode == "L" else 3), dtype=np.uint8)

    def fill(place: int, image: Encoded) -> None:
        with _opened(image) as opened:
            fitted = ImageOps.fit(_shown(opened).convert(mode), (side, side), Image.Resampling.BICUBIC)
        pixels[place] = np.asarray(fitted).reshape(pixels.shape[1:])

    _, failed = _of_each(images, fill)
    if failed:
        raise _refusal(failed, len(images))
    return pixels


def _of_each(images: Sequence[Encoded], do: Callable[[int, Encoded], T]) -> tuple[dict[int, T], dict[int, str]]:
    """By each image's place what ``do`` gives, and why it fails where it does."""
    found: dict[int, T] = {}
    failed: dict[int, str] = {}

    def attempt(place: int) -> None:
        try:
            found[place] = do(place, images[place])
        except SourceError as error:
            failed[place] = str(error)

    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:  # Pillow decodes outside the interpreter's lock
        warnings.simplefilter("ignore")  # of large images and of malformed EXIF data
        list(pool.map(attempt, range(len(images))))
    return found, failed


def _refusal(failed: dict[int, str], count: int) -> SourceError:
    reasons = [failed[place] for place in sorted(failed)]
    more = f"; and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    head = f"{len(reasons)} of {count} images cannot be used: " if len(reasons) > 1 else ""
    return SourceError(f"{head}{'; '.join(reasons[:MOST_NAMED])}{more}")


def _load_pixels(image: Encoded) -> None:
    with _opened(image) as opened:
        opened.load()


def _header(image: Encoded) -> tuple[tuple[int, int], str]:
    """Width and height, and the colour mode; the pixels are not read."""
    with _opened(image) as opened:
        if opened.mode in ("I", "F"):
            raise SourceError(f"{image.name} has grey levels of no known range; save it with 8 bits")
        return opened.size, opened.mode


def _shown(image: Image.Image) -> Image.Image:
    """As a viewer shows it: turned upright, with 8 bits, over white."""
    image.load()  # some formats are turned by Pillow itself, which then forgets the orientation
    turn = TURNS.get(_orientation(image))
    turned = image if turn is None else image.transpose(turn)
    if turned.mode in DEEP_GREY:  # Pillow's own ``convert`` would make white of every 16-bit level from 255 on
        return Image.fromarray((np.asarray(turned) // 257).astype(np.uint8))
    if image.has_transparency_data:
        turned.info = image.info  # a transparent colour is told there
        colours = turned.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours).convert("RGB")
    return turned


def _orientation(image: Image.Image) -> Any:
    """As EXIF counts it, 1 where it is upright; None where nothing is told or the data are malformed."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # Pillow raises many kinds of it, and a viewer shows such an image as it is stored
        return None


@contextmanager
def _opened(image: Encoded) -> Iterator[Image.Image]:
    """Pillow's view of a file, which is decoded no sooner than its pixels are asked for."""
    content = image.content
    try:
        with Image.open(BytesIO(content) if isinstance(content, bytes) else content) as opened:
            yield opened
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise SourceError(f"{image.name} has more than {most} million pixels; make it smaller, or remove it") from error
    except UnidentifiedImageError as error:
        raise SourceError(f"{image.name} cannot be read as an image; remove or repair it (unknown format)") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # half of an image
        raise SourceError(f"{image.name} cannot be read as an image; remove or repair it ({error})") from error
