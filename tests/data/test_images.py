"""Images as bytes: batches, and random crops and mirror images."""

import numpy as np
import pytest
import torch

from dsgd.data.images import Images, cropped_and_flipped


class Drawn:
    """A generator whose draws are given: for each image top, left and whether it is mirrored (below a half)."""

    def __init__(self, *draws):
        self.draws = np.array(draws)

    def random(self, shape):
        assert self.draws.shape == shape
        return self.draws


def numbered(count=1, side=8, channels=1):
    """Images whose bytes are all different where there are no more than 255 of them, and never 0."""
    values = 1 + np.arange(count * side * side * channels) % 255
    return values.reshape(count, side, side, channels).astype(np.uint8)


@pytest.fixture
def images():
    """Six images of a source of seven, of which the third is in another split."""
    labels, index = np.array([0, 1, 0, 1, 2, 2]), np.array([0, 1, 3, 4, 5, 6])
    return Images(labels, index, index, numbered(7, channels=3), crop_flip=True)


def test_a_batch_is_the_bytes_and_labels_of_its_rows(images):
    batch = images.batch(np.array([2, 0]))
    assert batch.inputs["pixels"].dtype == torch.uint8
    assert np.array_equal(batch.inputs["pixels"].numpy(), images.pixels[[3, 0]])
    assert batch.labels.tolist() == [0, 0]


def test_taking_rows_keeps_each_image_with_its_label_and_number(images):
    taken = images.take(np.array([5, 1])).take(np.array([1]))
    assert (len(taken), taken.labels.tolist(), taken.index.tolist(), taken.lengths.tolist()) == (1, [1], [1], [1])
    assert np.array_equal(taken.batch(np.array([0])).inputs["pixels"].numpy(), images.pixels[[1]])


def test_a_batch_is_a_copy(images):
    """Pixels may be a read-only file, and what a batch becomes must not reach them."""
    images.pixels.flags.writeable = False
    images.batch(np.array([0])).inputs["pixels"].zero_()
    assert images.pixels[0, 0, 0, 0] == 1


def test_evaluation_batches_are_not_augmented(images):
    rows = np.arange(6)
    assert np.array_equal(images.batch(rows, None).inputs["pixels"].numpy(), images.pixels[images.index])
    augmented = images.batch(rows, np.random.default_rng(0)).inputs["pixels"].numpy()
    assert not np.array_equal(augmented, images.pixels[images.index])


def test_a_crop_in_the_middle_is_the_image_and_its_mirror_image():
    """8 pixels are padded by 1, so places are 0, 1, 2; ⌊0.5 · 3⌋ = 1 is the middle."""
    images = numbered(2)
    plain, mirrored = cropped_and_flipped(images, Drawn([0.5, 0.5, 0.9], [0.5, 0.5, 0.1]))
    assert np.array_equal(plain, images[0])
    assert np.array_equal(mirrored, images[1][:, ::-1])


def test_a_crop_in_a_corner_moves_the_image_by_the_padding():
    """32 pixels are padded by 4, so places are 0 to 8: ⌊0 · 9⌋ = 0 shows 4 black rows and ⌊0.99 · 9⌋ = 8 lacks 4."""
    image = numbered(side=32)
    (cropped,) = cropped_and_flipped(image, Drawn([0.0, 0.99, 0.9]))
    assert not cropped[:4].any()
    assert not cropped[:, 28:].any()
    assert np.array_equal(cropped[4:, :28], image[0, :28, 4:])


def test_every_place_and_both_mirror_images_are_equally_likely():
    """One lit pixel shows the place. Column 15 mirrored is 16, so columns 11 to 20 are lit, each end by one side only.

    4000/9 = 444 images a row, with a deviation of 20: within a fifth is within 4 deviations.
    """
    image = np.zeros((1, 32, 32, 1), dtype=np.uint8)
    image[0, 16, 15] = 1
    found = cropped_and_flipped(np.repeat(image, 4000, axis=0), np.random.default_rng(0))
    _, rows, columns, _ = np.nonzero(found)
    assert len(rows) == 4000
    assert (set(rows.tolist()), set(columns.tolist())) == (set(range(12, 21)), set(range(11, 21)))
    _, by_row = np.unique(rows, return_counts=True)
    assert 4000 / 9 * 0.8 < by_row.min() <= by_row.max() < 4000 / 9 * 1.2
    _, by_column = np.unique(columns, return_counts=True)
    assert by_column[[0, -1]] == pytest.approx([4000 / 18] * 2, rel=0.25)
    assert by_column[1:-1] == pytest.approx([4000 / 9] * 8, rel=0.2)


def test_micro_batches_are_changed_as_their_whole(images):
    """An image draws three numbers, wherever its window is cut."""
    whole = images.batch(np.arange(6), np.random.default_rng(3)).inputs["pixels"]
    generator = np.random.default_rng(3)
    parts = [images.batch(rows, generator).inputs["pixels"] for rows in np.split(np.arange(6), [2, 5])]
    assert torch.equal(whole, torch.cat(parts))
