"""LDAM's class counts, and the choice of rows."""

import hashlib
import struct

import numpy as np
import pytest

from dsgd.data.imbalance import class_counts, imbalanced_rows, rows_hash

LABELS = np.repeat(np.arange(4), 100)


@pytest.mark.parametrize(
    ("kind", "factor", "ten", "hundred"),
    [
        ("longtail", 0.01, 12406, 10847),
        ("longtail", 0.02, 13996, 12608),
        ("longtail", 0.5, 36223, 36029),
        ("step", 0.01, 25250, 25250),
        ("step", 0.02, 25500, 25500),
        ("step", 0.5, 37500, 37500),
    ],
)
def test_totals_of_imbalanced_cifar(kind, factor, ten, hundred):
    """METHODS 17 (3): CIFAR-10 has 5000 images a class, CIFAR-100 has 500; the totals are those of LDAM's own code."""
    assert sum(class_counts(kind, factor, 10, 5000)) == ten
    assert sum(class_counts(kind, factor, 100, 500)) == hundred


def test_counts_are_cut_off_and_not_rounded():
    """212 * 0.05^(c/4): 212, 100.25, 47.4, 22.4, 10.6."""
    assert class_counts("longtail", 0.05, 5, 212) == [212, 100, 47, 22, 10]


def test_floating_point_is_left_as_ldam_has_it():
    """100 * 0.29 is 28.999999999999996 in doubles, so the tail has 28 and not 29."""
    assert class_counts("step", 0.29, 2, 100) == [100, 28]


def test_the_odd_class_of_step_is_thinned_out():
    assert class_counts("step", 0.1, 5, 100) == [100, 100, 10, 10, 10]


@pytest.mark.parametrize("kind", ["longtail", "step", "none"])
def test_factor_one_keeps_the_maximum(kind):
    assert class_counts(kind, 1.0, 4, 100) == [100] * 4


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"task\.imbalance\.kind = exp: give none, longtail or step"):
        class_counts("exp", 0.1, 4, 100)


@pytest.mark.parametrize(("kind", "counts"), [("longtail", [100, 46, 21, 10]), ("step", [100, 100, 10, 10])])
def test_rows_follow_the_counts(kind, counts):
    """100 * 0.1^(c/3): 100, 46.4, 21.5, 10 (in doubles 100 * 0.1 is exact)."""
    rows = imbalanced_rows(LABELS, kind, 0.1, seed=0)
    assert np.bincount(LABELS[rows]).tolist() == counts
    assert rows.dtype == np.int64
    assert (np.diff(rows) > 0).all(), "sorted, none twice"


def test_none_keeps_every_row_of_uneven_classes():
    labels = np.array([0, 0, 0, 1])
    assert imbalanced_rows(labels, "none", 1.0, seed=0).tolist() == [0, 1, 2, 3]


def test_a_small_class_keeps_what_it_has():
    """N // K = 8 // 2 = 4: class 0 gives 4 of its 7 rows, class 1 the only one it has."""
    labels = np.array([0, 0, 0, 0, 0, 0, 0, 1])
    rows = imbalanced_rows(labels, "longtail", 1.0, seed=0)
    assert np.bincount(labels[rows]).tolist() == [4, 1]


def test_the_seed_decides_which_rows():
    first, again, other = (imbalanced_rows(LABELS, "longtail", 0.1, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(first) == len(other)


def test_a_smaller_factor_keeps_a_subset():
    """So that a sweep over factors takes examples away and exchanges none."""
    small, large = (set(imbalanced_rows(LABELS, "longtail", factor, seed=3)) for factor in (0.02, 0.2))
    assert small < large


def test_the_global_random_state_is_untouched():
    np.random.seed(0)
    expected = np.random.random(3)
    np.random.seed(0)
    imbalanced_rows(LABELS, "step", 0.1, seed=5)
    assert np.array_equal(np.random.random(3), expected)


def test_the_hash_is_of_little_endian_int64():
    expected = hashlib.sha256(struct.pack("<3q", 1, 2, 300)).hexdigest()[:16]
    for dtype in (np.int64, np.int32, ">i8"):
        assert rows_hash(np.array([1, 2, 300], dtype=dtype)) == expected
    assert rows_hash(np.array([1, 2, 301])) != expected


def test_pinned_choice():
    """The same rows on every machine and under every version of numpy that the suite runs on."""
    assert rows_hash(imbalanced_rows(LABELS, "longtail", 0.1, seed=0)) == "be21f27b85c56a08"
