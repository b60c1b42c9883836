"""Runs over several tasks, tiny and on made-up rows: what they report, which heads a step moves, every kind of part."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from dsgd.evaluation import Predictions
from dsgd.execution import execute
from dsgd.runs import folder_of
from dsgd.training import Training
from shared import losses

HOMOGENEOUS = "task.batches=homogeneous"

both_kinds_of_batches = pytest.mark.parametrize(
    "batches", ["task.batches=mixed", pytest.param(HOMOGENEOUS, marks=pytest.mark.slow)], ids=["mixed", "homogeneous"]
)


def pairs(count, seed):
    """Sentences of a few words, and whether both begin with the same."""
    generator = np.random.default_rng(seed)
    words = np.array(["rain", "sun", "cat", "dog", "tree", "house"])
    one, other = (words[generator.integers(len(words), size=(count, 4))] for _ in range(2))
    other[::2, 0] = one[::2, 0]
    return {
        "sentence1": [" ".join(row) for row in one],
        "sentence2": [" ".join(row) for row in other],
        "label": (one[:, 0] == other[:, 0]).astype(int).tolist(),
    }


@pytest.fixture
def tasks(mirror):
    """The overrides of a run on two tasks of 30 and 20 examples to train on, 12 and 10 to evaluate."""
    mirror("nyu-mll/glue", "mrpc", train=pairs(30, 1), validation=pairs(12, 2))
    mirror("nyu-mll/glue", "rte", train=pairs(20, 3), validation=pairs(10, 4))
    return ("task=multitask", "task.tasks=[mrpc,rte]", f"data.root={mirror.root}")


def scores(folder):
    return Predictions.load(folder.path / "predictions.parquet").scores


def test_a_run_reports_every_task(train, tasks):
    folder = train(*tasks)
    row = folder.metrics
    stored = pd.read_parquet(folder.path / "predictions.parquet")
    right = (stored["label"] == stored["prediction"]).groupby(stored["task"]).mean().to_dict()
    assert folder.path.parents[1].name == row["task"]
    assert row["task"].startswith("mrpc+rte-"), "rows that are not the hub's"
    assert row["accuracy_by_task"] == pytest.approx(right)
    assert row["accuracy"] == pytest.approx((right["mrpc"] + right["rte"]) / 2)
    assert row["n_eval_by_task"] == {"mrpc": 12, "rte": 10}
    assert row["n_train"] == 48  # debug's share of 50
    assert set(row["status_by_task"]) == {"mrpc", "rte"}
    assert list(row["f1_by_task"]) == ["mrpc"]
    assert any("eval/accuracy/rte" in record for record in folder.history)


def test_tasks_of_two_and_of_five_classes_train_together(train, tasks):
    folder = train(*tasks, "task.tasks=[mrpc,bbc_news]")
    stored = pd.read_parquet(folder.path / "predictions.parquet")
    of_pairs = stored[stored["task"] == "mrpc"]
    assert (of_pairs[["probability_2", "probability_3", "probability_4"]] == 0).all(axis=None)
    assert np.isfinite(losses(folder)).all()


@pytest.mark.parametrize("part", ["gradient=plain", "gradient=pcgrad", "gradient=sam", "transform=gradient_stabilizer"])
def test_a_step_of_one_task_leaves_the_other_head_alone_to_the_bit(train, tasks, monkeypatch, part):
    """Its weights and AdamW's moments and counter, with momentum, weight decay and all."""
    step, seen = Training.step, []

    def watched(training, window):
        heads = [list(head.parameters()) for head in training.model.head.heads]
        before = [copy.deepcopy([(p.data, training.optimizer.state.get(p)) for p in head]) for head in heads]
        step(training, window)
        for task, head in enumerate(heads):
            after = [(p.data, training.optimizer.state.get(p)) for p in head]
            untouched = all(same(one, other) for one, other in zip(before[task], after, strict=True))
            assert untouched == (task not in window.tasks)
        seen.append(window.tasks)

    monkeypatch.setattr(Training, "step", watched)
    train(*tasks, part, HOMOGENEOUS, "debug.max_steps=12", "trainer.batch_size=4", "trainer.weight_decay=0.5")
    assert set(seen) == {(0,), (1,)}


def same(one, other):
    (weights, state), (later, new) = one, other
    states = state == new if not (state and new) else all(torch.equal(state[key], new[key]) for key in state)
    return torch.equal(weights, later) and states


@pytest.mark.parametrize(
    ("overrides", "statistic"),
    [
        (("regularizer=lnsr", "model.layers=2", "regularizer.rho=1.0"), "train/regularizer"),
        (("regularizer=r3f",), "train/regularizer"),
        (("gradient=pcgrad",), "pcgrad/cosine"),
        (("initialization=noisytune",), "initialization/relative_change"),
        (("initialization=reinit_top",), "initialization/relative_change"),
        (("initialization=head_first",), "initialization/relative_change"),
        (("averaging=swa",), "accuracy_swa3"),
        (("adapter=lora",), "lora/update_norm"),
        (("loss=focal",), "focal/weight"),
        (("diagnostics=all",), "train/loss"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
@both_kinds_of_batches
def test_every_kind_of_part_acts_on_several_tasks(train, tasks, overrides, statistic, batches):
    folder = train(*tasks, *overrides, batches)
    told = {*folder.metrics, *(key for record in folder.history for key in record)}
    assert statistic in told
    assert np.isfinite(losses(folder)).all()
    assert set(folder.metrics["accuracy_by_task"]) == {"mrpc", "rte"}


def test_noisytune_spares_every_head(train, tasks):
    """What the heads say of no features is their bias alone, and that is 0; so look at the weights."""
    seen = []

    class Watched(Training):
        def run(self):
            seen.append([parameter.detach().clone() for parameter in self.model.head.parameters()])
            return super().run()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsgd.training.Training", Watched)
        train(*tasks)
        train(*tasks, "initialization=noisytune")
    assert len(seen[0]) == 4
    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))


@both_kinds_of_batches
def test_accumulation_changes_nothing_but_rounding(train, tasks, batches):
    quiet = (*tasks, batches, "model.dropout=0", "runtime.precision=fp32")
    whole = train(*quiet, "trainer.batch_size=8")
    split = train(*quiet, "trainer.batch_size=4", "trainer.accumulation=2")
    assert whole.path != split.path
    assert losses(split) == pytest.approx(losses(whole), rel=1e-5)


@both_kinds_of_batches
def test_a_resumed_run_ends_as_an_uninterrupted_one(run_of, tasks, tmp_path, monkeypatch, batches):
    """Stopped in step 3 of 4, resumed after step 2; dropout on."""
    run = run_of(*tasks, batches, "runtime.checkpoint_every=2", "trainer.batch_size=8")
    whole = replace(run, config=replace(run.config, results_dir=str(tmp_path / "whole")))
    assert execute(whole) == "finished"
    with monkeypatch.context() as patch:
        patch.setattr("dsgd.training.Training._evaluation_is_due", stop_at_3)
        assert execute(run) == "failed"
    assert (folder_of(run).path / "checkpoint" / "resume.pt").exists()
    assert execute(run) == "finished"
    assert losses(folder_of(run)) == losses(folder_of(whole))
    assert np.array_equal(scores(folder_of(run)), scores(folder_of(whole)))


def stop_at_3(_training, step):
    if step.number == 3:
        raise RuntimeError("stopped by the test")
    return False
