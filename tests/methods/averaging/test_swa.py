"""Checkpoint averaging: which steps, which mean, nothing lost on the way back or in a resumed run."""

import io

import pytest
import torch
from torch import nn

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.averaging.swa import checkpoint_steps
from dsgd.methods.contracts import Step
from helpers import random_batch, tiny_classifier


class Path(nn.Module):
    """A model whose weights follow a known path: at step t each is t², beside what must not be averaged."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=dtype))
        self.tied = self.weight
        self.frozen = nn.Parameter(torch.full((2,), 5.0), requires_grad=False)
        self.register_buffer("running", torch.zeros(1))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def stand_at(self, step):
        with torch.no_grad():
            for tensor in (self.weight, self.running, self.count):
                tensor.fill_(step**2)


def swa(total, **fields):
    return build("averaging", parts.SWA(**fields), total_steps=total)


def walked(part, total, first=1, model=None):
    model = model or Path()
    for number in range(first, total + 1):
        model.stand_at(number)
        part.update(model, Step(number, total))
    return model


def saved_and_loaded(state):
    """As a checkpoint does it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("checkpoints", "total", "expected"),
    [
        (10, 100, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
        (3, 10, [3, 7, 10]),  # 10/3 and 20/3 rounded
        (10, 4, [1, 2, 3, 4]),  # fewer steps than checkpoints: each once, and none at 0
        (1, 7, [7]),
    ],
)
def test_checkpoints_are_equally_spaced_and_the_last_ends_the_run(checkpoints, total, expected):
    assert checkpoint_steps(checkpoints, total) == expected


def test_pinned_means():
    """Ten checkpoints of T = 20 at 2, 4, …, 20: the last three squares are 256, 324, 400, the last five also 144, 196.

    980/3 and 1320/5 = 264.
    """
    part = swa(20)
    model = walked(part, 20)
    with part.result(model):
        assert model.weight.tolist() == pytest.approx([980 / 3] * 2)
    variants = part.variants(model)
    assert list(variants) == ["swa3", "swa5"]
    for name, expected in (("swa3", 980 / 3), ("swa5", 264.0)):
        with variants[name] as averaged:
            assert averaged is model
            assert model.weight.tolist() == pytest.approx([expected] * 2)


def test_the_first_k_is_the_result():
    part = swa(20, last=[5, 3])
    model = walked(part, 20)
    with part.result(model):
        assert model.weight[0].item() == pytest.approx(264.0)


def test_the_mean_of_equal_checkpoints_is_the_checkpoint_bit_for_bit():
    """METHODS 17 (8), for numbers whose multiples and thirds are rounded, in single and double precision."""
    for dtype in (torch.float32, torch.float64):
        model = tiny_classifier(dtype=dtype)
        part = swa(20, last=[3, 5, 7])
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for number in range(1, 21):
            part.update(model, Step(number, 20))
        for weights in part.variants(model).values():
            with weights:
                assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_mean_is_what_double_precision_says():
    torch.manual_seed(0)
    model, part, seen = Path(), swa(10, last=[7]), []
    for number in range(1, 11):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2))
        seen.append(model.weight.detach().double().clone())
        part.update(model, Step(number, 10))
    with part.result(model):
        assert torch.allclose(model.weight.double(), torch.stack(seen[-7:]).mean(0), rtol=1e-6, atol=1e-7)


def test_the_trained_weights_return_exactly_even_after_an_error():
    part = swa(20)
    model = walked(part, 20)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with part.result(model):
        assert not torch.equal(model.weight, before["weight"])
    assert torch.equal(model.weight, before["weight"])
    with pytest.raises(RuntimeError, match="while evaluating"), part.result(model):
        raise RuntimeError("while evaluating")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.weight.requires_grad


def test_buffers_that_float_are_averaged_and_others_stay():
    part = swa(20)
    model = walked(part, 20)
    with part.result(model):
        assert model.running.item() == pytest.approx(980 / 3)
        assert model.count.item() == 400
        assert model.frozen.tolist() == [5.0, 5.0]
        assert model.tied is model.weight


def test_only_checkpoints_that_can_count_are_kept():
    """Up to the fifth last, step 12 of 20, nothing is stored."""
    part = swa(20)
    walked(part, 11)
    assert part.state_dict() == {"means": {3: {}, 5: {}}}


def test_fewer_checkpoints_than_asked_for_are_all_averaged_and_counted():
    """T = 2: the mean of 1 and 4, for three as for five."""
    part = swa(2)
    model = walked(part, 2)
    assert part.summary() == {"checkpoints_swa3": 2, "checkpoints_swa5": 2}
    assert swa(20).summary() == {"checkpoints_swa3": 3, "checkpoints_swa5": 5}
    for weights in part.variants(model).values():
        with weights:
            assert model.weight[0].item() == pytest.approx(2.5)


def test_a_resumed_average_is_the_uninterrupted_one():
    """Stopped at 17, within the window of both means."""
    whole, first, second = swa(20), swa(20), swa(20)
    model = walked(whole, 20)
    walked(first, 17)
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    other = walked(second, 20, first=18)
    with whole.result(model), second.result(other):
        assert torch.equal(model.weight, other.weight)


def test_evaluation_is_of_the_averaged_model():
    """The logits are those of a second model that was given the mean by hand."""
    part, batch = swa(2, checkpoints=2, last=[2]), random_batch()
    model, one, two = tiny_classifier(), tiny_classifier(seed=1), tiny_classifier(seed=2)
    for number, source in enumerate((one, two), start=1):
        model.load_state_dict(source.state_dict())
        part.update(model, Step(number, 2))
    by_hand = tiny_classifier()
    mean = {
        name: (tensor + two.state_dict()[name]) / 2 if tensor.is_floating_point() else tensor
        for name, tensor in one.state_dict().items()
    }
    by_hand.load_state_dict(mean)
    with part.result(model), torch.no_grad():
        assert torch.allclose(model(**batch.inputs), by_hand(**batch.inputs), rtol=0, atol=1e-12)


def test_a_run_reports_each_k_and_which_is_its_own(train):
    """Four steps hold four checkpoints."""
    metrics = train("method=swa").metrics
    assert metrics["accuracy"] == metrics["accuracy_swa3"]
    assert {"accuracy_swa5", "status_swa3", "status_swa5"} <= set(metrics)
