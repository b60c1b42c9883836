import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.command import asked_for
from experiments.names import ensemble_title, method_title, task_title, variant_title
from experiments.tables import Entry, Table, escape, ranked, to_csv, to_latex, to_markdown, write

TABLE = Table(
    name="t",
    caption="50 % of R&D_1",
    head=["Method", "A|B"],
    groups=[[[Entry("fft[a_b=1]"), Entry("70.00 ± 1.00", "2/2", "best")]], [[Entry("x"), Entry("—", "0/2")]]],
    notes=["τ < 1"],
    records=[{"method": "fft", "mean": 70.0, "n": 2, "inside": True, "paper": None}],
)


def test_markdown_is_aligned_and_marks_the_best():
    assert to_markdown(TABLE) == (
        "**50 % of R&D_1**\n\n"
        "| Method     | A\\|B                 |\n"
        "|------------|----------------------|\n"
        "| fft[a_b=1] | **70.00 ± 1.00** 2/2 |\n"
        "| x          | — 0/2                |\n\n"
        "- τ < 1\n"
    )


def test_csv_leaves_empty_what_is_not_known():
    assert to_csv(TABLE) == "method,mean,n,inside,paper\nfft,70.0000,2,true,\n"
    assert next(csv.DictReader(io.StringIO(to_csv(TABLE))))["mean"] == "70.0000"


def test_latex_has_booktabs_rules_and_no_raw_special_characters():
    text = to_latex(TABLE)
    for expected in (
        r"\toprule",
        r"\bottomrule",
        r"\caption{50 \% of R\&D\_1}",
        r"fft[a\_b=1] & \textbf{70.00 $\pm$ 1.00} {\scriptsize 2/2} \\",
        r"x & --- {\scriptsize 0/2} \\",
        r"$\tau$ $<$ 1",
    ):
        assert expected in text
    assert text.count(r"\midrule") == 2
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("character", "&%$#_{}~^\\")
def test_special_characters_are_escaped(character):
    assert escape(character) != character
    assert escape(character).startswith("\\")


def test_best_and_second_share_their_places_with_equals():
    """80.001 and 79.999 print alike, so both are best; the next distinct value is second."""
    assert ranked([80.001, 79.999, 70.0, None, 60.0]) == ["best", "best", "second", "", ""]
    assert ranked([1.0, 2.0]) == ["second", "best"]


def test_one_value_alone_is_no_best():
    assert ranked([80.0, None]) == ["", ""]
    assert ranked([None, None]) == ["", ""]


def test_all_three_forms_are_written(tmp_path):
    assert [path.name for path in write(TABLE, tmp_path / "out")] == ["t.md", "t.csv", "t.tex"]
    assert (tmp_path / "out" / "t.md").read_text() == to_markdown(TABLE)


def test_names_are_written_as_the_paper_writes_them():
    assert method_title("dsgd[tau=0.5]") == "DSGD[tau=0.5]"
    assert method_title("dsgd+lora") == "DSGD+lora"
    assert method_title("unknown") == "unknown"
    assert task_title("mrpc+rte") == "MRPC + RTE"
    assert task_title("cifar10_longtail_100") == "CIFAR-10 long-tailed 100:1"
    assert task_title("bbc_news") == "BBC News"
    assert task_title("cifar10_longtail_100-sample") == "CIFAR-10 long-tailed 100:1 (sample)"
    assert variant_title("swa", "swa3") == "SWA (k=3)"
    assert [ensemble_title("fft", 3), ensemble_title("dsgd", 9)] == ["ENS (×3)", "DSGD (×9)"]


@pytest.mark.parametrize("text", ["=cmd|'/c calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_csv_is_a_formula(text):
    (row,) = csv.DictReader(io.StringIO(to_csv(replace(TABLE, records=[{"method": text, "mean": -1.5}]))))
    assert row == {"method": f"'{text}", "mean": "-1.5000"}


def test_no_cell_of_markdown_is_html_or_more_than_one_cell():
    cell = Entry("<script>alert(1)</script>", "a|b\nc < d", "second")
    lines = to_markdown(replace(TABLE, groups=[[[cell, Entry("<b>")]]], notes=["<i>", "`x <y>`"])).splitlines()
    assert lines[4] == r"| <u>&lt;script>alert(1)&lt;/script></u> a\|b c < d | &lt;b> |"
    assert lines[-2:] == ["- &lt;i>", "- `x <y>`"]


def test_a_table_of_many_overrides_has_a_name_that_a_file_can_have():
    long = [f"trainer.very_long_name_{number}={'x' * 60}" for number in range(13)]
    one, other = (asked_for("table1", "table1", "table1", Path(), words).name for words in (long, long[1:]))
    assert len(one) <= 200
    assert one != other
    assert asked_for("table1", "table1", "table1", Path(), ["seed=1"]).name == "table1-seed=1"
