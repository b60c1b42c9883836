"""A file of one's own in the configuration: what is seen before loading, and what makes two command lines one run."""

import re

import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.contents import safe_title
from dsgd.config.data import column_names
from dsgd.config.files import digest
from dsgd.config.identity import changed_keys
from dsgd.config.messages import ConfigErrors


@pytest.fixture
def reviews(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text("review,stars\ngood,5\nbad,1\ngreat,5\n")
    return file


def run(*arguments):
    (found,) = expand(read_command(["method=fft", *arguments]))
    return found


def of(file, *arguments):
    return run("task=csv", f"task.path={file}", "task.text=[review]", "task.label=stars", *arguments)


def problem(*arguments):
    with pytest.raises(ConfigErrors) as caught:
        run("task=csv", *arguments)
    return "\n".join(caught.value.problems)


def test_a_file_that_moves_is_the_same_run(reviews, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    moved = reviews.rename(tmp_path / "elsewhere/other.csv")
    (tmp_path / "reviews.csv").write_bytes(moved.read_bytes())
    assert of(moved).id == of(tmp_path / "reviews.csv").id
    assert of(moved).config.task.shown == f"other-{of(moved).config.task.fingerprint[:6]}"


def test_a_file_that_is_edited_is_another_run(reviews):
    before = of(reviews)
    reviews.write_text(reviews.read_text() + "dull,1\n")
    assert of(reviews).id != before.id
    assert of(reviews).cell_id != before.cell_id
    assert of(reviews).label == before.label, "the content is no setting"


def test_the_file_to_evaluate_on_is_part_of_it(reviews, tmp_path):
    test = tmp_path / "test.csv"
    test.write_text("review,stars\nfine,5\n")
    first = of(reviews, f"task.evaluation_path={test}")
    assert first.id != of(reviews).id
    assert first.id == of(reviews, f"task.evaluation_path={test}", "task.split_seed=3").id, "nothing is set aside"
    test.write_text("review,stars\nfine,1\n")
    assert of(reviews, f"task.evaluation_path={test}").id != first.id


def test_what_is_set_aside_is_part_of_it(reviews):
    assert of(reviews, "task.split_seed=3").cell_id != of(reviews).cell_id
    assert run("task=rte", "task.split_seed=3").id == run("task=rte").id


def test_the_label_says_what_was_chosen_of_the_file(reviews):
    assert of(reviews).label == "fft[text=[review],label=stars]"
    assert of(reviews, "task.split_seed=3").label == "fft[text=[review],label=stars,split_seed=3]"


def test_tasks_without_a_file_know_nothing_of_this():
    assert not [key for key in changed_keys(run().config) if "fingerprint" in key or "text" in key or "split" in key]
    assert run().config.task.shown == "bbc_news"


def test_a_column_that_is_absent_is_named_with_the_nearest(reviews):
    found = problem(f"task.path={reviews}", "task.text=[reviews]", "task.label=star")
    assert (
        "task.text = reviews: reviews.csv: no column reviews; the columns are review, stars (did you mean review?)"
        in found
    )
    assert (
        "task.label = star: reviews.csv: no column star; the columns are review, stars (did you mean stars?)" in found
    )


def test_a_file_is_needed():
    assert "task.path = null: give a file that ends in .csv, .tsv, .jsonl, .parquet" in problem()


def test_one_text_or_two(reviews):
    given = (f"task.path={reviews}", "task.label=stars")
    assert "task.text = []: give one column of texts, or two" in problem(*given, "task.text=[]")
    assert "task.text" in problem(*given, "task.text=[review,stars,review]")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, "no such file"),
        ("a.xlsx", b"x", "give a file that ends in .csv"),
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"caf\xe9,label\n", "is not UTF-8 (byte 0xe9, number 4)"),
        ("a.jsonl", b"[1, 2]\n", "is no jsonl: its first line is no object"),
        ("a.jsonl", b"text,label\n", "is no jsonl"),
        ("a.parquet", b"text,label\n", "is no parquet"),
        ("folder", "folder", "task=image_folder"),
    ],
)
def test_what_is_no_table_is_refused_before_anything_is_loaded(tmp_path, name, content, words):
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    found = problem(f"task.path={path}")
    assert found.startswith(f"task.path = {path}: ")
    assert words in found


def test_only_the_columns_that_are_asked_for_must_be_unique(tmp_path):
    """Excel leaves columns without a name."""
    file = tmp_path / "a.csv"
    file.write_text("text,label,,\na,x,,\nb,y,,\n")
    assert run("task=csv", f"task.path={file}")
    file.write_text("text,label,text\na,x,b\n")
    assert "task.text = text: a.csv: several columns are called text: 1, 3" in problem(f"task.path={file}")


def test_a_quoted_header_may_hold_anything(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('\ufeff"a, b","c\nd"\n1,2\n', encoding="utf-8")
    assert column_names(file) == ["a, b", "c\nd"]


def test_a_digest_is_of_content_and_inside_a_folder_of_names(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "cat").mkdir(parents=True)
        (folder / "cat/1.png").write_bytes(b"x")
    assert digest(str(one)) == digest(str(two))
    (two / "cat/1.png").rename(two / "cat/2.png")
    assert digest(str(one)) != digest(str(two))
    assert digest(None) is None
    assert len(digest(str(one))) == 16


@pytest.mark.parametrize(
    ("name", "shown"),
    [("My reviews", "My reviews"), ("..", "unnamed"), (".hidden", "hidden"), ("a|b\nc", "a_b_c"), ("", "unnamed")],
)
def test_a_file_s_name_is_made_safe(name, shown):
    """``...csv`` has the stem ``..``, which as a folder's name would leave the results folder."""
    assert safe_title(name) == shown


@pytest.mark.parametrize(("name", "form"), [("rte", "flat"), ("bbc_news", "multiple_choice"), ("copa", "single")])
def test_a_form_that_the_task_has_not_is_refused(name, form):
    with pytest.raises(ConfigErrors, match=rf"task\.form = {form}: with task={name} give"):
        run(f"task={name}", f"task.form={form}")


def test_a_mirror_is_looked_at_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigErrors, match=r"data\.root = .*nowhere: no such folder"):
        run("task=rte", f"data.root={tmp_path}/nowhere")
    with pytest.raises(ConfigErrors, match=r"no folder nyu-mll/glue in it; `hf download nyu-mll/glue"):
        run("task=rte", f"data.root={tmp_path}")
    assert run("task=bbc_news", f"data.root={tmp_path}/nowhere"), "which reads nothing of the hub"


def test_a_variable_names_the_mirror(tmp_path, monkeypatch):
    (tmp_path / "nyu-mll/glue").mkdir(parents=True)
    monkeypatch.setenv("DSGD_DATA_ROOT", str(tmp_path))
    assert run("task=rte", "task.max_length=500").config.data.root == str(tmp_path)


def test_what_is_trained_on_is_not_evaluated_on(reviews):
    """The score would say how much was learned by heart."""
    arguments = (f"task.path={reviews}", "task.text=[review]", "task.label=stars")
    assert "task.evaluation_path" in problem(*arguments, f"task.evaluation_path={reviews}")
    with pytest.raises(ConfigErrors, match=r"task\.evaluation_split = train"):
        run("task=rte", "task.evaluation_split=train")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"PAR1\xa4", "is a Parquet file; rename it"),
        ("a.csv", b"PK\x03\x04text,label", "Excel workbook; save its table as CSV"),
        ("a.jsonl", b"\x1f\x8b\x08", "gunzip it"),
        ("a.csv", b"text , label\na,b\n", "the columns are 'text ', ' label'"),
    ],
)
def test_a_file_of_another_format_or_with_blanks_in_its_head_is_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigErrors, match=re.escape(words)):
        run("task=csv", f"task.path={tmp_path / name}", "task.text=[text]", "task.label=label")
