"""The loss: its gradient is (G_W + γ G_C)/m, and nothing else about it surprises."""

import importlib.metadata
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import dsgd
from dsgd.loss import DSGDLoss, dsgd_loss, is_correct_and_tied, weighted_losses
from dsgd.schedules import LinearSchedule, StaticSchedule

SIZES = [(2, 12), (5, 40), (1000, 24)]  # (K, n)
NAN, INF = math.nan, math.inf


def draw(classes=5, examples=40, dtype=torch.float64, seed=0):
    """Logits and labels with about half of the examples correct, so that neither group is empty."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(examples, classes, dtype=torch.float64, generator=generator)
    labels = torch.randint(classes, (examples,), generator=generator)
    labels[::2] = logits.argmax(dim=1)[::2]
    assert 0 < (logits.argmax(dim=1) == labels).sum() < examples
    return logits.to(dtype), labels


def gradient(logits, labels, gamma, m=None, **options):
    """Loss, statistics and ∂loss/∂logits."""
    leaf = logits.detach().clone().requires_grad_()
    loss, statistics = dsgd_loss(leaf, labels, gamma, m, **options)
    loss.backward()
    return loss.detach(), statistics, leaf.grad


# --- the gradient ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_the_two_groups_gradients_combined(gamma, smoothing):
    """Three backward passes through a model: of Σ_W ℓ, of Σ_C ℓ, and of the loss; groups sorted one by one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).double()
    inputs, labels = torch.randn(30, 6, dtype=torch.float64), torch.randint(4, (30,))
    parameters = list(model.parameters())
    predictions = model(inputs).argmax(dim=1).tolist()
    wrong = [i for i in range(30) if predictions[i] != int(labels[i])]
    correct = [i for i in range(30) if predictions[i] == int(labels[i])]
    assert wrong
    assert correct

    def group_gradient(members):
        total = cross_entropy(model(inputs)[members], labels[members], reduction="sum", label_smoothing=smoothing)
        return torch.autograd.grad(total, parameters)

    loss, _ = dsgd_loss(model(inputs), labels, gamma, label_smoothing=smoothing)
    for ours, g_w, g_c in zip(
        torch.autograd.grad(loss, parameters), group_gradient(wrong), group_gradient(correct), strict=True
    ):
        torch.testing.assert_close(ours, (g_w + gamma * g_c) / 30, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("classes", "examples"), SIZES)
@pytest.mark.parametrize("gamma", [0.0, 0.25, 1.0])
def test_gradient_in_closed_form(classes, examples, gamma):
    """∂L/∂z_i = w_i (p_i − y_i)/m with p the softmax and y the one-hot label."""
    logits, labels = draw(classes, examples)
    weights = torch.where(logits.argmax(dim=1) == labels, gamma, 1.0).double()[:, None]
    expected = weights * (logits.softmax(dim=1) - one_hot(labels, classes)) / examples
    torch.testing.assert_close(gradient(logits, labels, gamma)[2], expected, rtol=1e-12, atol=1e-15)


def test_values_by_hand():
    """Logits (0, ln 3): p = (1/4, 3/4). Label 1 is correct with ℓ = ln 4/3, label 0 wrong with ℓ = ln 4.

    γ = 1/2, m = 2: loss (ln 4 + ½ ln 4/3)/2; gradients ½·½·(¼, −¼) = (1/16, −1/16) and ½·(−¾, ¾) = (−3/8, 3/8).
    """
    logits = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    loss, statistics, grad = gradient(logits, torch.tensor([1, 0]), 0.5)
    assert loss.item() == pytest.approx((math.log(4) + 0.5 * math.log(4 / 3)) / 2)
    assert grad.flatten().tolist() == pytest.approx([1 / 16, -1 / 16, -3 / 8, 3 / 8])
    assert (statistics["wrong"], statistics["correct"], statistics["ties"]) == (1, 1, 0)
    assert statistics["loss_wrong"].item() == pytest.approx(math.log(4))
    assert statistics["loss_correct"].item() == pytest.approx(math.log(4 / 3))


def test_no_gradient_through_the_weights():
    """γ may be a tensor that wants a gradient: it gets none, and the logits' gradient is that of the number."""
    logits, labels = draw()
    gamma = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    _, statistics, grad = gradient(logits, labels, gamma)
    assert gamma.grad is None
    assert torch.equal(grad, gradient(logits, labels, 0.3)[2])
    assert not any(value.requires_grad for value in statistics.values())


def test_zero_weights_leave_zeros_and_not_none():
    """γ = 0 with nothing wrong: the graph stays, so that every parameter has a gradient on every process."""
    logits = torch.eye(3, dtype=torch.float64)
    loss, _, grad = gradient(logits, torch.arange(3), 0.0)
    assert loss == 0
    assert torch.equal(grad, torch.zeros(3, 3, dtype=torch.float64))


# --- γ = 1 is cross-entropy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignore_some", [False, True])
@pytest.mark.parametrize("ties", ["wrong", "argmax"])
@pytest.mark.parametrize("normalization", ["full_m", "sum_w"])
def test_gamma_one_is_cross_entropy_bit_for_bit(dtype, smoothing, ignore_some, ties, normalization):
    """No tolerance. Half precision is compared with the cross-entropy of the logits raised to float32."""
    logits, labels = draw(7, 23, dtype)
    if ignore_some:
        labels[::5] = -100
    m = int((labels != -100).sum())
    leaf = logits.clone().requires_grad_()
    raised = leaf if dtype == torch.float64 else leaf.float()
    plain = cross_entropy(raised, labels, reduction="none", label_smoothing=smoothing).sum() / m
    plain.backward()
    for divisor in (m, None):
        loss, _, grad = gradient(
            logits, labels, 1.0, divisor, label_smoothing=smoothing, ties=ties, normalization=normalization
        )
        assert torch.equal(loss, plain.detach())
        assert torch.equal(grad, leaf.grad)


@pytest.mark.parametrize(
    ("dtype", "loss_dtype", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-15),
        (torch.float32, torch.float32, 1e-6),
        (torch.float16, torch.float32, 1e-6),
        (torch.bfloat16, torch.float32, 1e-6),
    ],
)
def test_precision(dtype, loss_dtype, tolerance):
    """From the same (rounded) logits, half precision loses nothing against a float64 computation."""
    logits, labels = draw(9, 64, dtype)
    loss, statistics, grad = gradient(logits, labels, 0.3)
    exact, _, _ = gradient(logits.double(), labels, 0.3)
    assert (loss.dtype, grad.dtype) == (loss_dtype, dtype)
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
    assert {key: value.dtype for key, value in statistics.items()} == {
        "wrong": torch.int64,
        "correct": torch.int64,
        "ties": torch.int64,
        "nonfinite": torch.int64,
        "loss_wrong": torch.float32,
        "loss_correct": torch.float32,
    }
    assert all(value.ndim == 0 for value in statistics.values())


def test_gamma_keeps_float64_precision():
    """0.1 rounded to float32 is off by 1.5e-9 in relative terms; the float64 path must not round it."""
    logits = torch.eye(2, dtype=torch.float64)
    labels = torch.arange(2)
    plain = cross_entropy(logits, labels).item()
    for gamma in (0.1, torch.tensor(0.1, dtype=torch.float64)):
        assert dsgd_loss(logits, labels, gamma)[0].item() == pytest.approx(0.1 * plain, rel=1e-14)


# --- additivity -----------------------------------------------------------------------------------------------------


def test_micro_batches_add_up_to_the_batch():
    """A window of 40 as 16 + 16 + 8, each part divided by the window's m of 37: same loss, gradient, statistics."""
    logits, labels = draw()
    labels[[3, 20, 39]] = -100
    loss, statistics, grad = gradient(logits, labels, 0.3)
    parts = [gradient(some, label, 0.3, 37) for some, label in zip(logits.split(16), labels.split(16), strict=True)]
    assert [len(part[2]) for part in parts] == [16, 16, 8]
    assert sum(part[0] for part in parts).item() == pytest.approx(loss.item(), rel=1e-14)
    torch.testing.assert_close(torch.cat([part[2] for part in parts]), grad, rtol=1e-12, atol=1e-16)
    for key, value in statistics.items():
        assert sum(part[1][key] for part in parts).item() == pytest.approx(value.item(), rel=1e-6)


def test_mean_of_micro_batch_means_is_something_else():
    """Two examples with losses a and b, split as {a, a} + {b}: the mean of means weighs b by 1/2 and not 1/3."""
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 5.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0])
    whole = dsgd_loss(logits, labels, 0.5)[0]
    means = (dsgd_loss(logits[:2], labels[:2], 0.5)[0] + dsgd_loss(logits[2:], labels[2:], 0.5)[0]) / 2
    sums = dsgd_loss(logits[:2], labels[:2], 0.5, 3)[0] + dsgd_loss(logits[2:], labels[2:], 0.5, torch.tensor(3))[0]
    assert sums.item() == pytest.approx(whole.item())
    assert abs(means - whole) > 0.5


def test_examples_do_not_see_each_other():
    """Permuting the batch permutes the losses, bit for bit."""
    logits, labels = draw()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    output, permuted = weighted_losses(logits, labels, 0.3), weighted_losses(logits[order], labels[order], 0.3)
    assert torch.equal(output.losses[order], permuted.losses)
    assert torch.equal(output.is_correct[order], permuted.is_correct)


# --- groups ---------------------------------------------------------------------------------------------------------


def test_all_correct_is_gamma_times_cross_entropy():
    logits, labels = draw()[0], draw()[0].argmax(dim=1)
    loss, statistics, _ = gradient(logits, labels, 0.3)
    assert loss.item() == pytest.approx(0.3 * cross_entropy(logits, labels).item())
    assert (statistics["wrong"], statistics["correct"], statistics["loss_wrong"]) == (0, 40, 0)


def test_all_wrong_is_cross_entropy_whatever_gamma():
    logits, labels = draw()[0], draw()[0].argmin(dim=1)
    loss, statistics, _ = gradient(logits, labels, 0.0)
    assert loss == dsgd_loss(logits, labels, 1.0)[0]
    assert loss.item() == pytest.approx(cross_entropy(logits, labels).item())
    assert (statistics["wrong"], statistics["correct"], statistics["loss_correct"]) == (40, 0, 0)


TIE_ROWS = [
    # logits, label, correct by the strict rule, correct by argmax, tied at the top
    ([2.0, 2.0, 0.0], 0, False, True, True),  # argmax takes the first
    ([2.0, 2.0, 0.0], 1, False, False, True),
    ([2.0, 2.0, 0.0], 2, False, False, False),  # a tie, but not with the true class
    ([1.0, 1.0, 3.0], 2, True, True, False),  # a tie below the top
    ([0.0, 0.0, 0.0], 0, False, True, True),  # what a zero-initialised head says
    ([-1.0, 4.0, 0.0], 1, True, True, False),
]


@pytest.mark.parametrize(("ties", "column"), [("wrong", 2), ("argmax", 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_ties(ties, column, dtype):
    logits = torch.tensor([row[0] for row in TIE_ROWS], dtype=dtype)
    labels = torch.tensor([row[1] for row in TIE_ROWS])
    output = weighted_losses(logits, labels, 0.5, ties=ties)
    plain = cross_entropy(logits.double(), labels, reduction="none")
    expected = torch.tensor([row[column] for row in TIE_ROWS])
    assert torch.equal(output.is_correct, expected)
    torch.testing.assert_close(output.losses.double(), plain * torch.where(expected, 0.5, 1.0), rtol=1e-5, atol=0)
    assert output.statistics["ties"] == sum(row[4] for row in TIE_ROWS) == 3


def test_ties_default_to_wrong():
    logits, labels = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    assert dsgd_loss(logits, labels, 0.5)[1]["wrong"] == 4
    assert dsgd_loss(logits, labels, 0.5, ties="argmax")[1]["wrong"] == 0


def test_label_smoothing_changes_the_loss_and_not_the_groups():
    """K = 2, smoothing 0.6: the soft target is (0.3, 0.7), logits (0, ln 4) have p = (1/5, 4/5).

    ℓ = −0.3 ln 1/5 − 0.7 ln 4/5; the hard label 1 is the prediction, so γ = 1/2 applies.
    """
    logits = torch.tensor([[0.0, math.log(4)]], dtype=torch.float64)
    output = weighted_losses(logits, torch.tensor([1]), 0.5, label_smoothing=0.6)
    assert output.is_correct.item()
    assert output.losses.item() == pytest.approx(0.5 * (0.3 * math.log(5) + 0.7 * math.log(5 / 4)))


# --- ignored labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["full_m", "sum_w", "per_group"])
@pytest.mark.parametrize("ignore_index", [-100, 0, 99])
def test_ignored_examples_are_as_if_absent(normalization, ignore_index):
    """Even with NaN in their logits: loss, gradient and statistics are those of the batch without them."""
    logits, labels = draw()
    labels = labels.clamp(min=1)  # so that 0 can serve as the ignored label
    dropped = torch.tensor([0, 7, 8, 39])
    kept = torch.tensor([i for i in range(40) if i not in dropped.tolist()])
    logits[dropped], labels[dropped] = NAN, ignore_index
    options = {"normalization": normalization, "ignore_index": ignore_index, "label_smoothing": 0.1}
    loss, statistics, grad = gradient(logits, labels, 0.3, **options)
    kept_loss, kept_statistics, kept_grad = gradient(logits[kept], labels[kept], 0.3, **options)
    assert loss.item() == pytest.approx(kept_loss.item(), rel=1e-14)
    torch.testing.assert_close(grad[kept], kept_grad, rtol=1e-12, atol=1e-16)
    assert torch.equal(grad[dropped], torch.zeros(4, 5, dtype=torch.float64))
    output = weighted_losses(logits, labels, 0.3, **options)
    assert torch.equal(output.losses[dropped], torch.zeros(4, dtype=torch.float64))
    assert not output.is_correct[dropped].any()
    for key, value in kept_statistics.items():
        assert statistics[key].item() == pytest.approx(value.item(), rel=1e-6)


@pytest.mark.parametrize("normalization", ["full_m", "sum_w", "per_group"])
@pytest.mark.parametrize("examples", [0, 3])
def test_nothing_valid_gives_zero_and_not_nan(normalization, examples):
    """All ignored, or no example at all: an empty last shard of a process."""
    labels = torch.full((examples,), -100)
    loss, statistics, grad = gradient(torch.randn(examples, 4), labels, 0.5, normalization=normalization)
    assert loss == 0
    assert torch.equal(grad, torch.zeros(examples, 4))
    assert all(value == 0 for value in statistics.values())


# --- non-finite numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["wrong", "argmax"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_row_is_wrong_and_counted_and_alone(ties, place):
    """``argmax`` returns a NaN's own index, so a NaN at the true class would pass for correct (place 0).

    Every other row keeps its loss and gradient bit for bit, and only W's sum is spoilt.
    """
    logits, labels = draw(3)
    labels[4] = 0
    leaf = logits.clone()
    leaf[4, place] = NAN
    leaf.requires_grad_()
    output = weighted_losses(leaf, labels, 0.3, ties=ties)
    output.losses.sum().backward()
    clean = logits.clone().requires_grad_()
    expected = weighted_losses(clean, labels, 0.3, ties=ties)
    expected.losses.sum().backward()
    others = torch.arange(40) != 4
    assert not output.is_correct[4]
    assert output.losses[4].isnan()
    assert torch.equal(output.losses[others], expected.losses[others])
    assert torch.equal(output.is_correct[others], expected.is_correct[others])
    assert torch.equal(leaf.grad[others], clean.grad[others])
    assert output.statistics["nonfinite"] == 1
    assert output.statistics["wrong"] + output.statistics["correct"] == 40
    assert output.statistics["loss_wrong"].isnan()
    assert output.statistics["loss_correct"].isfinite()


def test_an_infinite_winner_is_correct_and_spoils_only_its_own_group():
    """+inf at the true class is the highest logit, yet ℓ = ∞ − ∞: C's sum is NaN, W's stays ln 4."""
    logits = torch.tensor([[INF, 0.0], [0.0, math.log(3)]])
    statistics = weighted_losses(logits, torch.tensor([0, 0]), 0.5).statistics
    assert (statistics["wrong"], statistics["correct"], statistics["nonfinite"]) == (1, 1, 1)
    assert statistics["loss_correct"].isnan()
    assert statistics["loss_wrong"].item() == pytest.approx(math.log(4))


def test_what_counts_as_nonfinite():
    """Row by row: finite, NaN, +inf, −inf beside a finite loss, an overflowing loss, NaN on an ignored row."""
    most = torch.finfo(torch.float32).max
    rows = [[0.0, 1.0], [NAN, 1.0], [INF, 1.0], [-INF, 1.0], [most, -most], [NAN, NAN]]
    labels = torch.tensor([1, 1, 1, 1, 1, -100])
    counts = [
        weighted_losses(torch.tensor([row]), label[None], 0.5).statistics["nonfinite"].item()
        for row, label in zip(rows, labels, strict=True)
    ]
    assert counts == [0, 1, 1, 1, 1, 0]
    assert weighted_losses(torch.tensor(rows), labels, 0.5).statistics["nonfinite"] == 4


# --- ablations ------------------------------------------------------------------------------------------------------


def test_ablations_by_hand():
    """Three wrong with ℓ = ln 4 and one correct with ℓ = ln 4/3 (as above), γ = 1/2, m = 4.

    full_m (3 ln 4 + ½ ln 4/3)/4; sum_w the same over Σw = 3.5; per_group the mean ln 4 plus ½ times the mean ln 4/3.
    """
    logits = torch.tensor([[0.0, math.log(3)]] * 4, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 0])
    wrong, correct = math.log(4), math.log(4 / 3)
    expected = {
        "full_m": (3 * wrong + correct / 2) / 4,
        "sum_w": (3 * wrong + correct / 2) / 3.5,
        "per_group": wrong + correct / 2,
    }
    for normalization, value in expected.items():
        assert dsgd_loss(logits, labels, 0.5, normalization=normalization)[0].item() == pytest.approx(value)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_ablations_with_an_empty_group(gamma):
    """All wrong: both are the mean loss. All correct: sum_w is the mean loss, or 0 at γ = 0; per_group γ times it."""
    logits = draw()[0]
    for labels, sum_w, per_group in [
        (logits.argmin(dim=1), 1.0, 1.0),
        (logits.argmax(dim=1), float(gamma > 0), gamma),
    ]:
        mean = cross_entropy(logits, labels).item()
        for normalization, factor in [("sum_w", sum_w), ("per_group", per_group)]:
            loss, _, grad = gradient(logits, labels, gamma, normalization=normalization)
            assert loss.item() == pytest.approx(factor * mean)
            assert grad.isfinite().all()


# --- the device -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["full_m", "sum_w", "per_group"])
@pytest.mark.parametrize("ties", ["wrong", "argmax"])
def test_no_value_is_read_on_the_host(normalization, ties):
    """On the meta device, which holds no values, any ``.item()`` or branch on a tensor raises."""
    logits, labels = torch.empty(4, 3, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
    gamma, m = torch.empty((), device="meta"), torch.empty((), dtype=torch.int64, device="meta")
    with pytest.raises(RuntimeError):
        gamma.item()
    for divisor in (None, m):
        loss, statistics = dsgd_loss(logits, labels, gamma, divisor, normalization=normalization, ties=ties)
        assert loss.device == statistics["wrong"].device == torch.device("meta")


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "labels", "error", "words"),
    [
        (torch.zeros(4), torch.zeros(4).long(), ValueError, r"logits of shape \(4,\): must be \(n, K\)"),
        (torch.zeros(4, 1), torch.zeros(4).long(), ValueError, "K >= 2.*single-logit"),
        (torch.zeros(2, 4, 3), torch.zeros(2, 4).long(), ValueError, r"must be \(n, K\)"),
        (torch.zeros(4, 3).long(), torch.zeros(4).long(), TypeError, "must be floating-point"),
        (torch.zeros(4, 3), torch.zeros(4), TypeError, "must be int64.*soft targets"),
        (torch.zeros(4, 3), torch.zeros(4, 3), TypeError, "must be int64.*multi-label"),
        (torch.zeros(4, 3), torch.zeros(4).int(), TypeError, "must be int64"),
        (torch.zeros(4, 3), torch.zeros(4, 3).long(), ValueError, r"must be \(4,\).*multi-label"),
        (torch.zeros(4, 3), torch.zeros(3).long(), ValueError, r"labels of shape \(3,\): must be \(4,\)"),
    ],
)
def test_undefined_targets_are_refused(logits, labels, error, words):
    with pytest.raises(error, match=words):
        dsgd_loss(logits, labels, 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": 2.0}, r"gamma = 2.0: must lie in \[0, 1\]"),
        ({"gamma": NAN}, r"gamma = nan: must lie in \[0, 1\]"),
        ({"gamma": torch.ones(4)}, "must be a number or a 0-d tensor"),
        ({"m": 0}, "m = 0: must be at least 1"),
        ({"label_smoothing": 1.0}, r"label_smoothing = 1.0: must lie in \[0, 1\)"),
        ({"ties": "right"}, "ties = 'right': must be one of wrong, argmax"),
        ({"normalization": "mean"}, "normalization = 'mean': must be one of full_m, sum_w, per_group"),
    ],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        dsgd_loss(torch.zeros(4, 3), torch.zeros(4).long(), **{"gamma": 0.5, **options})


@pytest.mark.parametrize("options", [{"label_smoothing": -0.1}, {"ties": "right"}, {"normalization": "mean"}])
def test_module_refuses_options_when_it_is_made(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        DSGDLoss(StaticSchedule(0.5), **options)


# --- the module and the package -------------------------------------------------------------------------------------


def test_module_reads_gamma_off_the_step_and_keeps_the_statistics():
    logits, labels = draw()
    labels[5] = 99
    options = {"label_smoothing": 0.1, "ties": "argmax", "normalization": "sum_w", "ignore_index": 99}
    criterion = DSGDLoss(LinearSchedule(10, 0.8), **options)
    assert criterion.statistics == {}
    for step, m in [(1, None), (5, 64), (10, torch.tensor(80))]:
        expected, statistics = dsgd_loss(logits, labels, 0.8 * (step / 10), m, **options)
        assert torch.equal(criterion(logits, labels, step=step, m=m), expected)
        assert criterion.statistics == statistics
    assert not list(criterion.parameters())
    assert not criterion.state_dict()


def test_groups_can_be_asked_for_alone():
    """What diagnostics use: the same function decides, and labels outside ``valid`` are not looked at."""
    scores = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    labels, valid = torch.tensor([0, 1, 0, -100]), torch.tensor([True, True, True, False])
    is_correct, is_tied = is_correct_and_tied(scores, labels, valid, "wrong")
    assert is_correct.tolist() == [True, False, False, False]
    assert is_tied.tolist() == [False, False, True, False]


def in_fresh_python(code):
    """Run ``code`` in a new interpreter at the repository's root; its failures are the test's."""
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_the_package_leaves_torch_alone():
    loaded = in_fresh_python("import sys, dsgd, dsgd.schedules; print(dsgd.LinearSchedule.__name__, *sys.modules)")
    assert "dsgd.schedules" in loaded
    assert "torch" not in loaded
    assert "hydra" not in loaded


def test_the_loss_needs_torch_alone():
    """It loads none of the suite, and a step works where none of it, not even numpy, can be imported."""
    others = ["hydra", "omegaconf", "transformers", "pandas", "numpy"]
    loaded = in_fresh_python("import sys; from dsgd import DSGDLoss, LinearSchedule; print(*sys.modules)")
    assert {"torch", "dsgd.loss"} <= set(loaded)
    assert not {"hydra", "omegaconf", "transformers", "dsgd.config"} & set(loaded)
    code = f"""
import sys
sys.modules.update(dict.fromkeys({others}))
import torch
from dsgd import DSGDLoss, LinearSchedule
print(DSGDLoss(LinearSchedule(10))(torch.eye(2), torch.arange(2), step=5).item())
"""
    assert float(in_fresh_python(code)[0]) == pytest.approx(0.5 * math.log(1 + math.exp(-1)))


def test_public_names():
    from dsgd.schedules import CosineSchedule, DescendingSchedule

    assert dsgd.DSGDLoss is DSGDLoss
    assert dsgd.dsgd_loss is dsgd_loss
    assert (dsgd.LinearSchedule, dsgd.StaticSchedule) == (LinearSchedule, StaticSchedule)
    assert (dsgd.CosineSchedule, dsgd.DescendingSchedule) == (CosineSchedule, DescendingSchedule)
    assert set(dsgd.__all__) <= set(dir(dsgd))
    assert all(hasattr(dsgd, name) for name in dsgd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'DSGDLos'"):
        dsgd.DSGDLos  # noqa: B018 - looking it up is the test


def test_version_with_and_without_an_installation(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} 9.9")
    assert dsgd.__version__ == "dsgd 9.9"

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert dsgd.__version__ == "0+unknown"


def test_a_non_finite_logit_raises_at_once_where_asked():
    criterion = DSGDLoss(StaticSchedule(0.5), check_finite=True)
    logits = torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])
    with pytest.raises(FloatingPointError, match="1 non-finite losses or logits at step 3"):
        criterion(logits, torch.tensor([0, 1]), step=3)
