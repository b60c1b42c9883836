"""The theory's lines by verdict, and the toys that they rest on by finite differences and by torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from experiments import theory
from experiments.toys import Valley, descend, norm, overlapping, separable

H, F, O = "holds", "fails", "outside"  # noqa: E741 - as the table has them


EXPECTED = {
    theory.property_of_each_group: [H, O, H, H],
    theory.update_bound: [H, F],
    theory.divergence_recurrence: [H, H],
    theory.stability_bound: [H, H, O, F],
    theory.descent: [H, O, O, O],
    theory.dominance_during_training: [F, F, F, F],
    theory.rate: [H, F],
    theory.cancellation: [H, H, O, O, F],
    theory.empty_groups: [H, F, H],
}


@pytest.mark.parametrize("part", EXPECTED, ids=lambda part: part.__name__)
def test_verdicts(part):
    assert [line.verdict for line in part()] == EXPECTED[part]


def test_outside_its_conditions_a_statement_neither_holds_nor_fails():
    assert theory.verdict(True) == "holds"
    assert theory.verdict(False) == "fails"
    assert theory.verdict(True, conditions=False) == theory.verdict(False, conditions=False) == "outside"


def test_condition_2_shuts_out_the_escape_that_the_proof_describes():
    """From G_W = -γ G_C with a rising γ the step is along +G_W: L_W rises, and ‖G_W‖ = γ‖G_C‖ < τ‖G_C‖."""
    gamma = 0.9
    valley = Valley()
    seen = valley.gradients(valley.cancellation(gamma))
    assert norm(seen.wrong) == pytest.approx(gamma * norm(seen.correct), rel=1e-9)
    assert not seen.wrong_dominates(1.0)
    assert float(seen.scaled(0.95)[0] * seen.wrong[0]) < 0


def test_gradients_agree_with_autograd():
    """Group sums of the cross-entropy's gradients, against torch in float64."""
    toy = overlapping(3)
    theta = np.random.default_rng(0).normal(size=toy.shape)
    seen, wrong = toy.gradients(theta), toy.wrong(theta)
    weights = torch.tensor(theta, requires_grad=True)
    losses = torch.nn.functional.cross_entropy(torch.tensor(toy.x) @ weights.T, torch.tensor(toy.y), reduction="none")
    np.testing.assert_allclose(toy.losses(theta), losses.detach().numpy(), rtol=1e-12)
    for mask, found in ((wrong, seen.wrong), (~wrong, seen.correct)):
        (expected,) = torch.autograd.grad(losses[torch.tensor(mask)].sum(), weights, retain_graph=True)
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)
    assert seen.wrong_count == wrong.sum()
    assert seen.weight(0.25) == pytest.approx((wrong.sum() + 0.25 * (~wrong).sum()) / len(toy.y))


@pytest.mark.parametrize("theta", [0.2, 0.9, 1.3, 2.0])
def test_the_valleys_gradients_are_those_of_its_loss(theta):
    valley, width = Valley(), 1e-6
    slope = (valley.loss(theta + width) - valley.loss(theta - width)) / (2 * width)
    assert float(valley.gradients(theta).scaled(1.0)[0]) == pytest.approx(slope, rel=1e-6)


def test_the_valley_has_no_cancellation_where_the_correct_pull_little():
    with pytest.raises(ValueError, match=r"gamma = 0\.3"):
        Valley().cancellation(0.3)


def test_lipschitz_and_smoothness_bound_what_they_say():
    """H over single examples' gradients; M over the largest eigenvalue of a numerical Hessian of the summed loss."""
    toy = overlapping(1, count=8)
    everyone = np.ones(8, dtype=bool)
    generator = np.random.default_rng(2)
    for _ in range(20):
        theta, other = generator.normal(size=(2, *toy.shape))
        for row in range(8):
            one = toy.take(np.array([row])).gradients(theta)
            assert norm(one.scaled(1.0)) <= toy.lipschitz
        apart = toy.gradients(theta).scaled(1.0) - toy.gradients(other).scaled(1.0)
        assert norm(apart) <= toy.smoothness(everyone) * norm(theta - other)


def test_which_classes_a_line_can_split():
    assert separable(0).is_separable
    assert not overlapping(0).is_separable


def test_a_tie_is_wrong():
    toy = separable(0)
    assert toy.wrong(np.zeros(toy.shape)).all()


def test_descend_yields_every_state_and_the_one_after():
    toy = separable(1)
    path = list(descend(np.zeros(toy.shape), 0.1, np.array([0.5, 1.0]), lambda theta, _: toy.gradients(theta)))
    (first, seen), (second, _), (_third, _) = path
    np.testing.assert_allclose(second, first - 0.1 * (seen.wrong + 0.5 * seen.correct) / len(toy.y))


@pytest.mark.slow
def test_table_and_figure_are_written(tmp_path):
    command = [sys.executable, "-m", "experiments.theory", "--out", str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.count("| holds |") == sum(verdicts.count(H) for verdicts in EXPECTED.values())
    assert {path.name for path in tmp_path.iterdir()} == {"theory.md", "theory.csv", "theory.png", "theory.pdf"}


def test_the_theory_needs_neither_torch_nor_a_display():
    code = "import experiments.theory, sys; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
