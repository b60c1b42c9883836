"""Pictures as a viewer shows them: turned upright, over white; and files that cannot be read, all of them named."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from dsgd.config.schema import Data, Modality, Task
from dsgd.data import load_task
from dsgd.data.image_sources import read_images
from dsgd.models.sources import SourceError
from dsgd.models.vision import ImagePreprocessor

PREPROCESSOR = ImagePreprocessor(16, 3, (0.5,) * 3, (0.5,) * 3, "bicubic")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """Two classes of two plain images, to train and to evaluate on."""
    root = tmp_path / "set"
    for number, (split, name) in enumerate((split, name) for split in ("train", "val") for name in ("cat", "dog")):
        (root / split / name).mkdir(parents=True)
        for image in range(2):
            Image.new("RGB", (32, 32), (9 * number, 9 * image, 0)).save(root / split / name / f"{image}.png")
    return root


def pixels(root, size=16):
    return read_images(task_of(root), Data(), size=size).pixels


def task_of(root, **fields):
    return Task("image_folder", modality=Modality.image, path=str(root), **fields)


def drawn():
    """An image of which each turn looks different."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_the_camera_s_orientation_is_followed(folder, orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = folder / f"train/cat/0.{suffix}"
    (folder / "train/cat/0.png").unlink()
    drawn().save(stored, exif=exif)
    with Image.open(stored) as opened:
        opened.load()
        upright = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    assert np.array_equal(pixels(folder)[0], upright)
    assert np.array_equal(upright, np.asarray(drawn())) == (orientation == 1)


@pytest.mark.parametrize("exif", [b"Exif\0\0no exif at all", b"Exif\0\0MM\0*\0\0\0\xff"])
def test_malformed_exif_is_passed_over(folder, exif):
    drawn().save(folder / "train/cat/0.png", exif=exif)
    assert np.array_equal(pixels(folder)[0], np.asarray(drawn()))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(folder, mode):
    """Whatever colour stands under an alpha of 0; half of black over white is 127 or 128."""
    picture = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    picture.paste((0, 0, 0, 255), (0, 0, 16, 32))
    if mode != "P":
        picture.paste((0, 0, 0, 128), (0, 0, 16, 16))
    options = {}
    if mode == "P":
        picture, options = Image.new("P", (32, 32), 1), {"transparency": 1}
        picture.putpalette([0, 0, 0, 200, 10, 10])
        picture.paste(0, (0, 0, 16, 32))
    elif mode != "RGBA":
        picture = picture.convert(mode)
    picture.save(folder / "train/cat/0.png", **options)
    found = pixels(folder)[0]
    assert (found[:, 16:] == 255).all()
    assert (found[16:, :16] == 0).all()
    if mode != "P":
        assert np.isin(found[:16, :16], (127, 128)).all()


def test_a_transparent_grey_image_beside_grey_ones_stays_grey(folder):
    for file in folder.rglob("*.png"):
        Image.new("L", (32, 32), 7).save(file)
    Image.new("L", (32, 32), 9).save(folder / "train/cat/0.png", transparency=9)
    found = pixels(folder)
    assert found.shape == (8, 32, 32, 1)
    assert (found[0] == 255).all()
    assert (found[1:] == 7).all()


def test_every_broken_file_is_named(folder):
    broken = [folder / "train/cat/0.png", folder / "train/dog/1.png", folder / "val/cat/1.png"]
    broken[0].write_bytes(broken[0].read_bytes()[:60])
    broken[1].write_text("no image")
    broken[2].write_bytes(b"")
    with pytest.raises(SourceError, match="3 of 8 images cannot be used") as caught:
        pixels(folder)
    assert all(f"{file} cannot be read as an image" in str(caught.value) for file in broken)


def test_of_many_broken_files_ten_are_named_and_all_are_counted(folder):
    for number in range(30):
        (folder / f"train/cat/b{number:02}.png").write_text("no image")
    with pytest.raises(SourceError, match=r"30 of 38 images cannot be used.*; and 20 more") as caught:
        pixels(folder)
    assert str(caught.value).count("cannot be read") == 10


def test_an_image_of_too_many_pixels_is_named(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**6)
    Image.new("L", (2000, 1001)).save(folder / "train/cat/0.png")
    with pytest.raises(SourceError, match=r"cat/0\.png has more than 2 million pixels; make it smaller, or remove it"):
        pixels(folder)


def test_large_images_below_that_pass_without_a_warning(folder, monkeypatch, recwarn):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**6)
    Image.new("RGB", (1500, 1000)).save(folder / "train/cat/0.png")
    assert pixels(folder).shape == (8, 16, 16, 3)
    assert not [warning for warning in recwarn if "Decompression" in str(warning.message)]


@pytest.mark.parametrize("spoil", ["empty", "missing"])
def test_a_class_without_evaluation_images_trains_whether_its_folder_is_empty_or_missing(folder, spoil):
    (folder / "train/bird").mkdir()
    for image in range(2):
        Image.new("RGB", (32, 32), (99, 9 * image, 0)).save(folder / f"train/bird/{image}.png")
    if spoil == "empty":
        (folder / "val/bird").mkdir()
    found = read_images(task_of(folder), Data(), size=16)
    assert found.classes == ["bird", "cat", "dog"]
    assert np.bincount(found.labels[found.evaluation], minlength=3).tolist() == [0, 2, 2]


def test_copies_between_training_and_evaluation_are_counted(folder):
    (folder / "val/cat/copy.png").write_bytes((folder / "train/cat/1.png").read_bytes())
    assert load_task(task_of(folder), Data(), PREPROCESSOR, 0).facts.shared == 1


def test_an_evaluation_share_of_one_class_is_refused(folder):
    """One dog, which trains, and cats alone to evaluate."""
    (folder / "val").rename(folder / ".val")
    (folder / "train/dog/1.png").unlink()
    with pytest.raises(SourceError, match="all 1 are of class cat, which cannot judge a classifier"):
        load_task(task_of(folder), Data(), PREPROCESSOR, 0)
