import dataclasses

import pytest
from make_runs import planned

from dsgd.runs import RunFolder
from experiments import figure5, figure6, learning_rates, printed, table3, table4, table5
from experiments.cells import Cell, Row
from experiments.collect import collect, gather
from experiments.selection import best, selection
from experiments.settings import Line, Setting, settings_table
from experiments.tables import to_csv, to_markdown


def with_facts(run, **facts):
    return dataclasses.replace(run, facts=dataclasses.replace(run.facts, **facts))


def test_a_setting_that_differs_from_the_papers_is_marked():
    settings = [Setting("Epochs", lambda run: run["epochs"], "epochs"), Setting("Clip", lambda _: 1.0, "clip")]
    lines = [Line(("COPA",), {"epochs": 10}, {"epochs": 10}), Line(("RTE",), {"epochs": 3}, {"epochs": 10})]
    table = settings_table("t", "Table 9. A test.", ["Task"], lines, settings, [])
    text = to_markdown(table)
    assert "| COPA | 10 (paper 10)  | 1    |" in text
    assert "| RTE  | 3 (paper 10) ≠ | 1    |" in text
    assert to_csv(table).splitlines()[:2] == ["task,setting,ours,paper,agrees", "COPA,Epochs,10,10,true"]


def test_table_3_puts_the_configs_sizes_beside_the_papers(tmp_path):
    run = next(run for run in planned("table1") if run.task == "copa")
    run = with_facts(run, classes=2, train_examples=400, evaluation_examples=100)
    assert "400 (paper 400)" in to_markdown(table3.draw("t", gather([run], tmp_path)))
    run = with_facts(run, train_examples=399)
    assert "399 (paper 400) ≠" in to_markdown(table3.draw("t", gather([run], tmp_path)))


def test_table_4_reads_the_composed_config(tmp_path):
    records = table4.draw("t", collect("laptop/smoke", tmp_path, ("trainer.lr=3e-5", "trainer.epochs=7"))).records
    ours = {record["setting"]: record["ours"] for record in records}
    assert (ours["Learning rate"], ours["Epochs"], ours["Batch"]) == ("3e-05", "7", "20")


def test_figure_5_reads_each_adapters_own_keys(tmp_path):
    frame = collect("laptop/smoke", tmp_path, ("method=lora,adalora", "seed=42"))
    text = to_markdown(figure5.draw("t", frame))
    lora, adalora = (line for line in text.splitlines() if line.startswith(("| LoRA", "| AdaLoRA")))
    assert "0.0003 (paper 0.0003)" in lora
    assert "8 (paper 8)" in lora
    assert "64 (paper 64)" in adalora
    assert "≠" not in lora + adalora


def test_figure_6_counts_the_examples_of_a_step(tmp_path):
    """128 images, accumulation 2, 2 GPUs: 512 by that reading; the run's own window is 20."""
    run = next(run for run in planned("table2") if run.task == "cifar10_step_2")
    run = dataclasses.replace(run, overrides=("method=fft",))
    text = to_markdown(figure6.draw("t", gather([run], tmp_path)))
    assert "20 (paper 512) ≠" in text


def test_table_5s_rows_are_found_by_the_factor_that_was_used():
    """36223 images are what the factor 0.5 leaves of CIFAR-10; the paper calls it 50."""
    rows = table5._printed()
    assert (rows["cifar10_longtail_2"]["train"], rows["cifar10_longtail_2"]["printed_ratio"]) == (36223, 50)
    assert rows["cifar100_step_100"]["train"] == 25250
    assert "cifar10_longtail_50" not in rows


def test_every_printed_value_has_one_place():
    """Table 1: 2 models × 12 rows × (6 tasks + 1 average); Table 2: 6 × 8; Table 6: 6 × (6 + 1)."""
    assert len(printed.table1()) == 2 * 12 * 7
    assert len(printed.table2()) == 6 * 8
    assert len(printed.table6()) == 6 * 7
    assert printed.table1()["roberta_large", "dsgd", 1, "copa", ""] == (88.10, 3.21)


def test_the_chosen_setting_has_the_highest_mean_and_needs_every_run():
    low, high = Cell(planned=1, accuracies=(70.0,)), Cell(planned=1, accuracies=(80.0,))
    part = Cell(planned=2, accuracies=(90.0,), missing=1)
    first, second, third = (Row("m", label, (cell,)) for label, cell in (("a", low), ("b", high), ("c", part)))
    assert best([first, second], 0) is second
    assert best([first, Row("m", "d", (low,))], 0) is first
    assert best([first, third], 0) is None


def test_rates_are_rows_and_are_never_pooled(tmp_path):
    frame = collect("laptop/smoke", tmp_path, ("method=fft", "trainer.lr=1e-5,1e-4"))
    table = learning_rates.draw("t", frame)
    assert [(record["method"], record["planned"]) for record in table.records if record["task"] != "average"] == [
        ("fft[lr=1e-05]", 2),
        ("fft[lr=0.0001]", 2),
    ]
    assert "Chosen for MiniLM on BBC News: none yet, runs are missing." in table.notes


def test_a_finished_search_names_its_choice_and_its_cost(tmp_path):
    """Three of four runs of half an hour each: 1.50 hours; with the fourth, 2 hours and a choice."""
    runs = [run for run in planned("table2") if run.task == "cifar10_step_2" and run.seed < 60]
    for number, run in enumerate(runs):
        if number == 3:
            assert "of which 3 have finished, in 1.50 hours" in to_markdown(
                selection("t", "T.", gather(runs, tmp_path))
            )
        row = {"accuracy": 0.5 + number / 10, "status": "successful", "seconds": 1800}
        RunFolder(tmp_path / run.folder).mark_finished(row)
    text = to_markdown(selection("t", "T.", gather(runs, tmp_path)))
    assert "of which 4 have finished, in 2.00 hours" in text
    assert "Chosen for ViT-base on CIFAR-10 step 2:1: DSGD." in text


@pytest.mark.parametrize("draw", [table3.draw, table4.draw, table5.draw, learning_rates.draw])
def test_settings_need_no_runs(draw, tmp_path):
    assert to_markdown(draw("t", collect("laptop/smoke", tmp_path)))
