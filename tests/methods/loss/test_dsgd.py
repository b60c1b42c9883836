"""DSGD's control with W and C from a forward pass in evaluation mode; the loss itself is tested in ``test_loss``."""

import pytest
import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.adapter.full import Full
from dsgd.methods.contracts import Step
from dsgd.methods.regularizer.none import NoRegularizer
from dsgd.objective import ScaledObjective
from dsgd.schedules import StaticSchedule
from helpers import random_batch, tiny_classifier

STEP = Step(1, 10)


def dsgd(correctness):
    return build("loss", parts.DSGD(correctness=parts.Correctness[correctness]), schedule=StaticSchedule(0.25))


def test_the_judge_s_logits_decide_and_the_training_logits_give_the_losses():
    """Both rows' logits say class 0; the judge's say class 1. Of labels (0, 1) the second is therefore in C."""
    logits, judge = torch.tensor([[1.0, 0.0]] * 2).double(), torch.tensor([[0.0, 1.0]] * 2).double()
    labels = torch.tensor([0, 1])
    output = dsgd("evaluation").per_example(logits, labels, STEP, judge=judge)
    plain = cross_entropy(logits, labels, reduction="none")
    assert output.is_correct.tolist() == [False, True]
    assert torch.equal(output.losses, plain * torch.tensor([1.0, 0.25]))
    assert output.statistics["loss_correct"].item() == pytest.approx(plain[1].item())


def test_a_judge_in_float64_is_not_rounded():
    """1 and 1 + 1e-12 are one number in float32, where they would tie."""
    judge = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    output = dsgd("evaluation").per_example(torch.zeros(1, 2).double(), torch.tensor([1]), STEP, judge=judge)
    assert output.is_correct.tolist() == [True]
    assert output.statistics["ties"] == 0


def test_a_judge_s_nan_is_wrong():
    judge = torch.tensor([[float("nan"), 0.0]])
    output = dsgd("evaluation").per_example(torch.zeros(1, 2), torch.tensor([0]), STEP, judge=judge)
    assert output.is_correct.tolist() == [False]


@pytest.mark.parametrize("correctness", ["train", "evaluation"])
def test_the_objective_judges_without_dropout_and_leaves_its_stream_alone(correctness):
    """Each forward is repeated by hand: the training one from the same random state, the other in evaluation mode."""
    model, batch = tiny_classifier(dropout=0.5), random_batch(examples=32)
    objective = ScaledObjective(dsgd(correctness), NoRegularizer(), Full(), Accelerator(cpu=True))
    torch.manual_seed(0)
    output = objective(model, batch, STEP)
    state = torch.get_rng_state()
    assert all(module.training for module in model.modules())

    torch.manual_seed(0)
    noisy = model(**batch.inputs)
    assert torch.equal(torch.get_rng_state(), state)
    clean = model.eval()(**batch.inputs)
    verdicts = {"train": noisy.argmax(dim=1) == batch.labels, "evaluation": clean.argmax(dim=1) == batch.labels}
    assert not torch.equal(verdicts["train"], verdicts["evaluation"])
    assert torch.equal(output.is_correct, verdicts[correctness])
    weights = torch.where(verdicts[correctness], 0.25, 1.0).double()
    assert torch.equal(output.losses, cross_entropy(noisy, batch.labels, reduction="none") * weights)
    assert objective.collect()["correct"] == verdicts[correctness].sum()
