"""The committed miniature run folders and the tables that must come out of them, to the letter."""

import json
import statistics

import numpy as np
import pandas as pd
import pytest
from furnished import furnish
from make_runs import DRAWERS, GOLDEN, RESULTS, drawn, make_runs, planned

from dsgd import locks
from dsgd.evaluation import Predictions
from experiments import tables
from experiments.bagging import ensemble_rows
from experiments.cells import columns_of, rows_of
from experiments.collect import gather


@pytest.mark.parametrize("name", DRAWERS)
@pytest.mark.parametrize(("ending", "render"), [("md", "to_markdown"), ("csv", "to_csv"), ("tex", "to_latex")])
def test_the_table_is_the_committed_one(name, ending, render):
    expected = (GOLDEN / f"{name}.{ending}").read_text()
    assert getattr(tables, render)(drawn(name, RESULTS)) == expected


def test_the_committed_folders_are_those_of_the_script(tmp_path):
    make_runs(tmp_path)
    made, committed = (
        {path.relative_to(root) for path in root.rglob("*") if path.is_file()} for root in (tmp_path, RESULTS)
    )
    assert made == committed
    for path in made:
        if path.suffix == ".json":
            assert json.loads((tmp_path / path).read_text()) == json.loads((RESULTS / path).read_text())
        else:
            ours, theirs = Predictions.load(tmp_path / path), Predictions.load(RESULTS / path)
            np.testing.assert_array_equal(ours.scores, theirs.scores)


def test_cells_follow_from_the_files_by_another_way():
    """Mean and deviation of every cell, read from the folders by their paths, without ``collect``."""
    frame = gather(planned("table1"), RESULTS)
    columns = columns_of(frame)
    for row in rows_of(frame, columns, {}):
        for column, cell in zip(columns, row.cells, strict=True):
            label = row.label.replace("[", ",").replace("]", "")
            files = RESULTS.glob(f"runs/{row.model}/{column.task}/{label}/*/metrics.json")
            key = f"accuracy_{row.variant}" if row.variant else "accuracy"
            accuracies = [100 * json.loads(file.read_text())[key] for file in files]
            assert cell.n == len(accuracies)
            assert cell.n + cell.failed + cell.running + cell.missing == cell.planned == 3
            if cell.n:
                assert cell.mean == pytest.approx(statistics.mean(accuracies))
                assert cell.std == pytest.approx(statistics.stdev(accuracies))


def test_a_task_of_a_pair_has_its_own_status_and_accuracy():
    """Seed 52 of FFT collapsed on RTE alone: its MRPC is no collapse, nor is an ensemble's accuracy there RTE's."""
    frame = gather([run for run in planned("table6") if run.task == "mrpc+rte"], RESULTS)
    columns = columns_of(frame)
    fft, dsgd = rows_of(frame, columns, {})
    assert [cell.count("collapsed") for cell in (*fft.cells, *dsgd.cells)] == [0, 1, 0, 0]
    pool = frame[frame["preset"] == "fft"]
    three = pd.concat([pool, pool[pool["seed"] == 52]])  # the collapsed one twice, so that it wins every vote
    votes = {row.label: row for row in ensemble_rows(three, columns, {})}["fft"]
    (collapsed,) = [by_task for seed, by_task in zip(pool["seed"], pool["accuracy_by_task"], strict=True) if seed == 52]
    assert [cell.accuracies for cell in votes.cells] == [
        (pytest.approx(100 * collapsed["mrpc"]),),
        (pytest.approx(100 * collapsed["rte"]),),
    ]
    assert [cell.statuses for cell in votes.cells] == [("successful",), ("collapsed",)]


def test_the_miniatures_hold_every_state_and_status(tmp_path):
    """One is said to be running, which is true as long as its lock is held."""
    results = furnish(tmp_path)
    begun = next(run for run in planned("table1") if (run.task, run.method, run.seed) == ("rte", "focal", 62))
    held = locks.take(results / "runs" / ".locks" / f"{begun.id}.lock")
    frame = gather(planned("table1"), results)
    held.release()
    assert set(frame["state"]) == {"finished", "failed", "running", "missing"}
    assert {"successful", "degenerate", "collapsed"} <= set(frame["status"])
