"""AdaLoRA: its budget over the steps, its orthogonality term against peft's, and a stop in the middle."""

import copy

import pytest
import torch
from peft import AdaLoraConfig
from torch.nn.functional import cross_entropy

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.adapter.adalora import budget_clock, distance_from_orthogonal
from dsgd.methods.contracts import Step
from helpers import random_batch, tiny_classifier

CONFIG = parts.AdaLoRA(initial_r=8, target_r=2)


class Loop:
    """The training loop's order of calls, on two layers and one batch a step."""

    def __init__(self, total, config=CONFIG):
        self.total = total
        self.part = build("adapter", config, adapter_seed=0, total_steps=total)
        self.model = self.part(tiny_classifier())
        weights = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(weights, lr=5e-3)

    def run(self, first, last):
        """The rank sums of steps ``first`` to ``last``."""
        sums = []
        for number in range(first, last + 1):
            batch = random_batch(seed=number)
            self.optimizer.zero_grad()
            cross_entropy(self.model(**batch.inputs), batch.labels).backward()
            self.part.penalty(self.model).backward()
            self.optimizer.step()
            sums.append(self.part.after_step(self.model, Step(number, self.total))["adalora/rank_sum"].item())
        return sums

    def active(self):
        """Singular values that are not zero."""
        return sum(int((value != 0).sum()) for name, value in self.model.named_parameters() if "lora_E" in name)


def test_the_rank_sum_falls_to_the_budget_by_the_start_of_the_final_phase():
    """METHODS 17 (13), 8 → 2 on 2·2 matrices: T = 40, warm-up 4, final 12, so 32 to step 4 and 8 from step 28.

    In between the budget is 8 + 24·(1 − (t − 4)/24)³, rounded down.
    """
    loop = Loop(40)
    sums = loop.run(1, 40)
    falling = [int(8 + 24 * (1 - (step - 4) / 24) ** 3) for step in range(5, 28)]
    assert sums == [32] * 4 + falling + [8] * 13
    assert loop.active() == 8


def test_no_rank_is_cut_before_the_warm_up_ends():
    loop = Loop(40)
    loop.run(1, 4)
    assert loop.active() == 32


def test_the_clock_in_peft_s_words():
    """T = 200 as on COPA: warm-up 20, final 60, a cut every 2 steps."""
    assert budget_clock(200, 0.1, 0.3) == {"total_step": 200, "tinit": 20, "tfinal": 60, "deltaT": 2}


@pytest.mark.parametrize("total", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("warmup", "final"), [(0.0, 0.0), (0.1, 0.3), (0.5, 0.49), (0.0, 0.99)])
def test_the_shortest_runs_go_through(total, warmup, final):
    """peft refuses a clock without a budget phase, and fails where the last cut is at the first step."""
    AdaLoraConfig(**budget_clock(total, warmup, final))
    config = parts.AdaLoRA(initial_r=8, target_r=2, warmup=warmup, final=final)
    assert len(Loop(total, config).run(1, total)) == total


def test_the_penalty_is_what_peft_adds_to_a_model_s_own_loss():
    """Of a loss that is computed outside of the model peft knows nothing."""
    loop, batch = Loop(10), random_batch()
    loop.run(1, 3)
    penalty = loop.part.penalty(loop.model)
    with_term = loop.part.tuner(**batch.inputs, labels=batch.labels).loss
    plain = cross_entropy(loop.model(**batch.inputs), batch.labels)
    assert penalty > 0.1
    assert torch.allclose(with_term - plain, penalty, rtol=1e-10)


def test_the_penalty_pushes_both_factors_and_nothing_else():
    loop = Loop(10)
    loop.part.penalty(loop.model).backward()
    pushed = {name.split(".")[-2] for name, value in loop.model.named_parameters() if value.grad is not None}
    assert pushed == {"lora_A", "lora_B"}


@pytest.mark.parametrize(
    ("factor", "distance"),
    [([[2.0, 0.0], [0.0, 1.0]], 3.0), ([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]], 0.0), ([[1.0, 1.0], [1.0, 1.0]], 10**0.5)],
)
def test_distance_from_orthogonal_rows(factor, distance):
    """diag(4, 1) − I = diag(3, 0); orthonormal rows; [[2, 2], [2, 2]] − I with squares 1 + 4 + 4 + 1."""
    found = distance_from_orthogonal(torch.tensor(factor, dtype=torch.float64))
    assert found.item() == pytest.approx(distance, abs=1e-12)


def test_the_output_is_that_of_merged_weights():
    """W + α/(r + 1e-5)·P·Λ·Q, peft's guard of a zero rank included."""
    loop, batch = Loop(40), random_batch()
    loop.run(1, 30)
    merged = tiny_classifier()
    merged.head.load_state_dict(loop.model.head.state_dict())
    for number, block in enumerate(loop.model.blocks):
        for layer in ("query", "value"):
            adapted = block.get_submodule(f"attention.self.{layer}")
            a, e, b = (getattr(adapted, f"lora_{letter}")["default"] for letter in "AEB")
            with torch.no_grad():
                merged.blocks[number].get_submodule(f"attention.self.{layer}").weight += 8.0 / (8 + 1e-5) * b @ (e * a)
    assert torch.allclose(loop.model(**batch.inputs), merged(**batch.inputs), rtol=0, atol=1e-12)


def test_the_constant_rank_is_no_parameter_that_trains():
    """Moving it to another dtype or device makes it one, as far as peft is concerned."""
    loop = Loop(10)
    ranks = [value for name, value in loop.model.named_parameters() if "ranknum" in name]
    loop.run(1, 3)
    assert len(ranks) == 4
    assert all(not value.requires_grad and value.item() == 8 for value in ranks)


def continued(stop, tmp_path, with_state=True):
    """A loop that was saved after step ``stop`` of 40 and goes on in fresh objects."""
    first = Loop(40)
    first.run(1, stop)
    torch.save([first.model.state_dict(), first.optimizer.state_dict(), first.part.state_dict()], tmp_path / "state")
    model, optimizer, part = torch.load(tmp_path / "state", weights_only=True)
    second = Loop(40)
    second.model.load_state_dict(model)
    second.optimizer.load_state_dict(optimizer)
    if with_state:
        second.part.load_state_dict(part)
    return second


@pytest.mark.parametrize("stop", [2, 15, 28, 33])
def test_a_resumed_run_ends_as_an_uninterrupted_one(stop, tmp_path):
    """In the warm-up, while ranks are cut, at the last cut and after it."""
    whole, resumed = Loop(40), continued(stop, tmp_path)
    sums = whole.run(1, 40)
    assert resumed.run(stop + 1, 40) == sums[stop:]
    state = whole.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in resumed.model.state_dict().items())


def test_without_the_allocator_s_memory_other_ranks_are_cut(tmp_path):
    whole, forgetful = Loop(40), continued(15, tmp_path, with_state=False)
    whole.run(1, 40)
    forgetful.run(16, 40)
    state = copy.deepcopy(whole.model.state_dict())
    assert not all(torch.equal(value, state[name]) for name, value in forgetful.model.state_dict().items())
