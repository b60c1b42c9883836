"""Whole runs on images, shrunk: the packaged task, and tiny models of the real architectures under the methods."""

import json

import numpy as np
import pytest
import torch
from image_models import saved_resnet, saved_vit
from objectives import gradients_by, objective_of

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.messages import ConfigErrors
from dsgd.config.schema import Modality, Model
from dsgd.evaluation import Predictions
from dsgd.execution import execute
from dsgd.methods.contracts import Batch, Step, Window
from dsgd.methods.gradient.pcgrad import PCGrad
from dsgd.models import build_model
from dsgd.runs import folder_of
from shared import losses

#: Digits, enlarged fourfold, cropped and mirrored, by a model of a local folder; both of its blocks.
COMMON = ("task=digits", "task.augmentation=crop_flip", "model.image_size=32", "model.layers=null")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Overrides that choose a tiny transformer or a tiny convolutional net."""
    vit, resnet = tmp_path_factory.mktemp("vit"), tmp_path_factory.mktemp("resnet")
    saved_vit(vit)
    saved_resnet(resnet)
    return {"vit": ("model=vit_base", f"model.path={vit}"), "resnet": ("model=resnet34", f"model.path={resnet}")}


def scores(folder):
    return Predictions.load(folder.path / "predictions.parquet").scores


def test_digits_train_on_the_small_model_of_their_own(train):
    folder = train("task=digits")
    metrics = folder.metrics
    assert (metrics["model"], metrics["task"], metrics["method"]) == (
        "vit_digits",
        "digits",
        "dsgd[debug=tiny,layers=1]",
    )
    assert len(metrics["class_counts"]) == 10
    assert np.isfinite(losses(folder)).all()


def test_a_task_s_own_model_gives_way_to_the_command_line_s(models):
    (own,) = expand(read_command(["task=cifar10_longtail_100"]))
    (chosen,) = expand(read_command(["task=cifar10_longtail_100", "model=resnet50"]))
    assert (own.config.model.name, chosen.config.model.name) == ("vit_base", "resnet50")
    assert (own.label, chosen.label) == ("dsgd", "dsgd")
    assert own.config.trainer.lr == 1e-3


def test_a_sweep_over_tasks_takes_each_task_s_model():
    found = expand(read_command(["-m", "task=bbc_news,digits", "model.layers=1"]))
    assert [run.config.model.name for run in found] == ["minilm", "vit_digits"]


@pytest.mark.parametrize(
    ("arguments", "start", "words"),
    [
        (["task=cifar10", "model=minilm"], "model = minilm: reads texts", "task=cifar10 is of images; choose one of"),
        (["model=resnet34"], "model = resnet34: reads images", "task=bbc_news is of texts; choose one of"),
        (["task=cifar10", "model=minilm"], "model = minilm", "vit_base_sane"),
    ],
)
def test_model_and_task_must_be_of_one_kind(arguments, start, words):
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(arguments))
    (problem,) = caught.value.problems
    assert problem.startswith(start)
    assert words in problem


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["method=reinit"], ["initialization.blocks", "trainer.layer_decay"]),
        (["method=lnsr"], ["regularizer.weights"]),
        (["method=fft", "diagnostics=gradients"], ["diagnostics"]),
        (["method=fft", "model.layers=2"], ["model.layers"]),
    ],
)
def test_what_needs_transformer_blocks_is_refused_for_convolutional_nets(overrides, keys):
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(["task=cifar10", "model=efficientnet_b0", *overrides]))
    assert [problem.split(" = ")[0] for problem in caught.value.problems] == keys


@pytest.mark.parametrize("model", ["vit_base", "resnet34"])
def test_adapters_are_refused_for_images(model):
    with pytest.raises(ConfigErrors, match=f"adapter = lora: .* model={model}"):
        expand(read_command(["task=cifar10", f"model={model}", "method=lora"]))


def test_a_folder_of_images_must_be_there(tmp_path):
    for path, words in (
        ("null", "give a folder"),
        (tmp_path / "none", "none: is no folder; give a folder with train/<class>/<image>"),
        (tmp_path, "no folder train"),
    ):
        with pytest.raises(ConfigErrors, match=words):
            expand(read_command(["task=image_folder", f"task.path={path}"]))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *(("vit", method) for method in ("lnsr", "pcgrad", "swa", "reinit", "r3f")),
        *(("resnet", method) for method in ("dsgd", "swa", "ema")),
    ],
)
def test_methods_train_image_models(kind, method, models, train):
    folder = train(*models[kind], *COMMON, f"method={method}", "debug.max_steps=2")
    assert len(losses(folder)) == 2
    assert np.isfinite(losses(folder)).all()
    assert np.isfinite(scores(folder)).all()


def test_accumulation_changes_nothing_but_rounding(models, train):
    """Augmented images and all."""
    common = (*models["vit"], *COMMON, "runtime.precision=fp32", "method=dsgd", "debug.max_steps=2")
    whole = train(*common, "trainer.batch_size=20")
    split = train(*common, "trainer.batch_size=10", "trainer.accumulation=2")
    assert losses(split) == pytest.approx(losses(whole), rel=1e-5)
    assert scores(split) == pytest.approx(scores(whole), abs=1e-4)


@pytest.mark.parametrize("kind", [pytest.param("vit", marks=pytest.mark.slow), "resnet"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(kind, models, run_of, train, tmp_path, monkeypatch):
    """Stopped in step 3 of 4, resumed after step 2; crops, mirror images and BatchNorm's statistics included."""
    common = (*models[kind], *COMMON, "method=dsgd", "trainer.batch_size=10")
    whole = train(*common, f"results_dir={tmp_path}/whole")

    def stop_at_3(_training, step):
        if step.number == 3:
            raise RuntimeError("stopped by the test")
        return False

    run = run_of(*common, "runtime.checkpoint_every=2")
    with monkeypatch.context() as patch:
        patch.setattr("dsgd.training.Training._evaluation_is_due", stop_at_3)
        assert execute(run) == "failed"
    folder = folder_of(run)
    assert execute(run) == "finished", folder.reason
    assert losses(folder) == losses(whole)
    assert np.array_equal(scores(folder), scores(whole))


def test_augmentation_changes_training_and_not_evaluation(models, train):
    common = (*models["vit"], *COMMON, "method=fft", "debug.max_steps=2")
    augmented, plain = train(*common), train(*common, "task.augmentation=none")
    before = [
        json.dumps([row for row in folder.history if row["step"] == 0][-1]["eval/accuracy"])
        for folder in (augmented, plain)
    ]
    assert before[0] == before[1]
    assert losses(augmented) != losses(plain)


def test_pcgrad_on_batch_norm_is_two_explicit_backward_passes(models):
    """BatchNorm couples a batch's rows, so the groups' gradients are those of one forward of both together.

    From their definition: g_W and g_C of two forwards of the same window, and Algorithm 1 with the squared norm.
    """
    (path,) = [text.removeprefix("model.path=") for text in models["resnet"] if text.startswith("model.path=")]
    model = build_model(Model("x", modality=Modality.image, path=path, image_size=32), 3, seed=1).double()
    generator = np.random.default_rng(0)
    images = torch.from_numpy(generator.integers(256, size=(12, 32, 32, 3), dtype=np.uint8))
    labels = torch.from_numpy(generator.integers(3, size=12))
    window = Window([Batch({"pixels": images}, labels)], 12, Step(1, 10))

    def gradient_of(correct):
        model.zero_grad(set_to_none=True)
        logits = model(pixels=images)
        mine = (logits.argmax(1) == labels) == correct
        assert 0 < mine.sum() < 12
        torch.nn.functional.cross_entropy(logits[mine], labels[mine], reduction="sum").backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    wrong, correct = gradient_of(correct=False), gradient_of(correct=True)
    dot = torch.dot(wrong, correct).clamp(max=0)
    expected = (wrong - dot / correct.dot(correct) * correct + correct - dot / wrong.dot(wrong) * wrong) / 12
    found, _ = gradients_by(PCGrad("correct"), model, window, objective_of())
    torch.testing.assert_close(torch.cat([gradient.flatten() for gradient in found.values()]), expected)
