"""The fused loss is the reference's: interpreted where no CUDA device is (see conftest.py), compiled where one is."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounter

pytest.importorskip("triton")

from dsgd.loss import DSGDLoss, dsgd_loss, weighted_losses
from dsgd.schedules import LinearSchedule
from dsgd.triton_loss import INTERPRETED, fused_losses
from shared import losses as history

NAN, INF = math.nan, math.inf
HAS_CUDA = torch.cuda.is_available() and not INTERPRETED
CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")])
CPU = pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="Triton compiles for the CUDA device"))


@pytest.fixture(params=[CPU, CUDA])
def device(request):
    return request.param


def draw(classes, examples, device, dtype=torch.float32, seed=0):
    """Logits and labels with about half of the examples correct and every fifth ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(examples, classes, generator=generator).to(dtype)
    labels = torch.randint(classes, (examples,), generator=generator)
    labels[::2] = logits.argmax(dim=1)[::2]
    labels[4::5] = -100
    return logits.to(device), labels.to(device)


def run(logits, labels, gamma=0.3, upstream=None, backend="triton", **options):
    """Losses, is_correct, statistics, and the gradient of Σ upstream · losses."""
    leaf = logits.detach().requires_grad_()
    output = weighted_losses(leaf, labels, gamma, backend=backend, **options)
    upstream = torch.ones_like(output.losses) if upstream is None else upstream
    (gradient,) = torch.autograd.grad(output.losses, leaf, upstream.to(output.losses.dtype))
    return output.losses.detach(), output.is_correct, output.statistics, gradient


def assert_is_the_reference(logits, labels, gamma=0.3, upstream=None, rtol=1e-6, atol=2e-7, **options):
    """Against float64: losses to 1e-6 of each, gradients (at most 1 for upstream 1) to ``rtol`` and ``atol``."""
    losses, is_correct, statistics, gradient = run(logits, labels, gamma, upstream, **options)
    exact = run(logits.double(), labels, gamma, upstream, backend="reference", **options)
    assert losses.dtype == torch.float32
    assert gradient.dtype == logits.dtype
    torch.testing.assert_close(losses.double(), exact[0], rtol=1e-6, atol=0)
    assert torch.equal(is_correct, exact[1])
    torch.testing.assert_close(gradient.double(), exact[3], rtol=rtol, atol=atol)
    assert list(statistics) == list(exact[2])
    for name, value in exact[2].items():
        assert statistics[name].dtype == value.dtype
        torch.testing.assert_close(statistics[name], value, rtol=2e-6, atol=0)
    return losses, is_correct, statistics, gradient


# --- agreement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "examples"), [(2, 20), (3, 20), (16, 8), (17, 8), (100, 8), (8192, 3), (8193, 3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_agrees_with_float64(classes, examples, smoothing, device):
    """Sizes at, below and above the blocks' limits, 16 and 8192."""
    logits, labels = draw(classes, examples, device)
    assert_is_the_reference(logits, labels, label_smoothing=smoothing)


@pytest.mark.parametrize("ties", ["wrong", "argmax"])
def test_a_hundred_thousand_classes(ties, device):
    """Thirteen blocks; row 0 ties classes 9 (its label) and 100,000 at the top, row 1 is right, row 2 wrong."""
    logits, _ = draw(100_003, 3, device)
    logits[0, [9, 100_000]] = logits[1, 100_002] = logits[2, 50_000] = 9.0
    labels = torch.tensor([9, 100_002, 0], device=device)
    _, is_correct, statistics, _ = assert_is_the_reference(logits, labels, ties=ties, label_smoothing=0.1)
    assert is_correct.tolist() == [ties == "argmax", True, False]
    assert statistics["ties"] == 1


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_half_precision_rounds_the_gradient_alone(dtype, rtol, device):
    """Once, when it is scaled: ½ ulp, an ulp being at most 2⁻⁷ and 2⁻¹⁰. Below 2⁻¹⁴ float16 has steps of 2⁻²⁴."""
    logits, labels = draw(9, 30, device, dtype)
    upstream = torch.rand(30, generator=torch.Generator().manual_seed(1)).to(device)
    assert_is_the_reference(logits, labels, upstream=upstream, label_smoothing=0.1, rtol=rtol, atol=2**-24)


def test_loss_scaling_saves_float16_s_small_gradients(device):
    """Logits (16, 0), label 0: the gradient ±e⁻¹⁶ = 1.1e-7 has one bit in float16, and all of them once scaled."""
    logits, labels = torch.tensor([[16.0, 0.0]], dtype=torch.float16, device=device), torch.tensor([0], device=device)
    scale = torch.tensor([65536.0], device=device)
    gradient = run(logits, labels, 1.0, scale)[3]
    expected = 65536 / (1 + math.exp(16))
    assert gradient[0].tolist() == pytest.approx([-expected, expected], rel=2**-11)


def test_nothing_cancels_where_the_true_class_is_almost_certain(device):
    """Logits (20, 0), label 0: ℓ = log(1 + e⁻²⁰) = 2.06e-9, where log Σ exp − 20 is 0 in float32."""
    logits, labels = torch.tensor([[20.0, 0.0]], device=device), torch.tensor([0], device=device)
    losses, _, _, gradient = run(logits, labels, 1.0)
    assert losses.item() == pytest.approx(math.log1p(math.exp(-20)), rel=4e-6)  # 20 ulps of the exponent's argument
    assert gradient[0].tolist() == pytest.approx([-1 / (1 + math.exp(20)), 1 / (1 + math.exp(20))], rel=4e-6)


def test_a_common_offset_of_the_logits_costs_nothing(device):
    """Integers are exact in float32, so logits 4096 higher have the same bits as losses and gradients."""
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0]], device=device)
    labels = torch.tensor([0, 2], device=device)
    low, high = (run(logits + offset, labels, label_smoothing=0.2) for offset in (0.0, 4096.0))
    assert torch.equal(low[0], high[0])
    assert torch.equal(low[3], high[3])


def test_finite_differences_of_the_reference(device):
    """Autograd on neither side: central differences of Σ uᵢ·lossᵢ in float64, whose own autograd gradcheck confirms."""
    logits, labels = draw(4, 6, "cpu")
    labels, upstream = labels.clone(), torch.arange(1.0, 7.0, dtype=torch.float64)

    def total(scores):
        return (upstream * weighted_losses(scores, labels, 0.3, label_smoothing=0.1).losses).sum()

    exact = logits.double().requires_grad_()
    assert torch.autograd.gradcheck(total, exact)
    differences = torch.zeros_like(exact)
    for place in range(exact.numel()):
        step = torch.zeros(exact.numel(), dtype=torch.float64)
        step[place] = 1e-5
        step = step.reshape(exact.shape)
        differences.view(-1)[place] = (total(exact + step) - total(exact - step)).detach() / 2e-5
    gradient = run(logits.to(device), labels.to(device), 0.3, upstream.to(device), label_smoothing=0.1)[3]
    torch.testing.assert_close(gradient.double().cpu(), differences.detach(), rtol=1e-6, atol=1e-6)


# --- edge rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("right", [True, False])
def test_one_group_may_be_empty(right, gamma, device):
    logits, _ = draw(5, 8, device)
    labels = logits.argmax(dim=1) if right else logits.argmin(dim=1)
    _, is_correct, statistics, gradient = assert_is_the_reference(logits, labels, gamma)
    assert is_correct.tolist() == [right] * 8
    assert statistics["loss_wrong" if right else "loss_correct"] == 0
    if right and gamma == 0:
        assert torch.equal(gradient, torch.zeros_like(logits))


TIE_ROWS = [
    # logits, label, correct by the strict rule, correct by argmax, tied at the top
    ([2.0, 2.0, 0.0], 0, False, True, True),
    ([2.0, 2.0, 0.0], 1, False, False, True),
    ([2.0, 2.0, 0.0], 2, False, False, False),
    ([1.0, 1.0, 3.0], 2, True, True, False),
    ([0.0, -0.0, 0.0], 0, False, True, True),
    ([-1.0, 4.0, 0.0], 1, True, True, False),
]


@pytest.mark.parametrize(("ties", "column"), [("wrong", 2), ("argmax", 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ties(ties, column, dtype, device):
    logits = torch.tensor([row[0] for row in TIE_ROWS], dtype=dtype, device=device)
    labels = torch.tensor([row[1] for row in TIE_ROWS], device=device)
    rounding = 2**-7 if dtype == torch.bfloat16 else 1e-6
    _, is_correct, statistics, _ = assert_is_the_reference(logits, labels, ties=ties, rtol=rounding)
    assert is_correct.tolist() == [row[column] for row in TIE_ROWS]
    assert statistics["ties"] == 3


@pytest.mark.skipif(not INTERPRETED, reason="a GPU would really take the memory")
def test_rows_beyond_2_31_elements_are_found():
    """Row 2 of 2³⁰ elements begins where 32 bits end; only the pages that are touched take memory.

    In a process of its own, which a wrong address ends.
    """
    code = """
import torch
from dsgd.loss import weighted_losses
stride = 2**30
logits = torch.empty(2 * stride + 3, dtype=torch.bfloat16).as_strided((3, 3), (stride, 1))
logits.copy_(torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [2.0, 3.0, 1.0]]))
labels = torch.tensor([0, 0, 2])
found, wanted = (weighted_losses(logits, labels, 0.5, backend=each).losses for each in ("triton", "reference"))
torch.testing.assert_close(found, wanted)
print(len(found))
"""
    assert in_fresh_python(code, TRITON_INTERPRET="1").strip() == "3"


def test_one_row_and_none(device):
    logits, labels = draw(2, 1, device)
    assert_is_the_reference(logits, labels)
    losses, is_correct, statistics, gradient = run(logits[:0], labels[:0])
    assert (losses.shape, is_correct.shape, gradient.shape) == ((0,), (0,), (0, 2))
    assert all(value == 0 for value in statistics.values())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("ignore_index", [-100, 1, 99])
def test_ignored_rows_leave_exact_zeros_whatever_they_hold(ignore_index, device):
    logits = torch.tensor([[1.0, NAN], [2.0, 0.5], [INF, 0.0]], device=device)
    labels = torch.tensor([ignore_index, 0, ignore_index], device=device)
    losses, is_correct, statistics, gradient = run(logits, labels, ignore_index=ignore_index, label_smoothing=0.1)
    assert losses[[0, 2]].tolist() == [0, 0]
    assert gradient[[0, 2]].tolist() == [[0, 0], [0, 0]]
    assert is_correct.tolist() == [False, True, False]
    assert [int(statistics[name]) for name in ("wrong", "correct", "ties", "nonfinite")] == [0, 1, 0, 0]
    assert_is_the_reference(logits[1:2], labels[1:2], ignore_index=ignore_index, label_smoothing=0.1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ties", ["wrong", "argmax"])
@pytest.mark.parametrize(
    "row",
    [
        [NAN, 1.0, 0.0],
        [1.0, NAN, 0.0],
        [2.0, 1.0, NAN],
        [INF, 0.0, 0.0],
        [0.0, INF, 0.0],
        [INF, INF, 0.0],
        [-INF, 1.0, 0.0],
        [1.0, -INF, 0.0],
        [-INF, -INF, -INF],
        [3e38, -3e38, 0.0],
        [-3e38, 3e38, 0.0],
    ],
    ids=str,
)
def test_a_row_with_a_nan_or_an_infinity_goes_as_in_the_reference(row, ties, smoothing, device):
    """NaN, +∞, −∞ or a number as the loss, in or out of C, spoiling which sum: as float32 PyTorch says, row 0 alone."""
    logits, labels = torch.tensor([row, [0.0, 1.0, 0.5]], device=device), torch.tensor([0, 0], device=device)
    fused, plain = (
        run(logits, labels, backend=backend, ties=ties, label_smoothing=smoothing)
        for backend in ("triton", "reference")
    )
    torch.testing.assert_close(fused[0], plain[0], rtol=1e-5, atol=1e-6, equal_nan=True)
    assert torch.equal(fused[1], plain[1])
    for name, value in plain[2].items():
        torch.testing.assert_close(fused[2][name], value, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(fused[3], plain[3], rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_label_that_is_no_class_counts_as_nonfinite_and_reads_nothing_outside(device):
    """Its loss is NaN, so that the run fails by its name at the next look; the other rows are untouched."""
    logits, labels = draw(3, 4, device)
    usual = run(logits, labels)
    for label in (3, -1, 2**40):
        labels[1] = label
        losses, is_correct, statistics, _ = run(logits, labels)
        assert losses[1].isnan()
        assert not is_correct[1]
        assert statistics["nonfinite"] == 1
        assert torch.equal(losses[[0, 2, 3]], usual[0][[0, 2, 3]])


# --- what it is handed ----------------------------------------------------------------------------------------------


def test_upstream_gradients_scale_their_rows(device):
    logits, labels = draw(5, 10, device)
    upstream = torch.linspace(-2, 3, 10, device=device)
    assert_is_the_reference(logits, labels, upstream=upstream, atol=1e-6)
    every, ones = run(logits, labels, upstream=upstream)[3], run(logits, labels)[3]
    assert torch.equal(every, ones * upstream[:, None])


def test_strides_do_not_matter(device):
    """Transposed, every second column, every second label, one row repeated: the same bits as packed tensors."""
    wide, labels = draw(6, 12, device)
    strided_labels = labels.repeat_interleave(2)[::2]
    assert strided_labels.stride() == (2,)
    for strided in (wide.t().contiguous().t(), wide.repeat_interleave(2, dim=1)[:, ::2], wide[:1].expand(12, 6)):
        assert not strided.is_contiguous()
        ours, packed = run(strided, strided_labels), run(strided.contiguous(), labels)
        assert torch.equal(ours[0], packed[0])
        assert torch.equal(ours[3], packed[3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma_as_a_tensor_is_gamma_as_a_number_and_gets_no_gradient(dtype, device):
    logits, labels = draw(5, 10, device)
    gamma = torch.tensor(0.3, dtype=dtype, device=device, requires_grad=True)
    number, tensor = run(logits, labels, 0.3), run(logits, labels, gamma)
    assert torch.equal(number[0], tensor[0])
    assert torch.equal(number[3], tensor[3])
    assert gamma.grad is None
    assert not any(value.requires_grad for value in tensor[2].values())


def test_same_bits_twice_and_in_another_order(device):
    logits, labels = draw(50, 16, device)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1)).to(device)
    first, second, permuted = run(logits, labels), run(logits, labels), run(logits[order], labels[order])
    assert all(torch.equal(first[place], second[place]) for place in (0, 1, 3))
    assert all(torch.equal(first[2][name], second[2][name]) for name in first[2])
    assert all(torch.equal(first[place][order], permuted[place]) for place in (0, 1, 3))


def test_the_scalar_loss_divides_by_m_on_the_device(device):
    """Through the module, with m absent, a number and a tensor; every fifth of 20 labels is ignored, so m = 16."""
    logits, labels = draw(4, 20, device)
    for m in (None, 16, torch.tensor(16, device=device)):
        expected, statistics = dsgd_loss(logits.double(), labels, 0.5, m, backend="reference")
        criterion = DSGDLoss(LinearSchedule(10), backend="triton")
        loss = criterion(logits, labels, step=5, m=m)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
        assert criterion.statistics["wrong"] == statistics["wrong"]


def test_where_no_gradient_is_wanted_none_is_stored(device):
    logits, labels = draw(4, 6, device)
    arguments = (labels, torch.tensor(0.3, device=device), -100, 0.0, True)
    assert torch.ops.dsgd.weighted_losses(logits, *arguments, False)[4].shape == (0, 4)
    with torch.no_grad():
        losses = weighted_losses(logits.clone().requires_grad_(), labels, 0.3, backend="triton").losses
    assert not losses.requires_grad
    assert torch.equal(losses, run(logits, labels)[0])


def test_a_second_derivative_is_refused_rather_than_wrong(device):
    logits, labels = draw(4, 6, device)
    leaf = logits.requires_grad_()
    loss, _ = dsgd_loss(leaf, labels, 0.3, backend="triton")
    with pytest.raises(RuntimeError, match="no second derivative; ask for backend='reference'"):
        torch.autograd.grad(loss, leaf, create_graph=True)


# --- torch.compile --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_operators_are_registered_as_torch_wants_them(dtype, device):
    """Schema, fake implementation, autograd, and ahead-of-time tracing with dynamic shapes."""
    logits, labels = draw(5, 6, device, dtype)
    gamma = torch.tensor(0.3, device=device)
    for with_gradient, leaf in ((True, logits.clone().requires_grad_()), (False, logits)):
        torch.library.opcheck(
            torch.ops.dsgd.weighted_losses.default, (leaf, labels, gamma, -100, 0.1, True, with_gradient)
        )
    torch.library.opcheck(torch.ops.dsgd.scale_rows.default, (logits, gamma.expand(6), dtype))


def test_torch_compile_takes_it_whole_and_once_for_every_gamma(device):
    """One graph without breaks, the same bits; γ and m are tensors, so nothing is traced again."""
    logits, labels = draw(5, 10, device)
    traced = []

    def count(module, inputs):
        traced.append(module)
        return module.forward

    @torch.compile(backend=count, fullgraph=True)
    def compiled(scores, gamma, m):
        return dsgd_loss(scores * 2, labels, gamma, m, backend="triton")[0]

    leaf = logits.clone().requires_grad_()
    for gamma, m in ((0.1, 8), (0.7, 5), (1.0, 3)):
        gamma, m = torch.tensor(gamma, device=device), torch.tensor(m, device=device)
        loss = compiled(leaf, gamma, m)
        expected = dsgd_loss(leaf * 2, labels, gamma, m, backend="triton")[0]
        assert torch.equal(loss, expected)
        assert torch.equal(torch.autograd.grad(loss, leaf)[0], torch.autograd.grad(expected, leaf)[0])
    assert len(traced) == 1


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_a_compiled_step_is_compiled_once_for_gammas_that_are_tensors_and_twice_for_numbers(backend, device):
    """Where each number is a constant of the compiled code (``dynamic=False``), only tensors stay under the limit."""
    logits, labels = draw(5, 10, device)

    def compiled(gammas, **options):
        torch._dynamo.reset()
        counter = CompileCounter()
        step = torch.compile(
            lambda gamma: dsgd_loss(logits, labels, gamma, backend=backend)[0],
            backend=counter, fullgraph=True, **options,
        )  # fmt: skip
        for gamma in gammas:
            step(gamma)
        return counter.frame_count

    numbers = [step / 20 for step in range(21)]
    tensors = [torch.tensor(number, device=device) for number in numbers]
    assert compiled(tensors, dynamic=False) == 1
    assert compiled(tensors) == 1
    assert compiled(numbers) <= 2


def test_torch_compile_differentiates_it_ahead_of_time(device):
    """The joint graph of forward and backward, from the fake implementations."""
    logits, labels = draw(5, 10, device)
    compiled = torch.compile(dsgd_loss, backend="aot_eager", fullgraph=True)
    leaf, gamma = logits.clone().requires_grad_(), torch.tensor(0.3, device=device)
    loss, statistics = compiled(leaf, labels, gamma, backend="triton")
    expected, counts = dsgd_loss(leaf, labels, gamma, backend="triton")
    assert torch.equal(loss, expected)
    assert statistics == counts
    assert torch.equal(torch.autograd.grad(loss, leaf)[0], torch.autograd.grad(expected, leaf)[0])


# --- who computes ---------------------------------------------------------------------------------------------------


def test_on_the_cpu_auto_is_the_reference_bit_for_bit():
    logits, labels = draw(5, 10, "cpu")
    auto, reference = run(logits, labels, backend="auto"), run(logits, labels, backend="reference")
    assert all(torch.equal(auto[place], reference[place]) for place in (0, 1, 3))
    assert auto[0].grad_fn is None


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETED, reason="would run on the CPU")
def test_a_whole_run_with_the_kernel_goes_as_with_the_reference(train, monkeypatch):
    """Accumulated windows, autocast, logging and all; the same run by its id, so the second needs ``force``."""
    overrides = ("trainer.max_steps=4", "trainer.batch_size=4", "trainer.accumulation=2", "runtime.log_every=1")
    reference = history(train(*overrides, "loss.backend=reference"))
    calls = []
    monkeypatch.setattr("dsgd.triton_loss.fused_losses", lambda *a, **b: calls.append(a) or fused_losses(*a, **b))
    fused = history(train(*overrides, "loss.backend=triton", "force=true"))
    assert len(calls) == 2 * len(reference) == 8
    assert fused == pytest.approx(reference, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"normalization": "sum_w"}, "normalization = 'sum_w' weighs by sums over the batch"),
        ({"judge": torch.zeros(10, 5)}, "lets no other logits judge"),
        ({"logits": torch.zeros(10, 5, dtype=torch.float64)}, "the logits are float64"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused_where_it_is_forced(options, words):
    arguments = {"logits": torch.zeros(10, 5), "labels": torch.zeros(10).long(), "gamma": 0.5, **options}
    with pytest.raises(ValueError, match=f"backend = 'triton': .*{words}.*; use 'auto' or 'reference'"):
        weighted_losses(**arguments, backend="triton")
    assert weighted_losses(**arguments).losses.shape == (10,)


def test_an_unknown_backend_is_refused():
    for make in (
        lambda: weighted_losses(torch.zeros(4, 3), torch.zeros(4).long(), 0.5, backend="cuda"),
        lambda: DSGDLoss(LinearSchedule(10), backend="cuda"),
    ):
        with pytest.raises(ValueError, match="backend = 'cuda': must be one of auto, triton, reference"):
            make()


def in_fresh_python(code, **variables):
    """Run ``code`` without the interpreter, at the repository's root; its failures are the test's."""
    root = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment.update(variables, PYTHONPATH=str(root))
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_without_triton_auto_still_works_and_the_refusal_says_so(monkeypatch):
    monkeypatch.setattr("dsgd.loss._HAS_TRITON", False)
    logits, labels = draw(5, 10, "cpu")
    assert run(logits, labels, backend="auto")[0].isfinite().all()
    with pytest.raises(ValueError, match="backend = 'triton': Triton is not installed"):
        run(logits, labels)


def test_on_the_cpu_triton_is_not_imported_and_refused_without_its_interpreter():
    code = """
import sys
import torch
from dsgd.loss import dsgd_loss
dsgd_loss(torch.eye(2), torch.arange(2), 1.0)
print("triton" in sys.modules, end=" ")
try:
    dsgd_loss(torch.eye(2), torch.arange(2), 1.0, backend="triton")
except ValueError as error:
    print(error)
"""
    words = "False backend = 'triton': the logits are on cpu, where Triton needs TRITON_INTERPRET=1 from the start"
    assert in_fresh_python(code).startswith(words)


def test_the_kernel_compiles_for_gpus_that_are_not_there_and_adds_nothing_atomically(tmp_path):
    """For compute capabilities 8.0 and 9.0, down to machine code: what the interpreter cannot vouch for."""
    code = """
import re
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from dsgd.triton_loss import _kernel

pointers = {"labels": "i64", "gamma": "fp32", "losses": "fp32", "is_correct": "i1", "counts": "i32", "sums": "fp32"}
scalars = dict.fromkeys(["columns", "row_stride", "ignore_index"], "i32") | {"smoothing": "fp32"}
variants = [(80, "bf16", "fp32", True, 16, 1), (90, "fp16", "fp32", False, 8192, 16)]
for capability, dtype, stored, flag, block, warps in variants:
    constants = dict.fromkeys(["smoothed", "strict"], flag) | {"with_gradient": True, "block": block}
    constants |= {"column_stride": 1, "label_stride": 1}
    types = {name: "*" + kind for name, kind in pointers.items()} | {"logits": "*" + dtype, "gradient": "*" + stored}
    types |= scalars | dict.fromkeys(constants, "constexpr")
    source = ASTSource(_kernel, {name: types[name] for name in _kernel.arg_names}, {
        (_kernel.arg_names.index(name),): value for name, value in constants.items()
    })
    compiled = compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    print(len(compiled.asm["cubin"]) > 0, len(re.findall(r"\\b(atom|red)\\.", compiled.asm["ptx"])))
"""
    assert in_fresh_python(code, TRITON_CACHE_DIR=str(tmp_path)).split() == ["True", "0"] * 2


# --- the device -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
def test_auto_takes_the_kernel_on_cuda():
    logits, labels = draw(5, 10, "cuda")
    auto, fused = run(logits, labels, backend="auto"), run(logits, labels)
    assert torch.equal(auto[0], fused[0])
    assert torch.equal(auto[3], fused[3])
    leaf = logits.clone().requires_grad_()
    assert "dsgd_weighted_losses" in weighted_losses(leaf, labels, 0.3).losses.grad_fn.name()


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
def test_nothing_waits_for_the_device():
    logits, labels = draw(5, 10, "cuda")
    gamma = torch.tensor(0.3, device="cuda")
    run(logits, labels, gamma)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        for value in (0.1, 0.2, gamma):
            run(logits, labels, value)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
def test_another_gamma_or_number_of_rows_compiles_nothing():
    from dsgd.triton_loss import _kernel

    def compiled():
        return len(_kernel.device_caches[torch.cuda.current_device()][0])

    logits, labels = draw(5, 40, "cuda")
    run(logits, labels, 0.1)
    before = compiled()
    for rows, gamma in ((40, 0.2), (1, 0.0), (16, 1.0), (33, torch.tensor(0.7, device="cuda"))):
        run(logits[:rows], labels[:rows], gamma)
    assert compiled() == before >= 1


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
def test_a_cuda_graph_replays_it_with_new_logits_and_gamma():
    logits, labels = draw(5, 10, "cuda")
    gamma, leaf = torch.tensor(0.1, device="cuda"), logits.clone().requires_grad_()

    def step():
        loss, statistics = dsgd_loss(leaf, labels, gamma, backend="triton")
        return loss, statistics["wrong"], torch.autograd.grad(loss, leaf)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # compiles, and fills the allocator's pools
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        leaf.copy_(-logits)
    gamma.fill_(0.9)
    graph.replay()
    assert all(torch.equal(ours, expected) for ours, expected in zip(captured, step(), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
def test_one_triton_launch_forward_and_none_backward():
    """Forward also sums counts and losses; backward multiplies once (``grad`` of a vector adds nothing of its own)."""
    from torch.profiler import ProfilerActivity, profile

    logits, labels = draw(5, 10, "cuda")
    leaf, gamma, upstream = logits.clone().requires_grad_(), torch.tensor(0.3, device="cuda"), logits.new_ones(10)

    def kernels(action):
        action()  # compiles
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            result = action()
            torch.cuda.synchronize()
        return result, [event.name for event in trace.events() if event.device_type == torch.autograd.DeviceType.CUDA]

    output, forward = kernels(lambda: weighted_losses(leaf, labels, gamma, backend="triton"))
    _, backward = kernels(lambda: torch.autograd.grad(output.losses, leaf, upstream, retain_graph=True))
    assert len(forward) == 3
    assert forward.count("_kernel") == 1
    assert len(backward) == 1
