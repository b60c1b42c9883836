"""What is compared on a CUDA device, run without one: the same losses, the same models. Its times need the device."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.loss import dsgd_loss
from experiments.benchmark import checkpoints, losses, models

ROOT = Path(__file__).parents[2]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_fused_and_eager_compute_the_same_loss_and_gradient():
    """Interpreted on the CPU (see conftest.py). Gradients are bfloat16: 1/6 of at most 1, each cut off and rounded."""
    pytest.importorskip("triton")
    (fused, ours), (eager, theirs) = (losses.step(name, 6, 5, DEVICE)() for name in ("fused", "eager"))
    torch.testing.assert_close(fused, eager, rtol=1e-6, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-12)
    assert ours.abs().sum() > 0


def test_eager_is_the_mean_weighted_loss_of_its_random_logits():
    generator = torch.Generator(DEVICE).manual_seed(0)
    logits = torch.randn(6, 5, device=DEVICE, dtype=torch.bfloat16, generator=generator)
    labels = torch.randint(5, (6,), device=DEVICE, generator=generator)
    assert losses.step("eager", 6, 5, DEVICE)()[0] == dsgd_loss(logits, labels, 0.5, backend="reference")[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="would measure for minutes")
def test_without_a_cuda_device_it_says_so_and_is_content():
    result = subprocess.run(
        [sys.executable, "-m", "experiments.benchmark.gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "There is no CUDA device here: nothing is measured.\n"


def test_importing_it_loads_no_torch():
    code = "import experiments.benchmark.gpu, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_medians_are_times():
    assert all(0 < losses.median(name, 20, 2) < 1e6 for name in ("fused", "eager", "torch.compile"))


#: Of each published shape, what makes it small; the code that builds and trains it is the same.
SMALL = {
    "roberta_large": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
    "llama_3_2_1b": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "head_dim": 8},
    "vit_base": {"embed_dim": 32, "depth": 2, "num_heads": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", ["roberta_large", "llama_3_2_1b"])
def test_a_checkpoint_has_the_published_number_of_parameters(name):
    """As ``conf/model`` states them; of RoBERTa without the pooler, which the classifier does not read."""
    from transformers import AutoModel

    (run,) = expand(read_command([f"model={name}"]))
    with torch.device("meta"):
        network = AutoModel.from_config(checkpoints.text_config(name))
    found = {part: parameter.numel() for part, parameter in network.named_parameters() if "pooler" not in part}
    assert sum(found.values()) == run.config.model.parameters


def test_a_vit_checkpoint_has_the_published_number_of_parameters():
    import timm

    (run,) = expand(read_command(["model=vit_base", "task=digits"]))
    with torch.device("meta"):
        network = timm.create_model(checkpoints.VIT_BASE, num_classes=0)
    assert sum(parameter.numel() for parameter in network.parameters()) == run.config.model.parameters


@pytest.mark.parametrize("name", SMALL)
def test_each_model_is_trained_by_both_sides(name, monkeypatch):
    """Small, and without a device to measure memory on: times and their ratio come out."""
    monkeypatch.setattr(models, "STEPS", 1)
    monkeypatch.setattr(models, "PAIRS", 1)
    case = models.CASES[name]
    smaller = case._replace(overrides=(*case.overrides[:-1], "trainer.batch_size=2"))
    (record,) = models.measure("cpu", {name: smaller}, **SMALL[name])
    assert record["ours_ms"] > 0
    assert record["ratio"]["median"] == pytest.approx(record["trainer_ms"] / record["ours_ms"])
    assert [line.count("|") for line in models.table([record])] == [8, 8, 8]


def test_a_model_that_does_not_fit_leaves_the_others(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(models, "_contest", full)
    records = list(models.measure("cpu"))
    assert [record["error"] for record in records] == ["out of memory"] * 3
    assert all(line.count("|") == 8 for line in models.table(records))
