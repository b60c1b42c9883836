"""Image sets: scikit-learn's digits, the hub's CIFAR and folders of one's own, and what is told when they are wrong."""

import os
from io import BytesIO

import datasets
import numpy as np
import pytest
from PIL import Image

from dsgd.config.schema import Augmentation, Data, Imbalance, ImbalanceKind, Modality, Shots, Task
from dsgd.data import load_task
from dsgd.data.image_sources import digits, read_images
from dsgd.data.imbalance import class_counts
from dsgd.data.splits import stratified_shares
from dsgd.evaluation import Predictions
from dsgd.models.sources import SourceError
from dsgd.models.vision import ImagePreprocessor

PREPROCESSOR = ImagePreprocessor(16, 3, (0.5,) * 3, (0.5,) * 3, "bicubic")
CIFAR = Task("cifar10", modality=Modality.image, hub_id="uoft-cs/cifar10", subset="plain_text", evaluation_split="test")


@pytest.fixture(autouse=True)
def _own_caches(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path / "cache"))


def plain(value, side=32, mode="RGB"):
    return Image.new(mode, (side, side), (value,) * len(mode) if len(mode) > 1 else value)


def png(image):
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


# --- digits ---------------------------------------------------------------------------------------------------------


def test_digits_are_two_stratified_halves_of_real_images():
    found = digits()
    assert found.pixels.shape == (1797, 8, 8, 1)
    assert (found.pixels.min(), found.pixels.max()) == (0, 255)
    train, evaluation = (np.bincount(found.labels[rows]) for rows in (found.train, found.evaluation))
    assert ((train - evaluation >= 0) & (train - evaluation <= 1)).all()
    assert len(np.union1d(found.train, found.evaluation)) == 1797
    assert found.classes == list("0123456789")


def test_digits_can_be_thinned_out():
    """901 // 10 = 90 at most, and 90 · 0.1^(c/9) cut off; there are 89 zeros."""
    task = Task("digits", modality=Modality.image, package="sklearn", imbalance=Imbalance(ImbalanceKind.longtail, 0.1))
    loaded = load_task(task, Data(), PREPROCESSOR, subset_seed=0)
    assert loaded.class_counts == [89, 69, 53, 41, 32, 25, 19, 15, 11, 9]
    assert (loaded.pool_size, len(loaded.evaluation)) == (901, 896)


# --- the hub --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cifar(mirror):
    """Six training images, grey value 10 · row, and two to evaluate."""
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    for split, values in (("train", range(0, 60, 10)), ("test", (200, 210))):
        mirror("uoft-cs/cifar10", "plain_text", **{split: {"label": [0]}})
        rows = {"img": [{"bytes": png(plain(value)), "path": None} for value in values]}
        rows["label"] = [row % 2 for row in range(len(values))]
        (file,) = mirror.root.rglob(f"{split}*.parquet")
        datasets.Dataset.from_dict(rows, features=features).to_parquet(file)
    return Data(str(mirror.root))


def test_images_of_a_mirror_are_read_with_their_labels_and_class_names(cifar):
    found = read_images(CIFAR, cifar, size=224)
    assert found.pixels.shape == (8, 32, 32, 3)
    assert found.pixels[:, 5, 7, 1].tolist() == [0, 10, 20, 30, 40, 50, 200, 210]
    assert found.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert (found.train.tolist(), found.evaluation.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7])
    assert found.classes == ["cat", "dog"]


def test_augmentation_is_the_task_s(cifar):
    plain_task = load_task(CIFAR, cifar, PREPROCESSOR, subset_seed=0)
    assert not plain_task.train.crop_flip
    augmented = Task(**{**vars(CIFAR), "augmentation": Augmentation.crop_flip})
    assert load_task(augmented, cifar, PREPROCESSOR, subset_seed=0).train.crop_flip


def test_absent_images_are_one_error(tmp_path):
    with pytest.raises(SourceError, match="hf download uoft-cs/cifar10"):
        read_images(CIFAR, Data(str(tmp_path)), size=32)


@pytest.mark.skipif("DSGD_DATA_ROOT" not in os.environ, reason="DSGD_DATA_ROOT names no mirror of the hub")
def test_the_long_tail_of_real_cifar_follows_the_formula_on_its_pool():
    """Of the sample of 1000 images a class as of the whole set of 5000."""
    task = Task(**{**vars(CIFAR), "imbalance": Imbalance(ImbalanceKind.longtail, 0.01), "shots": Shots(500, 100)})
    loaded = load_task(task, Data(os.environ["DSGD_DATA_ROOT"]), PREPROCESSOR, subset_seed=0)
    assert loaded.class_counts == class_counts("longtail", 0.01, 10, loaded.pool_size // 10)
    assert loaded.classes[:3] == ["airplane", "automobile", "bird"]
    assert loaded.train.pixels.shape[1:] == (32, 32, 3)


def test_accuracy_is_told_apart_by_the_training_examples_of_a_class(cifar):
    """Three cats and three dogs; 'few' is below 4. Cats are all right, dogs wrong."""
    task = Task(**{**vars(CIFAR), "shots": Shots(many=5, few=4)})
    loaded = load_task(task, cifar, PREPROCESSOR, subset_seed=0)
    scores = np.array([[1, 0], [1, 0]], dtype=np.float32)
    predictions = Predictions(np.arange(2), np.array([0, 1]), scores, loaded.classes)
    assert loaded.score(predictions) == {"accuracy_few": 0.5}


# --- folders --------------------------------------------------------------------------------------------------------


def folder_task(path, **fields):
    return Task("image_folder", modality=Modality.image, path=str(path), **fields)


def fill(root, **classes):
    """``fill(root / "train", cat=[10, 20])``: a class of two plain images of these grey values."""
    for name, values in classes.items():
        (root / name).mkdir(parents=True)
        for number, value in enumerate(values):
            plain(value).save(root / name / f"{number}.png")


def test_a_folder_s_classes_are_its_subfolders(tmp_path):
    fill(tmp_path / "train", dog=[30, 40], cat=[10, 20])
    fill(tmp_path / "val", cat=[50], dog=[60])
    found = read_images(folder_task(tmp_path), Data(), size=16)
    assert found.classes == ["cat", "dog"]
    assert found.pixels[:, 0, 0, 0].tolist() == [10, 20, 30, 40, 50, 60]
    assert found.labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert (found.train.tolist(), found.evaluation.tolist()) == ([0, 1, 2, 3], [4, 5])


def test_without_an_evaluation_folder_a_share_is_set_aside_by_its_seed(tmp_path):
    """0.25 of 8 and of 4."""
    fill(tmp_path / "train", cat=range(8), dog=range(4))
    found = read_images(folder_task(tmp_path, evaluation_share=0.25), Data(), size=16)
    assert np.bincount(found.labels[found.evaluation]).tolist() == [2, 1]
    assert sorted([*found.train, *found.evaluation]) == list(range(12))
    other = read_images(folder_task(tmp_path, evaluation_share=0.25, split_seed=1), Data(), size=16)
    assert found.evaluation.tolist() != other.evaluation.tolist()


def test_images_of_many_sizes_and_modes_are_cut_to_their_middle_square(tmp_path):
    """The left half red, the right half green: the middle square of 60 by 20 has both, from column 20 to 40."""
    fill(tmp_path / "train", cat=[10], dog=[10])
    wide = Image.new("RGB", (60, 20), (255, 0, 0))
    wide.paste((0, 255, 0), (30, 0, 60, 20))
    wide.save(tmp_path / "train" / "cat" / "wide.png")
    plain(99, mode="L").save(tmp_path / "train" / "dog" / "grey.png")
    found = read_images(folder_task(tmp_path), Data(), size=20)
    assert found.pixels.shape == (4, 20, 20, 3)
    assert found.pixels[1, 10, [0, 19]].tolist() == [[255, 0, 0], [0, 255, 0]]
    assert found.pixels[3, 3, 3].tolist() == [99] * 3


def test_grey_levels_of_16_bits_are_brought_to_8(tmp_path):
    """257 · 9 of 65535 is 9 of 255; beside 8-bit grey images they stay grey."""
    fill(tmp_path / "train", cat=[], dog=[])
    deep = Image.fromarray(np.full((32, 32), 257 * 9, dtype=np.uint16))
    deep.save(tmp_path / "train" / "cat" / "deep.png")
    for name, value in (("cat", 7), ("dog", 8), ("dog", 9)):
        plain(value, mode="L").save(tmp_path / "train" / name / f"{value}.png")
    pixels = read_images(folder_task(tmp_path), Data(), size=16).pixels
    assert pixels.shape == (4, 32, 32, 1)
    assert pixels[:, 0, 0, 0].tolist() == [7, 9, 8, 9]


def test_images_in_folders_of_a_class_count_and_hidden_ones_do_not(tmp_path):
    fill(tmp_path / "train", cat=[1, 2], dog=[3, 4])
    fill(tmp_path / "train" / "dog", more=[5], **{".hidden": [6]})
    fill(tmp_path, **{".cache": [7]})
    assert read_images(folder_task(tmp_path), Data(), size=16).pixels[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]


def test_copies_of_an_image_stay_on_one_side(tmp_path):
    """Each of 6 images in two classes twice: one of three, twice, evaluates."""
    fill(tmp_path / "train", cat=[1, 2, 3] * 2, dog=[4, 5, 6] * 2)
    found = read_images(folder_task(tmp_path, evaluation_share=0.3), Data(), size=16)
    train, evaluation = (set(found.pixels[rows, 0, 0, 0]) for rows in (found.train, found.evaluation))
    assert not train & evaluation
    assert np.bincount(found.labels[found.evaluation]).tolist() == [2, 2]


def test_grey_images_stay_grey(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in (0, 1):
            plain(7 + number, mode="L").save(tmp_path / "train" / name / f"{number}.png")
    assert read_images(folder_task(tmp_path), Data(), size=16).pixels.shape == (4, 32, 32, 1)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda root: (root / "train").rename(root / "training"), "no folder"),
        (lambda root: [f.unlink() for f in (root / "train" / "dog").iterdir()], "no images of dog"),
        (lambda root: (root / "train" / "dog").rename(root / "dog"), "1 class folder"),
        (lambda root: fill(root / "test", bird=[1]), "training never sees: bird"),
        (
            lambda root: fill(root / "valid", cat=[5], dog=[6]),
            "has valid beside train; .* one of val, validation, test",
        ),
        (lambda root: [f.unlink() for f in root.rglob("1.png")], "each class has one example.*/val"),
        (lambda root: plain(1, mode="F").save(root / "train" / "dog" / "f.tiff"), "f.tiff has grey levels of no known"),
        (lambda root: (root / "train" / "dog" / "1.png").write_text("no image"), "dog/1.png cannot be read"),
        (lambda root: (root / "train" / "dog" / "1.png").write_bytes(png(plain(3))[:60]), "dog/1.png cannot be read"),
    ],
)
def test_a_folder_that_cannot_serve_is_refused_with_the_reason(tmp_path, spoil, words):
    fill(tmp_path / "train", cat=[1, 2], dog=[3, 4])
    spoil(tmp_path)
    with pytest.raises(SourceError, match=words):
        read_images(folder_task(tmp_path), Data(), size=16)


def test_images_are_decoded_once(tmp_path, monkeypatch):
    """The same bytes in another place are found again, and an edited image is not."""
    fill(tmp_path / "a" / "train", cat=[1, 2], dog=[3, 4])
    first = read_images(folder_task(tmp_path / "a"), Data(), size=16).pixels
    (tmp_path / "a").rename(tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr("dsgd.data.decoding._decode", None)
        again = read_images(folder_task(tmp_path / "b"), Data(), size=16).pixels
    assert np.array_equal(first, again)
    plain(9).save(tmp_path / "b" / "train" / "cat" / "0.png")
    assert read_images(folder_task(tmp_path / "b"), Data(), size=16).pixels[0, 0, 0, 0] == 9


def test_shares_leave_one_example_on_each_side():
    """0.01 of 3 rounds to none, and 0.99 to all."""
    labels = np.array([0, 0, 0, 1, 1])
    for share, expected in ((0.01, [1, 1]), (0.99, [2, 1])):
        train, evaluation = stratified_shares(labels, range(5), share, seed=0)
        assert np.bincount(labels[evaluation]).tolist() == expected
        assert sorted([*train, *evaluation]) == [0, 1, 2, 3, 4]
    train, _ = stratified_shares(np.array([0, 0, 1]), range(3), 0.5, seed=0)
    assert 2 in train, "a class of one example trains"
    with pytest.raises(SourceError, match="each class has one example"):
        stratified_shares(np.array([0, 1]), range(2), 0.5, seed=0)
