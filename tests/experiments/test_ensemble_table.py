"""Ensembles from stored predictions, on five members whose votes can be counted by hand."""

import dataclasses
import statistics

import numpy as np
import pytest
from make_runs import planned

from dsgd.config.schema import Evaluation
from dsgd.evaluation import Predictions, evaluate
from dsgd.runs import RunFolder
from experiments import table1_ensembles
from experiments.bagging import accuracy, ensemble_rows, votes
from experiments.cells import columns_of
from experiments.collect import gather
from experiments.printed import Place, Printed
from experiments.table1_ensembles import Ensembles
from experiments.tables import to_markdown

LABELS = np.array([0, 0, 1, 1], dtype=np.int64)

#: Three members that are each wrong once, at a place of their own, and two that always say 1.
CLASSES = ([1, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1])


@pytest.fixture
def runs(tmp_path):
    """Five finished runs of one cell and a sixth that failed, under the test's own results."""
    base = next(run for run in planned("table1") if run.method == "fft")
    made = []
    for number, classes in enumerate([*CLASSES, None]):
        name = f"{number:010x}"
        run = dataclasses.replace(base, id=name, seed=number, folder=f"runs/m/t/fft/seed{number}-{name}")
        folder = RunFolder(tmp_path / run.folder)
        if classes is None:
            folder.mark_failed("non-finite")
        else:
            predictions = Predictions(np.arange(4), LABELS, np.eye(2, dtype=np.float32)[classes], ["no", "yes"])
            thresholds = dataclasses.asdict(Evaluation())
            folder.mark_finished({**evaluate(predictions, Evaluation()), "thresholds": thresholds})
            predictions.save(folder.path / "predictions.parquet")
        made.append(run)
    return made


def test_the_vote_of_the_three_sound_members_is_always_right(runs, tmp_path):
    """Each example is got right by two of the three."""
    pool = [Predictions.load(tmp_path / run.folder / "predictions.parquet") for run in runs[:3]]
    (ensemble,) = votes(pool, 3, 10)
    assert ensemble.predictions.tolist() == LABELS.tolist()
    assert votes(pool, 5, 10) == []


def test_members_whose_predictions_are_gone_or_damaged_do_not_vote_and_are_counted_out(runs, tmp_path):
    (tmp_path / runs[0].folder / "predictions.parquet").unlink()
    (tmp_path / runs[1].folder / "predictions.parquet").write_bytes(b"PAR1")
    frame = gather(runs, tmp_path)
    three, five = ensemble_rows(frame, columns_of(frame), {})
    assert [(row.cells[0].pool, row.cells[0].n) for row in (three, five)] == [(3, 1), (3, 0)]


def test_an_ensembles_row_tells_the_pool_it_was_drawn_from(runs, tmp_path):
    """Six planned runs allow sizes 3 and 5. Of all five that finished, 3, 3, 4 and 5 vote for 1: 1 everywhere, 50 %."""
    frame = gather(runs, tmp_path)
    place = Place("roberta_large", "fft", 5, "copa")
    three, five = ensemble_rows(frame, columns_of(frame), {place: Printed(84.8, 3.43)})
    assert (three.size, three.cells[0].n, three.cells[0].pool, three.cells[0].failed) == (3, 6, 5, 1)
    assert (five.size, five.cells[0].accuracies, five.cells[0].statuses) == (5, (50.0,), ("collapsed",))
    assert five.cells[0].difference == pytest.approx(-34.8)


def test_the_ensemble_table_counts_failures_and_the_smallest_sound_size(runs, tmp_path):
    """Two of five members failed to learn: 2/5; size 5 fails with certainty, as all five members are in it."""
    table = table1_ensembles.draw("t", gather(runs, tmp_path))
    three, five = table.records
    assert (five["drawn"], five["failed"], five["mean"], five["expected"], five["exact"]) == (1, 1, 50.0, 50.0, True)
    assert (five["members_failed"], five["best_member"], five["above_best"]) == (2, 75.0, 0)
    assert three["drawn"] == 6
    # q = 0.4: at least 3 of 5 with 10 q³ (1 - q)² + 5 q⁴ (1 - q) + q⁵
    assert five["expected_failed"] == pytest.approx(10 * 0.4**3 * 0.6**2 + 5 * 0.4**4 * 0.6 + 0.4**5)
    answer = "3" if three["failed"] == 0 else "none up to 5"
    text = to_markdown(table)
    assert f"COPA, FFT: {answer}." in text
    assert "FFT 5/6 2 failed to learn" in text


def test_all_ten_subsets_of_three_are_expected_exactly(runs, tmp_path):
    """Sound triple: 100 %. Two sound and a failed one: votes for 1 are 2 at one place or at two of LABELS' zeros.

    (0,1)+f: both zeros get a vote of their own and f's: wrong twice, 50 %. (0,2)+f: zero 0 wrong, the rest right, 75 %;
    (1,2)+f the same. Each of these three with either f. One sound with both f: all 1, 50 %.
    Mean (100 + 2 (50 + 75 + 75) + 3 · 50) / 10 = 65.
    """
    record = table1_ensembles.draw("t", gather(runs, tmp_path)).records[0]
    assert (record["expected"], record["least"], record["most"]) == (pytest.approx(65), 50, 100)


def test_the_printed_deviation_is_that_of_a_sample(runs, tmp_path):
    """Of the six ensembles drawn: divided by 5, as every ± of the tables."""
    pool = [Predictions.load(tmp_path / run.folder / "predictions.parquet") for run in runs[:5]]
    accuracies = [accuracy(ensemble) for ensemble in votes(pool, 3, 6)]
    deviation = statistics.stdev(accuracies)
    assert deviation > 1.05 * statistics.pstdev(accuracies) > 0
    assert f"{statistics.mean(accuracies):.2f} ± {deviation:.2f}" in to_markdown(
        table1_ensembles.draw("t", gather(runs, tmp_path))
    )


def test_a_pool_too_small_is_a_dash(tmp_path):
    runs = [run for run in planned("table1") if run.method == "fft" and run.task == "copa"]
    table = table1_ensembles.draw("t", gather(runs, tmp_path))
    assert "— " in to_markdown(table)
    assert {key: table.records[0][key] for key in ("planned", "pool", "drawn", "mean")} == {
        "planned": 3,
        "pool": 0,
        "drawn": Ensembles(0).drawn,
        "mean": None,
    }
