"""The contestants of the loss benchmark compute the same thing; the times themselves need a CUDA device."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dsgd.loss import dsgd_loss
from experiments.benchmark import gpu

ROOT = Path(__file__).parents[2]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_fused_and_eager_compute_the_same_loss_and_gradient():
    """Interpreted on the CPU (see conftest.py). Gradients are bfloat16: 1/6 of at most 1, each cut off and rounded."""
    pytest.importorskip("triton")
    (fused, ours), (eager, theirs) = (gpu.step(name, 6, 5, DEVICE)() for name in ("fused", "eager"))
    torch.testing.assert_close(fused, eager, rtol=1e-6, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-12)
    assert ours.abs().sum() > 0


def test_eager_is_the_mean_weighted_loss_of_its_random_logits():
    generator = torch.Generator(DEVICE).manual_seed(0)
    logits = torch.randn(6, 5, device=DEVICE, dtype=torch.bfloat16, generator=generator)
    labels = torch.randint(5, (6,), device=DEVICE, generator=generator)
    assert gpu.step("eager", 6, 5, DEVICE)()[0] == dsgd_loss(logits, labels, 0.5, backend="reference")[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="would measure for minutes")
def test_without_a_cuda_device_it_says_so_and_is_content():
    result = subprocess.run(
        [sys.executable, "-m", "experiments.benchmark.gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "There is no CUDA device here: the fused loss is not measured.\n"


def test_importing_it_loads_no_torch():
    code = "import experiments.benchmark.gpu, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_medians_are_times():
    assert all(0 < gpu.median(name, 20, 2) < 1e6 for name in ("fused", "eager", "torch.compile"))
