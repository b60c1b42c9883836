"""Whole runs of the real model on the real task, shrunk: equalities that must hold between them."""

import json

import numpy as np
import pytest

from dsgd.evaluation import Predictions
from dsgd.execution import execute
from dsgd.runs import folder_of
from shared import losses

EXACT = ("runtime.precision=fp32", "model.dropout=0")


def scores(folder):
    return Predictions.load(folder.path / "predictions.parquet").scores


def same(one, other):
    return losses(one) == losses(other) and np.array_equal(scores(one), scores(other))


def close(one, other):
    return np.allclose(losses(one), losses(other), rtol=1e-5) and np.allclose(scores(one), scores(other), atol=1e-4)


def test_gamma_one_is_full_fine_tuning_bit_for_bit(train):
    """METHODS 17 (1), dropout and bf16 included."""
    assert same(train("method=dsgd", "schedule=static", "schedule.gamma=1"), train("method=fft"))


def test_gamma_below_one_is_another_training(train):
    assert not close(train("method=dsgd", *EXACT), train("method=fft", *EXACT))


def test_the_same_config_twice_gives_the_same_numbers(train, tmp_path):
    one = train()
    first = losses(one), scores(one)
    other = train(f"results_dir={tmp_path}/again")
    assert first[0] == losses(other)
    assert np.array_equal(first[1], scores(other))


@pytest.mark.parametrize("method", ["fft", "dsgd"])
@pytest.mark.parametrize("examples", [40, 34])  # 34 = 20 + 14: the last window is partial, and so is its micro-batch
def test_accumulation_changes_nothing_but_rounding(train, method, examples):
    """METHODS 17 (2)."""
    common = (f"method={method}", f"debug.examples={examples}", *EXACT)
    whole = train(*common, "trainer.batch_size=20")
    split = train(*common, "trainer.batch_size=10", "trainer.accumulation=2")
    assert folder_steps(whole) == folder_steps(split) == 4
    assert close(whole, split)


def folder_steps(folder):
    return folder.metrics["steps"]


@pytest.mark.parametrize("stream", ["initialization", "data_order", "dropout"])
def test_each_random_stream_acts_alone(train, stream):
    """Its own seed changes the numbers; and with the others equal, what it does not govern stays."""
    usual, other = train(), train(f"seeds.{stream}=123")
    assert not same(usual, other)
    untouched = initial_accuracy_row(usual) == initial_accuracy_row(other)
    assert untouched == (stream != "initialization")


def initial_accuracy_row(folder):
    return next(record for record in folder.history if record["step"] == 0)["eval/macro_f1"]


def test_the_subset_is_the_same_for_every_seed_unless_asked(train):
    """The subset's seed alone moves accuracy, so the run's seed leaves it."""
    hashes = [
        train("debug.examples=null", *more).metrics["subset_hash"] for more in ([], ["seed=52"], ["seeds.subset=3"])
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_folder_holds_what_tables_need(train):
    folder = train()
    metrics = folder.metrics
    wanted = {
        "id", "model", "task", "method", "seed", "accuracy", "accuracy_best", "status", "majority_rate", "n_eval",
        "steps", "train_seconds", "examples_per_second", "mcc", "macro_f1", "recall_by_class", "subset_hash",
    }  # fmt: skip
    assert wanted <= set(metrics)
    assert {path.name for path in folder.path.iterdir()} == {
        "config.yaml", "environment.json", "history.jsonl", "identity.json", "metrics.json", "predictions.parquet",
        "state.json",
    }  # fmt: skip
    predictions = Predictions.load(folder.path / "predictions.parquet")
    assert metrics["accuracy"] == (predictions.predictions == predictions.labels).mean()
    assert metrics["accuracy_best"] >= metrics["accuracy"]


def test_the_history_follows_the_definitions(train):
    """γ_t = t/T; |W| + |C| = m; the loss is (ΣℓW + γ ΣℓC)/m; the rate warms up over no step of 4 and falls to 0."""
    steps = [record for record in train("debug.examples=34").history if "train/loss" in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    assert [record["train/gamma"] for record in steps] == [0.25, 0.5, 0.75, 1.0]
    assert [record["train/wrong"] + record["train/correct"] for record in steps] == [20, 14, 20, 14]
    for record in steps:
        whole = record["train/loss_wrong"] + record["train/gamma"] * record["train/loss_correct"]
        assert record["train/loss"] == pytest.approx(whole, rel=1e-5)
    peak = steps[0]["train/lr"]
    assert [record["train/lr"] / peak for record in steps] == pytest.approx([1, 0.75, 0.5, 0.25])
    assert all(record["train/gradient_norm"] > 0 for record in steps)


def test_evaluations_stand_before_the_first_step_at_each_epoch_and_at_the_end(train):
    """34 examples are two windows an epoch, so four steps are two epochs."""
    history = train("debug.examples=34", "trainer.evaluate_every=null").history
    assert [record["step"] for record in history if "eval/accuracy" in record] == [0, 2, 4]
    history = train("debug.examples=34", "trainer.evaluate_every=1").history
    assert [record["step"] for record in history if "eval/accuracy" in record] == [0, 1, 2, 3, 4]


def test_the_whole_evaluation_split_can_be_kept(train):
    assert train().metrics["n_eval"] == 48
    assert train("debug.full_evaluation=true").metrics["n_eval"] > 1000


def test_a_resumed_run_ends_as_an_uninterrupted_one(train, run_of, tmp_path, monkeypatch):
    """Dropout on: the random stream must go on where it stopped."""
    whole = train(f"results_dir={tmp_path}/whole")
    run = run_of("runtime.checkpoint_every=2")
    with monkeypatch.context() as patch:
        patch.setattr("dsgd.training.Training._evaluation_is_due", stop_at(3))
        assert execute(run) == "failed"
    folder = folder_of(run)
    assert (folder.path / "checkpoint" / "resume.pt").exists()
    assert execute(run) == "finished"
    assert same(folder, whole)
    assert [record["step"] for record in folder.history] == [record["step"] for record in whole.history]
    assert not (folder.path / "checkpoint").exists()


def stop_at(number):
    def due(_training, step):
        if step.number == number:
            raise RuntimeError("stopped by the test")
        return False

    return due


def test_the_evaluated_weights_can_be_kept(train):
    folder = train("runtime.keep_checkpoint=true")
    assert [path.name for path in (folder.path / "checkpoint").iterdir()] == ["model.safetensors"]


def test_a_non_finite_run_fails_with_its_cause_and_step(run_of):
    """A learning rate that overflows must not end as an accuracy."""
    run = run_of("trainer.lr=1e30", "trainer.clip=0", "trainer.evaluate_every=100")
    assert execute(run) == "failed"
    assert folder_of(run).reason.startswith("non-finite: ")
    assert "at step" in folder_of(run).reason
    assert json.loads((folder_of(run).path / "state.json").read_text())["state"] == "failed"


def test_frozen_embeddings_stay_and_are_not_counted(train):
    full, frozen = train(), train("model.freeze_embeddings=true")
    assert frozen.metrics["trainable_parameters"] < full.metrics["trainable_parameters"] - 11e6
