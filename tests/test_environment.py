"""How a run is set up to compute: precision of multiplications, kept memory, compiled networks."""

import platform
import resource
from dataclasses import replace

import numpy as np
import pytest
import torch

from dsgd.config.validation import problems
from dsgd.environment import keep_freed_memory, memory_share, set_tf32, synchronize
from dsgd.training import splits_by_length
from shared import losses

#: A transformer of two small blocks on scikit-learn's digits.
SMALL = ("model=vit_digits", "task=digits", "model.layers=null", "model.scratch.depth=2", "model.scratch.width=16")


def test_tf32_is_a_choice_for_matrices_and_convolutions_alike():
    try:
        set_tf32(True)
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        set_tf32(False)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_taken_again_without_a_page_fault():
    """20 MB are 4,883 pages of 4 KB, each a fault when the kernel gives it; once the heap has grown, none is."""
    keep_freed_memory()

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(5_000_000)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert min(faults() for _ in range(5)) < 100


def test_a_cpu_has_no_memory_to_divide():
    device = torch.device("cpu")
    synchronize(device)
    assert memory_share(device) == 0


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ((), "model=minilm reads texts"),
        ((*SMALL, "method=pcgrad"), "gradient=pcgrad looks into the layers"),
        ((*SMALL, "diagnostics=gradients"), "diagnostics=gradients looks into the layers"),
    ],
)
def test_only_what_stays_exact_is_compiled(run_of, overrides, reason):
    config = run_of(*overrides).config
    found = problems(replace(config, runtime=replace(config.runtime, compile=True)))
    assert len(found) == 1
    assert found[0].startswith(f"runtime.compile = true: {reason}")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (SMALL, "model=vit_digits reads images, which have no padding"),
        (("method=dsgd", "loss.normalization=sum_w"), "loss=dsgd as set weighs by sums over the whole window"),
    ],
)
def test_what_cannot_be_computed_in_parts_is_not_split(run_of, overrides, reason):
    config = run_of(*overrides).config
    assert not splits_by_length(config, torch.device("cpu"))
    found = problems(replace(config, runtime=replace(config.runtime, split_by_length=True)))
    assert found == [f"runtime.split_by_length = true: {reason}; give null or false"]


def test_texts_are_split_by_length_on_a_cpu_unless_told_otherwise(run_of):
    config, cpu = run_of().config, torch.device("cpu")
    assert splits_by_length(config, cpu)
    assert not splits_by_length(config, torch.device("cuda"))
    assert not splits_by_length(run_of("runtime.split_by_length=false").config, cpu)
    assert run_of("runtime.split_by_length=false").id == run_of().id


@pytest.mark.slow
def test_a_compiled_network_learns_the_same(train):
    plain = train(*SMALL, "runtime.precision=fp32")
    compiled = train(*SMALL, "runtime.precision=fp32", "runtime.compile=true")
    assert compiled.path != plain.path
    assert np.allclose(losses(plain), losses(compiled), rtol=1e-4)
