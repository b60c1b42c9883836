"""Data sets of a mirror: what is read, and one error that says how to get what is not there."""

import pytest

from dsgd.config.schema import Data, Task
from dsgd.data.hub import read_split
from dsgd.models.sources import SourceError

TASK = Task(name="rte", hub_id="nyu-mll/glue", subset="rte", revision="0123abc")


@pytest.fixture
def root(mirror):
    rows = {"sentence1": ["It rains.", "It snows."], "sentence2": ["Wet.", "Dry."], "label": [0, 1], "idx": [0, 1]}
    mirror("nyu-mll/glue", "rte", train=rows, validation={name: column[:1] for name, column in rows.items()})
    return str(mirror.root)


def test_a_mirror_gives_the_columns_that_are_asked_for(root):
    """The revision is the hub's: a mirror has one."""
    train = read_split(TASK, Data(root), "train", ["label", "sentence2"])
    assert train.column_names == ["label", "sentence2"]
    assert train[:] == {"label": [0, 1], "sentence2": ["Wet.", "Dry."]}
    assert len(read_split(TASK, Data(root), "validation", ["label"])) == 1


def test_a_file_that_changes_is_read_again(root, mirror):
    """The library's cache must not outlive what it was made from."""
    before = read_split(TASK, Data(root), "train", ["sentence1"])["sentence1"][:]
    mirror("nyu-mll/glue", "rte", train={"sentence1": ["New."]})
    after = read_split(TASK, Data(root), "train", ["sentence1"])["sentence1"][:]
    assert (before, after) == (["It rains.", "It snows."], ["New."])


@pytest.mark.parametrize(
    ("task", "split", "columns", "words"),
    [
        (TASK, "train", ["premise"], ["split train: no column premise", "sentence1, sentence2, label, idx"]),
        (TASK, "test", ["label"], ["split test", "subset rte", "hf download nyu-mll/glue", "DSGD_DATA_ROOT"]),
        (
            Task("x", hub_id="nyu-mll/glue", subset="qnli"),
            "train",
            [],
            ["subset qnli", "holds no train-*.parquet; its splits: none"],
        ),
        (Task("x", hub_id="aps/none"), "train", [], ["no folder", "aps/none", "hf download aps/none --repo-type"]),
        (Task("x"), "train", [], ["task.hub_id = null"]),
    ],
)
def test_what_is_absent_is_one_error_that_says_how_to_get_it(root, task, split, columns, words):
    with pytest.raises(SourceError) as caught:
        read_split(task, Data(root), split, columns)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_broken_file_is_named(root, mirror):
    (file,) = mirror.root.rglob("train*.parquet")
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match="cannot read split train"):
        read_split(TASK, Data(root), "train", ["label"])
