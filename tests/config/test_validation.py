"""Combinations that cannot work, and lists with values that no part can use: each refused with its reason."""

from dataclasses import replace

import pytest

from dsgd.config import parts
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.messages import ConfigErrors
from dsgd.config.validation import problems


@pytest.fixture(scope="module")
def usual():
    """The default config, in which there is nothing to object to."""
    (run,) = expand(read_command(["method=fft"]))
    assert problems(run.config) == []
    return run.config


def errors(*arguments):
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(arguments))
    return caught.value.problems


def labels(*arguments):
    return [run.label for run in expand(read_command(arguments))]


ADALORA = parts.AdaLoRA()


@pytest.mark.parametrize(
    ("changes", "start", "words"),
    [
        ({"averaging": parts.SWA(last=[])}, "averaging.last = []", "from 1 to averaging.checkpoints = 10"),
        ({"averaging": parts.SWA(last=[0, 3])}, "averaging.last = [0, 3]", "from 1"),
        ({"averaging": parts.SWA(last=[3, 11])}, "averaging.last = [3, 11]", "to averaging.checkpoints = 10"),
        ({"averaging": parts.SWA(last=[3, 3])}, "averaging.last = [3, 3]", "different"),
        ({"gradient": parts.Spikes(steps=[0, 5])}, "gradient.steps = [0, 5]", "from 1"),
        ({"gradient": parts.Spikes(steps=[])}, "gradient.steps = []", "optimiser steps"),
        ({"regularizer": parts.LNSR(weights=[])}, "regularizer.weights = []", "last layers"),
        ({"regularizer": parts.LNSR(weights=[0.2, -1.0])}, "regularizer.weights = [0.2, -1.0]", "at least 0"),
        ({"loss": parts.Focal(alpha_by_class=[0.5, 1.5])}, "loss.alpha_by_class = [0.5, 1.5]", "[0, 1]"),
        ({"loss": parts.Focal(alpha=0.25, alpha_by_class=[0.5, 1.0])}, "loss.alpha = 0.25", "one of the two"),
        ({"adapter": parts.AdaLoRA(initial_r=8, target_r=8)}, "adapter.target_r = 8", "below adapter.initial_r = 8"),
        ({"adapter": parts.AdaLoRA(warmup=0.5, final=0.5)}, "adapter.final = 0.5", "below 1"),
        ({"adapter": ADALORA, "averaging": parts.EMA()}, "averaging = ema", "brings them back"),
        ({"adapter": ADALORA, "averaging": parts.SWA()}, "averaging.last = [3, 5]", "adapter.final = 0.3"),
        ({"adapter": parts.LoRA(), "initialization": parts.ReinitTop()}, "initialization = reinit_top", "stay random"),
    ],
)
def test_what_cannot_work_is_refused_with_its_key_and_reason(usual, changes, start, words):
    (problem,) = problems(replace(usual, **changes))
    assert problem.startswith(start + ":")
    assert words in problem


@pytest.mark.parametrize(
    "changes",
    [
        {"averaging": parts.SWA(last=[1, 10])},
        {"gradient": parts.Spikes(steps=[1])},
        {"regularizer": parts.LNSR(weights=[0.0])},
        {"loss": parts.Focal(alpha_by_class=[0.0, 1.0])},
        {"loss": parts.Focal(alpha=0.25)},
        {"adapter": ADALORA, "averaging": parts.SWA(last=[3])},
        {"adapter": parts.LoRA(), "averaging": parts.EMA()},
        {"adapter": parts.LoRA(), "initialization": parts.NoisyTune()},
        {"initialization": parts.ReinitTop(blocks=6)},  # as many as minilm has
        {"gradient": parts.PCGrad(), "loss": parts.OHEM()},
        {"gradient": parts.CAGrad(), "regularizer": parts.R3F()},
        {"gradient": parts.SAM(), "transform": parts.GradientStabilizer()},
        {"loss": parts.LDAM()},
    ],
)
def test_what_works_is_let_through(usual, changes):
    assert problems(replace(usual, **changes)) == []


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (parts.CrossEntropy(), None),
        (parts.DSGD(), None),
        (parts.DSGD(correctness=parts.Correctness.evaluation), "loss.correctness = evaluation"),
        (parts.DSGD(normalization=parts.Normalization.sum_w), "loss.normalization = full_m"),
    ],
)
def test_the_fused_kernel_is_refused_where_it_cannot_serve(usual, loss, words, monkeypatch):
    """Every reason at once: the part's own, and without the interpreter that the CPU is no CUDA device."""
    fused = replace(
        usual, loss=replace(loss, backend=parts.Backend.triton), runtime=replace(usual.runtime, device="cpu")
    )
    monkeypatch.setattr("dsgd.config.rules.runtime.find_spec", lambda name: name)
    for interpreted in ("1", "0"):
        monkeypatch.setenv("TRITON_INTERPRET", interpreted)
        found = problems(fused)
        assert all(problem.startswith("loss.backend = triton: ") for problem in found)
        assert all(problem.endswith("; give auto or reference") for problem in found)
        assert any(words in problem for problem in found) if words else len(found) == (interpreted == "0")
        assert any("no CUDA device" in problem for problem in found) == (interpreted == "0")
    monkeypatch.setattr("dsgd.config.rules.runtime.find_spec", lambda name: None)
    assert "Triton is not installed" in problems(fused)[0]
    for backend in (parts.Backend.auto, parts.Backend.reference):
        assert problems(replace(usual, loss=replace(loss, backend=backend))) == []


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"initialization": parts.ReinitTop(blocks=3)}, "initialization.blocks = 3"),
        ({"regularizer": parts.LNSR(weights=[0.3, 0.2, 0.1])}, "regularizer.weights = [0.3, 0.2, 0.1]"),
    ],
)
def test_no_more_blocks_than_a_shortened_model_has(usual, changes, start):
    short = replace(usual.model, layers=2)
    (problem,) = problems(replace(usual, model=short, **changes))
    assert problem.startswith(start + ": the model has 2 transformer blocks")
    assert problems(replace(usual, model=replace(usual.model, layers=3), **changes)) == []


def test_the_head_s_layers_are_not_counted_by_blocks(usual):
    regularizer = parts.LNSR(reading=parts.LNSRReading.head)
    assert problems(replace(usual, model=replace(usual.model, layers=1), regularizer=regularizer)) == []


WHOLE_WINDOW = [parts.OHEM(), parts.RandomCorrect(), parts.UniformShrink()]


@pytest.mark.parametrize("loss", WHOLE_WINDOW, ids=lambda loss: loss.name)
def test_a_loss_that_looks_at_the_whole_window_cannot_be_split(usual, loss):
    (problem,) = problems(replace(usual, loss=loss, trainer=replace(usual.trainer, accumulation=2)))
    assert problem.startswith(f"trainer.accumulation = 2: loss={loss.name}")


@pytest.mark.parametrize(
    ("method", "slot", "other", "own"),
    [
        ("pcgrad", "gradient", "sam", "pcgrad"),
        ("swa", "averaging", "ema", "swa"),
        ("lora", "adapter", "ia3", "lora"),
        ("reinit", "initialization", "noisytune", "reinit_top"),
        ("gradient_stabilizer", "transform", "adagn", "gradient_stabilizer"),
        ("lnsr", "regularizer", "r3f", "lnsr"),
    ],
)
def test_a_preset_s_own_slot_takes_no_second_part(method, slot, other, own):
    """Hydra would take the override alone, under a label that promises both."""
    (problem,) = errors(f"method={method}", f"{slot}={other}")
    assert problem.startswith(f"{slot} = {other}: method={method} fills this slot with {own}")
    assert problem.endswith(f"method=fft {slot}={other}")


def test_the_way_out_that_the_refusal_names_works():
    assert labels("method=fft", "gradient=sam") == ["fft+sam"]


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["method=pcgrad", "transform=gradient_stabilizer"], "pcgrad+gradient_stabilizer"),
        (["method=dsgd", "adapter=lora"], "dsgd+lora"),
        (["method=dsgd", "averaging=swa", "transform=gradient_stabilizer"], "dsgd+gradient_stabilizer+swa"),
        (["method=fft", "loss=dsgd"], "fft+dsgd"),
        (["loss=focal", "averaging=ema"], "fft+focal+ema"),
        (["method=pcgrad", "gradient=plain"], "fft"),
        (["method=pcgrad", "gradient=pcgrad"], "pcgrad"),
    ],
)
def test_parts_of_different_slots_combine_and_a_loss_may_be_exchanged(arguments, label):
    assert labels(*arguments) == [label]


def test_one_bad_combination_of_a_sweep_is_named():
    (problem,) = errors("-m", "method=fft,pcgrad", "gradient=plain,sam")
    assert problem.startswith("gradient = sam: method=pcgrad")


@pytest.mark.parametrize("key", ["gradient", "method"])
def test_two_parts_of_one_slot_on_one_command_line_are_refused(key):
    (problem,) = errors("method=fft", f"{key}=pcgrad", f"{key}=sam")[-1:]
    assert problem.startswith(f"{key} = sam: {key}=")
    assert "is given already" in problem


def test_the_same_choice_twice_is_one_choice():
    assert labels("method=fft", "gradient=sam", "gradient=sam") == ["fft+sam"]


def test_other_keys_may_be_overridden_again():
    (run,) = expand(read_command(["seed=1", "seed=2"]))
    assert run.config.seed == 2


def test_a_preset_s_own_setting_needs_its_own_part():
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(["method=label_smoothing", "loss=focal"]))
    (problem,) = caught.value.problems
    assert "label_smoothing" in problem
    assert "add method=fft instead of method=label_smoothing" in problem
