import dataclasses
import math
import subprocess
import sys
import time

import pytest
from make_runs import RESULTS, planned

from dsgd.runs import RunFolder
from experiments import command, labels, table1
from experiments.cells import Cell, Row, columns_of, rows_of
from experiments.collect import SURROUNDINGS, collect, gather
from experiments.comparison import comparison
from experiments.printed import Place, Printed
from experiments.tables import to_markdown
from shared import ROOT

PRINTED = Printed(74.0, 15.0)


def text_of(frame, printed=None):
    return to_markdown(comparison("t", "Table 9. A test.", frame, printed or {}))


def test_a_cell_counts_what_was_planned_and_spreads_by_n_minus_one():
    """70 and 80: mean 75, deviation √(25 + 25) = 7.0711, the paper's 74 one point below."""
    cell = Cell(planned=4, accuracies=(70.0, 80.0), statuses=("successful", "degenerate"), failed=2, printed=PRINTED)
    assert (cell.n, cell.mean, cell.std) == (2, 75.0, pytest.approx(50**0.5))
    assert (cell.difference, cell.count("degenerate")) == (1.0, 1)


def test_fewer_than_six_runs_give_no_verdict():
    """Five equal ones would give an interval of no width, which holds nothing but their value."""
    assert Cell(planned=5, accuracies=(70.0,) * 5, printed=PRINTED).holds_printed is None
    assert Cell(planned=6, accuracies=(70.0,) * 6, printed=PRINTED).holds_printed is False
    assert Cell(planned=6, accuracies=(60.0, 70.0, 72.0, 75.0, 80.0, 90.0), printed=PRINTED).holds_printed is True


def test_what_rounds_to_the_printed_value_holds_it():
    """Collapsed on BoolQ: 2033 of 3270 are 62.1713 %, of which the paper prints 62.17."""
    collapsed = (100 * 2033 / 3270,) * 10
    assert Cell(planned=10, accuracies=collapsed, printed=Printed(62.17, 0.0)).holds_printed is True
    assert Cell(planned=10, accuracies=collapsed, printed=Printed(62.18, 0.0)).holds_printed is False


def test_one_run_has_no_spread_and_no_verdict():
    cell = Cell(planned=2, accuracies=(70.0,), statuses=("successful",), missing=1, printed=PRINTED)
    assert (cell.std, cell.holds_printed) == (None, None)
    assert math.isnan(cell.interval.low)


def test_an_average_needs_every_task():
    full, empty = Cell(planned=2, accuracies=(70.0, 80.0)), Cell(planned=2, missing=2)
    assert Row("m", "fft", (full, full)).average == (75.0, pytest.approx(50**0.5))
    assert Row("m", "fft", (full, empty)).average == (None, None)


def test_a_changed_key_makes_another_row(tmp_path):
    """τ, and any other key: the default's runs stay alone, and only the default is held against the paper."""
    frame = collect("laptop/smoke", tmp_path, ("method=dsgd", "schedule.tau=1,0.5", "seed=42,52"))
    rows = rows_of(frame, columns_of(frame), {Place("minilm", "dsgd", 1, "bbc_news"): PRINTED})
    assert [(row.label, row.cells[0].planned, row.cells[0].printed) for row in rows] == [
        ("dsgd", 2, PRINTED),
        ("dsgd[tau=0.5]", 2, None),
    ]


def test_what_all_methods_of_a_task_share_is_told_below_and_not_in_every_row(tmp_path):
    """A shrunk experiment: its methods keep their names, and are not held against the paper's all the same."""
    frame = collect("laptop/smoke", tmp_path, ("trainer.max_steps=9", "schedule.tau=1,0.5"))
    text = text_of(frame, {Place("minilm", "dsgd", 1, "bbc_news"): PRINTED})
    assert [line.split("|")[2].strip() for line in text.splitlines()[4:7]] == ["FFT", "DSGD", "DSGD[tau=0.5]"]
    assert "Every run of MiniLM on BBC News has trainer.max_steps=9." in text
    assert str(PRINTED) not in text


def test_labels_are_taken_apart_at_their_settings_alone():
    assert labels.parse("dsgd+lora[tau=0.5,steps=[20, 40],r=4]") == ("dsgd+lora", ("tau=0.5", "steps=[20, 40]", "r=4"))
    assert labels.without("fft[a=1,b=2]", ["a=1"]) == "fft[b=2]"
    assert labels.without("fft[a=1]", ["a=1"]) == "fft"


def test_runs_of_two_cells_are_not_pooled_under_one_label():
    """Should a label ever hide a difference, the identity still tells the cells apart."""
    runs = [run for run in planned("table2") if run.method == "fft" and run.task == "cifar10_step_2"]
    frame = gather([runs[0], dataclasses.replace(runs[1], cell_id="other")], RESULTS)
    rows = rows_of(frame, columns_of(frame), {})
    assert [(row.label, row.cells[0].planned) for row in rows] == [("fft", 1), ("fft (cell other)", 1)]


def test_failed_and_missing_runs_are_told_not_dropped(tmp_path):
    fine, failed = planned("table2")[:2]
    RunFolder(tmp_path / fine.folder).mark_finished({"accuracy": 0.75, "status": "successful"})
    RunFolder(tmp_path / failed.folder).mark_failed("killed by signal 9")
    missing = dataclasses.replace(fine, id="0000000000", seed=62)
    text = text_of(gather([fine, failed, missing], tmp_path))
    assert "75.00 ± — 1/3, 1f 1m" in text
    assert "Failed: ViT-base, FFT, CIFAR-10 long-tailed 100:1, seed 52: killed by signal 9." in text


@pytest.mark.parametrize("column", SURROUNDINGS[:3])
def test_mixed_surroundings_get_a_footnote(column, tmp_path):
    for run, value in zip(planned("table2")[:2], ("a", "b"), strict=True):
        row = {"accuracy": 0.75, "status": "successful", column: value}
        RunFolder(tmp_path / run.folder).mark_finished(row)
    text = text_of(gather(planned("table2")[:2], tmp_path))
    assert "75.00 ± 0.00† 2/2" in text
    assert f"mixes runs of {column} a, b" in text


def test_the_papers_row_gives_difference_and_verdict():
    """FFT's six runs are 62.5, 67.5, 75, 75, 80 and 82.5: 73.75 on average, and 88.47 lies outside, 14.72 above."""
    frame = gather(planned("table2"), RESULTS)
    printed = {Place("vit_base", "fft", 1, "cifar10_longtail_100"): Printed(88.47, 1.77)}
    assert "88.47 ± 1.77, −14.72 ∉" in text_of(frame, printed)


def test_an_average_over_other_tasks_is_not_held_against_the_papers(tmp_path):
    """The paper averages two tasks; of one of them alone, or of a third beside them, there is no such average."""
    places = [Place("vit_base", "fft", 1, task) for task in ("cifar10_longtail_100", "cifar10_step_2", "average")]
    printed = dict.fromkeys(places, PRINTED)
    runs = [run for run in planned("table2") if run.method == "fft"]
    one = [run for run in runs if run.task == "cifar10_step_2"]
    third = [dataclasses.replace(run, id="0000000000", task="other", cell_id="other") for run in one[:1]]
    averages = []
    for some in (runs, one, [*runs, *third]):
        frame = gather(some, RESULTS)
        (row,) = rows_of(frame, columns_of(frame), printed)
        averages.append(row.printed_average)
    assert averages == [PRINTED, None, None]


def test_without_runs_a_table_of_dashes(tmp_path, capsys):
    assert command.main("table1", table1.draw, ["--experiment", "laptop/smoke", "--results-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count("— 0/2") == 2
    assert {path.name for path in tmp_path.iterdir()} == {
        f"table1-laptop_smoke.{ending}" for ending in ("md", "csv", "tex")
    }


def test_a_wrong_experiment_exits_with_2(tmp_path, capsys):
    assert command.main("table1", table1.draw, ["--experiment", "laptop/smokee", "--results-dir", str(tmp_path)]) == 2
    assert "laptop/smoke" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_table_imports_torch():
    drawing = [path.stem for path in (ROOT / "experiments").glob("*.py") if "command.main(" in path.read_text()]
    assert "table1" in drawing
    modules = [f"experiments.{name}" for name in drawing]
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_840_run_folders_make_a_table_within_five_seconds(tmp_path):
    base = planned("table1")[0]
    runs = []
    for number in range(840):
        method, task = f"focal{number % 7}", f"task{number // 7 % 12}"
        name = f"{number:010x}"
        run = dataclasses.replace(
            base, id=name, cell_id=f"{method} {task}", method=method, preset=method, task=task, seed=number,
            folder=f"runs/m/{task}/{method}/seed{number}-{name}",
        )  # fmt: skip
        folder = RunFolder(tmp_path / run.folder)
        folder.mark_finished({"accuracy": 0.5 + number / 2000, "status": "successful", "threads": 1})
        folder.write_json("environment.json", {"packages": {"torch": "2.0"}})
        runs.append(run)
    started = time.perf_counter()
    text = text_of(gather(runs, tmp_path))
    assert time.perf_counter() - started < 20
    assert text.count("10/10") == 84
