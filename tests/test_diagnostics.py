"""Observers: what they measure, and that they leave no trace in the training."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from objectives import gradients, gradients_by, objective_of, plain_gradients
from torch.nn.functional import cross_entropy

from dsgd.config.schema import Diagnostics
from dsgd.diagnostics import (
    MEASURES,
    GradientObserver,
    balanced_rows,
    class_means,
    cosines,
    layer_measures,
    make_observer,
    representations,
)
from dsgd.evaluation import Predictions
from dsgd.execution import execute
from dsgd.methods.gradient.pcgrad import PCGrad
from dsgd.methods.gradient.plain import Plain
from dsgd.methods.loss.cross_entropy import CrossEntropy
from dsgd.methods.loss.dsgd import DSGD
from dsgd.methods.loss.uniform_shrink import UniformShrink
from dsgd.methods.regularizer.none import NoRegularizer
from dsgd.methods.regularizer.r3f import R3F
from dsgd.runs import DIAGNOSTIC_FILES, RunFolder, folder_of
from dsgd.schedules import StaticSchedule
from helpers import random_batch, tiny_classifier, window_of
from shared import losses


def dsgd(gamma):
    return DSGD(0.0, "wrong", "train", "full_m", StaticSchedule(gamma))


def training_of(model, loss, folder=None):
    """As much of a training as an observer looks at."""
    objective = objective_of(loss)
    return SimpleNamespace(
        model=model,
        bare=model,
        objective=objective,
        accelerator=objective.accelerator,
        parts={"loss": loss},
        folder=folder and RunFolder(folder),
        optimizer=SimpleNamespace(state={}),
    )


def observed(model, loss, window, folder, layers=None):
    """The table of one step."""
    training, observer = training_of(model, loss, folder), GradientObserver(layers)
    observer.start(training)
    observer.before_step(training, window)
    observer.finish(training)
    return pd.read_parquet(folder / "diagnostics.parquet").set_index("layer")


# --- both, in real runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gradients", ()),
        ("gradients", ("method=pcgrad", "trainer.accumulation=2", "trainer.batch_size=10")),
        ("representations", ()),
        ("all", ()),
    ],
)
def test_training_is_bit_identical_with_and_without(train, run_of, name, options):
    """Dropout on, so a single draw or gradient left behind would show.

    The finished run is trained again for the files that it lacks, and not a third time.
    """
    plain = numbers_of(train(*options))
    watched = run_of(f"diagnostics={name}", *options)
    assert execute(watched) == "finished"
    folder = folder_of(watched)
    assert all((folder.path / file).exists() for file in DIAGNOSTIC_FILES[name])
    again = numbers_of(folder)
    assert plain["id"] == again["id"]
    assert plain["losses"] == again["losses"]
    assert np.array_equal(plain["scores"], again["scores"])
    assert execute(watched) == "skipped"


def numbers_of(folder):
    scores = Predictions.load(folder.path / "predictions.parquet").scores
    return {"id": folder.metrics["id"], "losses": losses(folder), "scores": scores}


def test_unknown_observers_are_refused():
    with pytest.raises(ValueError, match="gradient: give one of"):
        make_observer(Diagnostics(name="gradient"))


def stop_at(number):
    def due(_training, step):
        if step.number == number:
            raise RuntimeError("stopped by the test")
        return False

    return due


@pytest.mark.parametrize("first", ["all", "none"])
def test_a_resumed_run_leaves_what_an_undisturbed_one_leaves(train, run_of, monkeypatch, tmp_path, first):
    """Stopped at step 3 of 4 with a point after step 2; where the observers were not there before, from step 1."""
    undisturbed = train("runtime.checkpoint_every=2", "diagnostics=all", f"results_dir={tmp_path}/other")
    with monkeypatch.context() as patch:
        patch.setattr("dsgd.training.Training._evaluation_is_due", stop_at(3))
        assert execute(run_of("runtime.checkpoint_every=2", f"diagnostics={first}")) == "failed"
    resumed = train("runtime.checkpoint_every=2", "diagnostics=all")
    for name in (*DIAGNOSTIC_FILES["all"], "predictions.parquet"):
        assert (resumed.path / name).read_bytes() == (undisturbed.path / name).read_bytes()
    assert losses(resumed) == losses(undisturbed)
    assert sorted(set(pd.read_parquet(resumed.path / "diagnostics.parquet")["step"])) == [1, 2, 3, 4]


# --- gradients ------------------------------------------------------------------------------------------------------


def test_measures_by_hand():
    """g_W = (3, 4), g_C = (0, -8), γ = 0.5: norms 5, 8, |(3, -4)| = 5, |(3, 0)| = 3; cosine -32/40."""
    found = layer_measures(torch.tensor([3.0, 4.0]), torch.tensor([0.0, -8.0]), 0.5)
    assert found.tolist() == pytest.approx([5, 8, 5, 3, -0.8])
    assert MEASURES == ("norm_wrong", "norm_correct", "norm_raw", "norm_effective", "cosine")


@pytest.mark.parametrize("empty", [0, 1])
def test_the_cosine_of_an_empty_group_is_nan_and_not_zero(empty):
    groups = [torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])]
    groups[empty] = torch.zeros(2)
    assert layer_measures(*groups, 1.0)[-1].isnan()


def test_nothing_is_captured_before_a_window_with_both_groups_has_shown_that_it_is_exact(train, monkeypatch):
    """Windows of one example never have both."""
    monkeypatch.setattr("dsgd.diagnostics.GroupCapture", None)
    folder = train("diagnostics=gradients", "trainer.batch_size=1", "method=fft").path
    table = pd.read_parquet(folder / "diagnostics.parquet")
    assert (table["wrong"] + table["correct"] == 1).all()
    assert table["step"].nunique() > 1


@pytest.mark.parametrize("units", [(1.0, 1.0), (0.05, 0.1)])
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_norms_of_groups_that_cancel_keep_their_digits(gamma, units):
    """Cosine -0.9999995 and equal lengths: |g_W + g_C|² is a millionth of |g_W|², which three inner products lose."""
    generator = torch.Generator().manual_seed(0)
    wrong, aside = torch.randn(2, 300, 200, generator=generator)
    correct = -(wrong + 1e-3 * aside) * units[0] / units[1]
    found = layer_measures(wrong, correct, gamma, units)
    exact_wrong, exact_correct = wrong.double() * units[0], correct.double() * units[1]
    exact = [exact_wrong, exact_correct, exact_wrong + exact_correct, exact_wrong + gamma * exact_correct]
    assert found[-1] < -0.999999
    torch.testing.assert_close(found[:4].double(), torch.stack([each.norm() for each in exact]), rtol=1e-4, atol=0)
    doubled = layer_measures(wrong, -wrong / gamma, gamma)
    assert doubled[3] < 1e-6 * doubled[0]


def test_the_look_sees_the_very_masks_and_gamma_of_the_training_step(tmp_path):
    """Heavy dropout, two micro-batches: the effective norm is that of the gradient which the step then computes."""
    model, loss = tiny_classifier(dropout=0.4), dsgd(0.3)
    window = window_of(random_batch(), random_batch(5, seed=2))
    torch.manual_seed(0)
    table = observed(model, loss, window, tmp_path)
    trained = plain_gradients(model, window, objective_of(loss))
    assert len(table) == 2 * 6  # query, key, value, output, and two of the feed-forward layer, in two blocks
    for name, row in table.iterrows():
        assert row["norm_effective"] == pytest.approx(trained[name].norm().item(), rel=1e-9)
        assert row["norm_raw"] != pytest.approx(row["norm_effective"], rel=1e-3)
    another = plain_gradients(model, window, objective_of(loss))  # with the next masks
    assert table["norm_effective"].iloc[0] != pytest.approx(another[table.index[0]].norm().item(), rel=1e-3)


@pytest.mark.parametrize("loss", [CrossEntropy(label_smoothing=0.0), dsgd(0.3)], ids=["cross_entropy", "dsgd"])
def test_what_a_step_shows_is_what_a_look_of_its_own_sees(tmp_path, loss):
    """The same window twice, without dropout: by a look, then out of the training backward; two micro-batches."""
    model, window = tiny_classifier(), window_of(random_batch(), random_batch(5, seed=2))
    training, observer = training_of(model, loss, tmp_path), GradientObserver(None)
    training.parts |= {"gradient": Plain(), "regularizer": NoRegularizer()}
    observer.start(training)
    for number in (1, 2):
        each = window_of(*window.batches, number=number)
        observer.before_step(training, each)
        assert len(observer._steps) == 1
        with observer.during_step(training, each):
            with_observer = gradients_by(Plain(), model, each, training.objective)[0]
    without = plain_gradients(model, each, objective_of(loss))
    assert all(torch.equal(with_observer[name], without[name]) for name in without)
    observer.finish(training)
    table = pd.read_parquet(tmp_path / "diagnostics.parquet").drop(columns="layer")
    looked, shown = (table[table["step"] == number].drop(columns="step").to_numpy() for number in (1, 2))
    assert len(looked) == len(shown) == 12
    assert np.allclose(looked, shown, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("loss", "gradient", "regularizer"),
    [
        (CrossEntropy(label_smoothing=0.1), Plain(), NoRegularizer()),
        (dsgd(0.0), Plain(), NoRegularizer()),
        (UniformShrink(StaticSchedule(0.3)), Plain(), NoRegularizer()),
        (CrossEntropy(label_smoothing=0.0), PCGrad("correct"), NoRegularizer()),
        (CrossEntropy(label_smoothing=0.0), Plain(), R3F(1.0, 1e-5, noise_seed=0)),
    ],
    ids=["smoothed", "without_correct", "shrunk", "pcgrad", "regularized"],
)
def test_a_step_that_does_not_show_plain_cross_entropy_is_looked_at(tmp_path, loss, gradient, regularizer):
    model, observer = tiny_classifier(), GradientObserver(1)
    training = training_of(model, loss, tmp_path)
    training.parts |= {"gradient": gradient, "regularizer": regularizer}
    observer.start(training)
    for number in (1, 2):
        window = window_of(random_batch(), number=number)
        observer.before_step(training, window)
        with observer.during_step(training, window):
            pass
    assert [number for number, _ in observer._steps] == [1, 2]


def test_the_raw_gradients_are_those_of_plain_cross_entropy(tmp_path):
    """Although the run's loss weighs C by 0.3; each group by autograd on its own."""
    model, batch = tiny_classifier(), random_batch()
    table = observed(model, dsgd(0.3), window_of(batch), tmp_path)
    logits = model(**batch.inputs)
    each, hit = cross_entropy(logits, batch.labels, reduction="none"), logits.argmax(1) == batch.labels
    assert 0 < hit.sum() < len(hit)
    for name, parameter in model.named_parameters():
        if name not in table.index:
            continue
        wrong, correct = (torch.autograd.grad(each[x].sum() / 8, parameter, retain_graph=True)[0] for x in (~hit, hit))
        row = table.loc[name]
        norms = [(wrong).norm(), correct.norm(), (wrong + correct).norm(), (wrong + 0.3 * correct).norm()]
        assert row[list(MEASURES[:4])].tolist() == pytest.approx([norm.item() for norm in norms], rel=1e-9)
        cosine = torch.cosine_similarity(wrong.flatten(), correct.flatten(), dim=0)
        assert row["cosine"] == pytest.approx(cosine.item(), rel=1e-9)
    assert table["wrong"].unique().tolist() == [(~hit).sum().item()]
    assert table["correct"].unique().tolist() == [hit.sum().item()]
    assert table["gamma"].unique().tolist() == [0.3]


def test_a_loss_without_gamma_has_gamma_one(tmp_path):
    table = observed(tiny_classifier(), CrossEntropy(label_smoothing=0.1), window_of(random_batch()), tmp_path)
    assert table["gamma"].unique().tolist() == [1.0]
    assert table["norm_raw"].tolist() == table["norm_effective"].tolist()


def test_a_look_leaves_no_trace(tmp_path):
    """Neither a gradient, nor a draw, nor a statistic."""
    model, loss = tiny_classifier(dropout=0.4), dsgd(0.3)
    training, observer = training_of(model, loss, tmp_path), GradientObserver(10)
    state = torch.get_rng_state()
    observer.start(training)
    observer.before_step(training, window_of(random_batch()))
    assert torch.equal(torch.get_rng_state(), state)
    assert gradients(model) == {}
    assert training.objective.collect() == {}
    assert model.training


def test_layers_are_chosen_once_for_a_model(tmp_path):
    """The same for other weights; only matrices of blocks that train; all of them where ``layers`` is null."""
    window = window_of(random_batch())
    tables = [observed(tiny_classifier(seed=seed), dsgd(1.0), window, tmp_path, 5) for seed in (0, 1)]
    assert list(tables[0].index) == list(tables[1].index)
    assert len(set(tables[0].index)) == 5
    model = tiny_classifier()
    model.blocks[0].requires_grad_(False)
    frozen = observed(model, dsgd(1.0), window, tmp_path)
    assert all(name.startswith("network.bert.encoder.layer.1.") and name.endswith(".weight") for name in frozen.index)
    assert len(frozen) == 6


def test_nothing_to_watch_is_an_error():
    model = tiny_classifier()
    model.blocks.requires_grad_(False)
    with pytest.raises(ValueError, match="no weight matrix"):
        GradientObserver(10).start(training_of(model, dsgd(1.0)))


def test_the_table_of_a_run_fits_its_history(train):
    """Six matrices in the one block of the tiny model, four steps; counts and γ as the history has them."""
    folder = train("diagnostics=gradients", "debug.examples=34")
    table = pd.read_parquet(folder.path / "diagnostics.parquet")
    assert list(table.columns) == ["step", "layer", *MEASURES, "wrong", "correct", "gamma"]
    assert len(table) == 4 * 6
    rows = table.groupby("step").first()
    steps = [record for record in folder.history if "train/loss" in record]
    assert rows["wrong"].tolist() == [record["train/wrong"] for record in steps]
    assert rows["correct"].tolist() == [record["train/correct"] for record in steps]
    assert rows["gamma"].tolist() == [record["train/gamma"] for record in steps]
    is_empty = (table["wrong"] == 0) | (table["correct"] == 0)
    assert (table["cosine"].isna() == is_empty).all()
    assert not is_empty.all()
    assert table["cosine"].dropna().between(-1 - 1e-5, 1 + 1e-5).all()


# --- representations ------------------------------------------------------------------------------------------------


def test_the_file_of_a_run(train):
    """Five classes, so two examples of each, whatever the seed; all of it follows from the two matrices."""
    one, other = (
        np.load(train("diagnostics=representations", f"seed={seed}").path / "representations.npz") for seed in (42, 52)
    )
    assert one["labels"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(set(one["rows"].tolist())) == 10
    for when in ("before", "after"):
        matrix = one[f"cosine_{when}"]
        assert np.allclose(matrix, matrix.T)
        assert np.allclose(np.diag(matrix), 1)
        assert (one[f"within_{when}"], one[f"between_{when}"]) == class_means(matrix, one["labels"])
        assert one[f"between_centred_{when}"] < one[f"between_{when}"]
        assert np.isfinite(one[f"within_centred_{when}"])
    assert one["rows"].tolist() == other["rows"].tolist()
    assert np.array_equal(one["cosine_before"], other["cosine_before"])  # the encoder's, which no seed has touched yet
    assert not np.array_equal(one["cosine_before"], one["cosine_after"])
    assert not np.array_equal(one["cosine_after"], other["cosine_after"])


class OneSplit:
    """A split whose rows are one batch's."""

    def __init__(self, batch):
        self.whole = batch

    def batch(self, rows):
        return type(self.whole)({name: x[rows] for name, x in self.whole.inputs.items()}, self.whole.labels[rows])


def test_the_representation_is_the_first_token_of_the_last_layer_without_dropout():
    """Against the encoder's own output; the training mode and the random stream are as before."""
    model, batch = tiny_classifier(dropout=0.4), random_batch()
    state, rows = torch.get_rng_state(), np.array([3, 1])
    found = representations(training_of(model, dsgd(1.0)), OneSplit(batch), rows)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        expected = model.eval().network.bert(**OneSplit(batch).batch(rows).inputs).last_hidden_state[:, 0]
    assert np.allclose(found, expected.numpy())
    assert not model.blocks[-1]._forward_hooks


@pytest.mark.parametrize(
    ("classes", "expected"), [(2, [5, 5]), (3, [3, 3, 4]), (5, [2] * 5), (10, [1] * 10), (12, [0, 0] + [1] * 10)]
)
def test_classes_share_the_examples_evenly(classes, expected):
    labels = np.random.default_rng(1).permutation(np.arange(120) % classes)
    rows = balanced_rows(labels, 10)
    assert sorted(np.bincount(labels[rows], minlength=classes)) == expected
    assert len(set(rows.tolist())) == 10
    assert labels[rows].tolist() == sorted(labels[rows])


def test_a_rare_class_gives_what_it_has():
    """One example of class 1: the other nine are class 0; and a split of four gives four."""
    labels = np.array([0] * 30 + [1])
    assert np.bincount(labels[balanced_rows(labels, 10)]).tolist() == [9, 1]
    assert sorted(balanced_rows(np.array([0, 1, 1, 1]), 10)) == [0, 1, 2, 3]


def test_class_means_by_hand():
    """Labels 0, 0, 1: one pair within, of 0.5; two between, of 0.1 and -0.3. One example a class: nothing within."""
    matrix = np.array([[1, 0.5, 0.1], [0.5, 1, -0.3], [0.1, -0.3, 1]])
    assert class_means(matrix, np.array([0, 0, 1])) == pytest.approx((0.5, -0.1))
    within, between = class_means(matrix, np.array([0, 1, 2]))
    assert np.isnan(within)
    assert between == pytest.approx(0.1)


def test_cosines_by_hand():
    """(1, 0), (3, 4), (0, -2): 0.6, 0, -0.8."""
    found = cosines(np.array([[1.0, 0.0], [3.0, 4.0], [0.0, -2.0]]))
    assert found[np.triu_indices(3, 1)].tolist() == pytest.approx([0.6, 0.0, -0.8])
