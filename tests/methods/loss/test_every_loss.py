"""What holds for each loss whatever its weights: verdicts, statistics, ignored examples, precision, splitting."""

import math

import pytest
import torch

from dsgd.config import parts
from dsgd.loss import IGNORED, by_label
from dsgd.methods import build
from dsgd.methods.contracts import Step
from dsgd.schedules import LinearSchedule

STEP = Step(9, 10)  # LDAM's deferred weights act
COUNTS = [50, 20, 5, 0]
CONFIGS = [kind() for kind in parts.PARTS["loss"]]
SHARED = ("wrong", "correct", "ties", "nonfinite", "loss_wrong", "loss_correct")

DTYPES = (torch.bfloat16, torch.float32, torch.float64)

each_loss = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
each_splittable_loss = pytest.mark.parametrize(
    "config", [config for config in CONFIGS if not config.needs_whole_window()], ids=lambda config: config.name
)


def made(config):
    return build("loss", config, schedule=LinearSchedule(10), class_counts=COUNTS)


def draw(dtype=torch.float64, examples=24):
    """Logits of four classes and labels of the three that have training examples; a third correct, some ignored."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(examples, 4, dtype=torch.float64, generator=generator).to(dtype)
    labels = torch.randint(3, (examples,), generator=generator)
    labels[::3] = logits[:, :3].argmax(dim=1)[::3]
    labels[1::7] = IGNORED
    return logits, labels


def result(config, logits, labels):
    """Output and gradient of the summed losses, from a new part and a new random state."""
    torch.manual_seed(0)
    leaf = logits.clone().requires_grad_()
    output = made(config).per_example(leaf, labels, STEP)
    output.losses.sum().backward()
    return output, leaf.grad


@each_loss
def test_verdicts_and_shared_statistics_are_cross_entropy_s(config):
    """They describe the raw logits: no weight, shift or margin enters them."""
    output, _ = result(config, *draw())
    plain, _ = result(parts.CrossEntropy(), *draw())
    assert torch.equal(output.is_correct, plain.is_correct)
    assert {key: output.statistics[key] for key in SHARED} == plain.statistics
    assert 0 < plain.statistics["correct"] < plain.statistics["wrong"]


@each_loss
def test_own_statistics_bear_the_part_s_name_and_no_gradient(config):
    statistics = result(config, *draw())[0].statistics
    assert all(key in SHARED or key.startswith(config.name + "/") for key in statistics)
    assert all(value.ndim == 0 and not value.requires_grad for value in statistics.values())


@pytest.mark.parametrize(
    "config",
    [config for config in CONFIGS if config.name != "random_correct"],  # draws otherwise for another number of rows
    ids=lambda config: config.name,
)
def test_ignored_examples_change_nothing(config):
    """Loss and gradient are 0 even where their logits are NaN; the others' are those of a call without them."""
    logits, labels = draw()
    ignored = labels == IGNORED
    logits[ignored] = math.nan
    output, grad = result(config, logits, labels)
    kept, kept_grad = result(config, logits[~ignored], labels[~ignored])
    assert not output.losses[ignored].any()
    assert not grad[ignored].any()
    torch.testing.assert_close(output.losses[~ignored], kept.losses, rtol=1e-12, atol=0)
    torch.testing.assert_close(grad[~ignored], kept_grad, rtol=1e-12, atol=1e-16)
    for key, value in kept.statistics.items():
        torch.testing.assert_close(output.statistics[key], value, rtol=1e-6, atol=0)


@each_loss
@pytest.mark.parametrize("examples", [0, 3])
def test_nothing_valid_gives_zeros(config, examples):
    output, grad = result(config, torch.randn(examples, 4), torch.full((examples,), IGNORED))
    assert torch.equal(output.losses.detach(), torch.zeros(examples))
    assert torch.equal(grad, torch.zeros(examples, 4))
    assert all(value == 0 for value in output.statistics.values())


@each_loss
def test_precision_is_kept_and_half_is_raised(config):
    """bfloat16 is computed as the float32 that it stands for; float64 agrees with float32 to the latter's precision."""
    logits, labels = draw(torch.bfloat16)
    half, single, double = (result(config, logits.to(kind), labels)[0].losses for kind in DTYPES)
    assert (half.dtype, single.dtype, double.dtype) == (torch.float32, torch.float32, torch.float64)
    assert torch.equal(half, single)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6)
    assert not torch.equal(double, single.double())


@each_loss
def test_values_are_not_read_on_the_host(config):
    """The meta device holds no values: any ``.item()`` or branch on a tensor raises."""
    logits, labels = torch.empty(6, 4, device="meta"), torch.empty(6, dtype=torch.int64, device="meta")
    output = made(config).per_example(logits, labels, STEP)
    assert output.losses.device == torch.device("meta")


@each_splittable_loss
def test_micro_batches_add_up_to_the_window(config):
    """METHODS 17 (2): losses, verdicts and sums of two uneven parts are the whole's."""
    logits, labels = draw()
    whole, whole_grad = result(config, logits, labels)
    parts_of_it = [result(config, logits[rows], labels[rows]) for rows in (slice(0, 5), slice(5, None))]
    outputs = [output for output, _ in parts_of_it]
    assert torch.equal(torch.cat([output.losses for output in outputs]), whole.losses)
    assert torch.equal(torch.cat([grad for _, grad in parts_of_it]), whole_grad)
    for key, value in whole.statistics.items():
        torch.testing.assert_close(sum(output.statistics[key] for output in outputs), value, rtol=1e-6, atol=0)


def test_the_losses_that_rank_or_average_ask_for_the_whole_window():
    assert {config.name for config in CONFIGS if config.needs_whole_window()} == {
        "ohem",
        "random_correct",
        "uniform_shrink",
    }


def test_values_by_label_are_zero_where_ignored():
    values = by_label(torch.tensor([5.0, math.nan, 7.0]), torch.tensor([2, IGNORED, 0]))
    assert values.tolist() == [7.0, 0.0, 5.0]
