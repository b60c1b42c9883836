"""A mirror that holds a part of a data set: other runs, under another name."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.data import sample_of
from dsgd.config.schema import Task

TASK = Task(name="toy", hub_id="team/toy", subset="plain", train_examples=5, evaluation_examples=2)


@pytest.fixture
def mirror(tmp_path):
    def write(train, evaluation):
        folder = tmp_path / "team/toy/plain"
        folder.mkdir(parents=True, exist_ok=True)
        for split, rows in (("train", train), ("validation", evaluation)):
            pq.write_table(pa.table({"label": list(range(rows))}), folder / f"{split}-00000-of-00001.parquet")
        return str(tmp_path)

    return write


def test_a_mirror_of_the_whole_is_no_sample(mirror):
    assert sample_of(TASK, mirror(5, 2)) is None


def test_a_part_says_how_many_rows(mirror):
    assert sample_of(TASK, mirror(4, 2)) == "4 + 2"


def test_rows_of_several_files_add_up(mirror):
    root = mirror(3, 2)
    folder = f"{root}/team/toy/plain"
    pq.write_table(pa.table({"label": [0, 1]}), f"{folder}/train-00001-of-00002.parquet")
    assert sample_of(TASK, root) is None


def test_the_hub_and_an_empty_mirror_are_no_samples(tmp_path):
    assert sample_of(TASK, None) is None
    assert sample_of(TASK, str(tmp_path)) is None


def test_a_run_on_a_part_has_another_id_and_name(tmp_path):
    folder = tmp_path / "uoft-cs/cifar10/plain_text"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        pq.write_table(pa.table({"label": [0, 1, 2]}), folder / f"{split}-00000-of-00001.parquet")
    whole, part = (expand(read_command(["task=cifar10", f"data.root={root}"]))[0] for root in ("null", tmp_path))
    assert whole.id != part.id
    assert whole.cell_id != part.cell_id
    assert (whole.config.task.shown, part.config.task.shown) == ("cifar10", "cifar10-sample")
    assert whole.label == part.label == "dsgd"
