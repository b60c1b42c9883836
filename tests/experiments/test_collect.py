import dataclasses

import pytest
from make_runs import RESULTS, planned

from dsgd.config.messages import ConfigErrors
from dsgd.config.schema import Evaluation
from dsgd.runs import RunFolder
from experiments.collect import collect, gather

ROW = {"accuracy": 0.75, "status": "successful", "threads": 1}


@pytest.fixture
def run():
    return planned("table2")[0]


def folder_of(run, results):
    return RunFolder(results / run.folder)


def test_every_planned_run_has_a_row_in_the_experiments_order(tmp_path):
    frame = collect("laptop/smoke", tmp_path)
    assert list(frame["method"]) == ["fft", "fft", "dsgd", "dsgd"]
    assert list(frame["seed"]) == [42, 52, 42, 52]
    assert set(frame["state"]) == {"missing"}
    assert frame["cell_id"].nunique() == 2


def test_a_run_is_found_by_its_id_wherever_it_lies_and_named_as_planned(run, tmp_path):
    """Another command line called the same run otherwise; the experiment's name for it counts."""
    elsewhere = RunFolder(tmp_path / "runs" / "vit_base" / "cifar" / "other" / f"seed42-{run.id}")
    elsewhere.mark_finished({**ROW, "method": "other", "model": "other"})
    (row,) = gather([run], tmp_path).to_dict("records")
    assert (row["state"], row["accuracy"], row["method"]) == ("finished", 0.75, run.method)
    assert row["folder"] == elsewhere.path


def test_a_failed_run_keeps_its_reason(run, tmp_path):
    folder_of(run, tmp_path).mark_failed("non-finite")
    (row,) = gather([run], tmp_path).to_dict("records")
    assert (row["state"], row["reason"]) == ("failed", "non-finite")


def test_a_run_without_the_diagnostics_asked_for_is_missing_and_says_so(run, tmp_path):
    folder = folder_of(run, tmp_path)
    folder.mark_finished(ROW)
    observed = dataclasses.replace(run, diagnostics="representations")
    (row,) = gather([observed], tmp_path).to_dict("records")
    assert (row["state"], row["reason"]) == ("missing", "has no representations")
    (folder.path / "representations.npz").touch()
    assert list(gather([observed], tmp_path)["state"]) == ["finished"]


def test_a_status_follows_the_experiments_thresholds():
    """Of two classes only near-collapse has a bound: from a share of 0 on, every run is one."""
    (run,) = [run for run in planned("table1") if (run.task, run.method, run.seed) == ("copa", "dsgd", 42)]
    assert not gather([run], RESULTS)["near_collapsed"][0]
    strict = dataclasses.replace(run, evaluation=Evaluation(near_collapsed=0.0))
    assert gather([strict], RESULTS)["near_collapsed"][0]


def test_an_unknown_experiment_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigErrors, match="laptop/smoke"):
        collect("laptop/smokee", tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"accuracy": 0.7', "metrics.json is damaged: not JSON, or nested too deeply"),
        ('{"accuracy": 0.7}', "metrics.json has no status; force=true trains it again"),
    ],
)
def test_a_finished_run_without_the_numbers_of_a_table_has_failed_and_says_so(content, reason, run, tmp_path):
    """Torn by a full disk, or of another version."""
    folder = folder_of(run, tmp_path)
    folder.mark_finished(ROW)
    folder.write("metrics.json", content)
    (row,) = gather([run], tmp_path).to_dict("records")
    assert row["state"] == "failed"
    assert row["reason"].endswith(reason)


def test_other_thresholds_without_the_predictions_they_need_are_a_failure_that_says_so(run, tmp_path):
    folder_of(run, tmp_path).mark_finished({**ROW, "thresholds": dataclasses.asdict(Evaluation())})
    strict = dataclasses.replace(run, evaluation=Evaluation(mcc_sigmas=3.0))
    (row,) = gather([strict], tmp_path).to_dict("records")
    assert row["state"] == "failed"
    assert "predictions.parquet" in row["reason"]
    assert "\n" not in row["reason"]
