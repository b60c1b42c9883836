"""Tables as other programs write them: a row is read as it stands there, or an error names its line."""

import csv
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgd.config.schema import Data, EmptyCells, Task
from dsgd.data.table import table_corpus
from dsgd.models.sources import SourceError


def task_of(path, **fields):
    return Task("csv", path=str(path), **{"text": ["text"], "label": "label", **fields})


@pytest.fixture
def read(tmp_path):
    """A function from a file's content to the corpus that it makes."""

    def make(content, name="t.csv", **fields):
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
        return table_corpus(task_of(tmp_path / name, **fields), Data())

    return make


def refused(read, content, *args, **fields):
    with pytest.raises(SourceError) as caught:
        read(content, *args, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


GLUE = (
    "sentence\tlabel\n" + '"I am fine, he said.\t1\nThe cat sat.\t0\nWe left early."\t1\n' + "Plain.\t0\nMore.\t1\n" * 3
)


def test_a_quote_that_swallows_rows_is_an_error_with_both_lines(read):
    message = refused(read, GLUE, "t.tsv", text=["sentence"])
    assert "lines 2 to 4 are read as one row" in message
    assert "line 2 looks like a row of its own" in message
    assert "task.quotes=false" in message


def test_quotes_can_be_plain_characters(read):
    found = read(GLUE, "t.tsv", text=["sentence"], quotes=False)
    assert len(found.labels) == 9
    assert found.fields["text0"][0] == '"I am fine, he said.'


def test_a_text_of_several_lines_stays_one_row(read):
    """Its lines have commas, and even the fields of a row, but no label."""
    found = read('text,label\n"Dear John,\nthanks, and\n\nbye",x\na,x\nb,y\nc,y\n')
    assert found.fields["text0"][0] == "Dear John,\nthanks, and\n\nbye"


def test_a_text_that_holds_rows_can_be_asked_for(read):
    content = 'text,label\n"it says:\na,x\nb,y",x\nc,x\nd,y\ne,y\n'
    assert "lines 2 to 4" in refused(read, content)
    assert read(content, quotes=True).fields["text0"][0] == "it says:\na,x\nb,y"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('text,label\na "b" c,x\n"open,y\nc,x\nd,y\n', "line 3: a quote opens here and is never closed"),
        ('text,label\na,x\n"so" he said,y\n', "line 3: ',' expected after"),
        ('text,label\n"a\nb" c,x\n', "lines 2 to 3: ',' expected after"),
        ("text,label\na,x\nb,nan\nc,y\nd,NaN\n", "column label is 'nan', as programs write where there is no label"),
        ("text,label\na,x\nb,null\nc,y\n", "in line 3; task.empty=drop leaves such rows out, and task.empty=keep"),
        ("text,label\n" + "a,\n" * 20 + "b,x\n", "is empty in lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 10 more"),
        ("text,label\na,tre\u0300s\nb,tr\u00e8s\n", r"'tre\u0300s' and 'tr\xe8s' are one label in two spellings"),
        ("text,label\na,x\n\0b,y\n", "line 3 holds a NUL character"),
        ("text,label\n\n\na,x\nb\n", "line 5 has 1 fields, the header 2"),
    ],
)
def test_what_would_be_misread_is_told_with_its_line(read, content, words):
    assert words in refused(read, content)


def test_empty_cells_can_be_dropped_or_kept(read):
    content = "text,other,label\na,,x\n,b,y\nc,d,\ne,f,x\ng,h,y\ni,j,nan\nm,n,x\n"
    fields = {"text": ["text", "other"]}
    assert "column text is empty in line 3" in refused(read, content.replace("c,d,\n", ""), **fields)
    dropped = read(content, **fields, empty=EmptyCells.drop)
    assert (dropped.fields["text0"], dropped.dropped, dropped.classes) == (["e", "g", "m"], 4, ["x", "y"])
    kept = read(content.replace("c,d,\n", "k,l,nan\n"), **fields, empty=EmptyCells.keep)
    assert kept.fields["text1"] == ["", "b", "l", "f", "h", "j", "n"]
    assert kept.classes == ["nan", "x", "y"]
    assert "column label is empty in line 4" in refused(read, content, **fields, empty=EmptyCells.keep)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[" * 100_000, "line 2 is nested too deep"),
        ('{"text": "a", "label": ' + "[" * 100_000, "line 2 is nested too deep"),
        ('{"text": "a", "text": "b", "label": 1}', "the key 'text' stands in it twice"),
        ('{"text": "a", "label": NaN}', "column label is empty in line 2"),
        ('{"text": "a", "label": null}', "column label is empty in line 2"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "line 2 is no JSON"),
    ],
)
def test_json_that_is_no_row_is_told_with_its_line(read, line, words):
    assert words in refused(read, '{"text": "a", "label": 1}\n' + line + "\n", "t.jsonl")


def test_columns_and_labels_are_compared_in_one_unicode_form(read, tmp_path):
    (tmp_path / "test.csv").write_text("te\u0301xte,label\nz,tre\u0300s\nw,peu\n")
    found = read(
        "t\u00e9xte,label\na,tr\u00e8s\nb,peu\n", text=["te\u0301xte"], evaluation_path=str(tmp_path / "test.csv")
    )
    assert found.classes == ["peu", "tr\u00e8s"]
    assert found.labels.tolist() == [1, 0, 1, 0]


def test_evaluation_rows_that_are_all_trained_on_are_refused(read, tmp_path):
    (tmp_path / "test.csv").write_text("text,label\nb,y\na,x\n")
    message = refused(read, "text,label\na,x\nb,y\nc,x\n", evaluation_path=str(tmp_path / "test.csv"))
    assert "every row is one that is trained on too" in message


# --- properties -----------------------------------------------------------------------------------------------------

#: Any character but NUL and halves of pairs; a text is not blank.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
ROWS = st.lists(st.tuples(TEXTS, st.sampled_from("xy")), max_size=8)

#: So that every class can be split, whatever is drawn.
FIRST = [(f"first {number}", label) for number in range(2) for label in "xy"]

FORMATS = ["csv", "crlf.csv", "tsv", "jsonl", "parquet"]


def write(path, rows):
    """``rows`` of texts and labels as the format's own library writes them."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]}), path)
    elif path.suffix == ".jsonl":
        lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
        path.write_text("\n".join(lines), encoding="utf-8", newline="")
    else:
        end = "\r\n" if path.name.startswith("crlf") else "\n"
        with path.open("w", encoding="utf-8", newline="") as file:
            separator = "\t" if path.suffix == ".tsv" else ","
            writer = csv.writer(file, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL)
            writer.writerows([("text", "label"), *rows])


def attempt(task):
    """The corpus, or None and the error's text."""
    try:
        return table_corpus(task, Data()), ""
    except SourceError as error:
        return None, str(error)


@settings(deadline=None, max_examples=150)
@given(rows=ROWS, name=st.sampled_from(FORMATS), quotes=st.sampled_from([None, True]))
def test_every_row_of_a_written_file_comes_back_or_an_error_names_its_line(rows, name, quotes):
    everything = FIRST + rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (name if "." in name else f"t.{name}")
        write(path, everything)
        found, message = attempt(task_of(path, quotes=quotes))
    if found is None:  # a text whose lines look like rows
        assert quotes is None
        assert "looks like a row of its own" in message
        return
    assert list(zip(found.fields["text0"], found.labels.tolist(), strict=True)) == [
        (text, "xy".index(label)) for text, label in everything
    ]
    assert sorted([*found.train, *found.evaluation]) == list(range(len(everything)))


#: As a person types them: quotes, commas and blanks are plain characters, lines are rows.
LINES = st.lists(st.tuples(st.text("a\"', ", min_size=1).filter(str.strip), st.sampled_from("xy")), max_size=6)


@settings(deadline=None, max_examples=300)
@given(lines=LINES)
def test_no_line_that_was_typed_is_swallowed(lines):
    """Rows of a tsv that quotes nothing: each is read, or an error names a line."""
    content = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in FIRST + lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.tsv"
        path.write_text(content)
        found, message = attempt(task_of(path))
        plain = table_corpus(task_of(path, quotes=False), Data())
    assert " line" in message if found is None else len(found.labels) == len(FIRST + lines)
    assert plain.fields["text0"] == [text for text, _ in FIRST + lines]


@settings(deadline=None, max_examples=150)
@given(content=st.binary(max_size=60), name=st.sampled_from(["t.csv", "t.tsv", "t.jsonl", "t.parquet"]))
def test_any_bytes_are_a_table_or_one_line(content, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with pytest.raises(SourceError) as caught:
            table_corpus(task_of(path), Data())
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
