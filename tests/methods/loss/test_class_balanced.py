"""Class-balanced weights and their deferral."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.methods.contracts import Step
from dsgd.methods.loss.class_balanced import ClassBalanced, class_weights, weights_at


def draw():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 3, dtype=torch.float64, generator=generator), torch.randint(3, (12,), generator=generator)


def test_weights_by_hand():
    """β = 1/2, n = (1, 2): (1/2)/(1/2) = 1 and (1/2)/(3/4) = 2/3; times 2/(5/3): 6/5 and 4/5."""
    assert class_weights([1, 2], 0.5).tolist() == pytest.approx([1.2, 0.8])


def test_weights_are_the_inverse_sum_of_the_powers():
    """(1 - β)/(1 - β^n) = 1/(1 + β + … + β^(n-1)), added up term by term, at the default β and LDAM's counts."""
    counts = [5000, 400, 50]
    inverse = [1 / sum(0.9999**power for power in range(count)) for count in counts]
    expected = [3 * value / sum(inverse) for value in inverse]
    assert class_weights(counts, 0.9999).tolist() == pytest.approx(expected, rel=1e-9)


def test_weights_run_from_equal_to_inverse_frequency():
    """β = 0 gives ones; β → 1 gives 1/n: of n = (1, 3) weights 3/2 and 1/2."""
    assert class_weights([1, 3], 0.0).tolist() == [1.0, 1.0]
    assert class_weights([1, 3], 1 - 1e-9).tolist() == pytest.approx([1.5, 0.5], rel=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.9999])
def test_weights_sum_to_the_number_of_classes(beta):
    """Also with a class that has no example, which counts as one."""
    assert class_weights([213, 47, 10, 0], beta).sum().item() == pytest.approx(4)
    assert torch.equal(class_weights([213, 0], beta), class_weights([213, 1], beta))


def test_losses_are_cross_entropy_times_the_label_s_weight():
    """Divided by m later and not by the sum of the weights, as torch's weighted mean is."""
    logits, labels = draw()
    part = ClassBalanced(0.5, 0.0, [1, 2, 3])
    output = part.per_example(logits, labels, Step(1, 10))
    weights = class_weights([1, 2, 3], 0.5)
    expected = cross_entropy(logits, labels, weight=weights, reduction="none")
    torch.testing.assert_close(output.losses, expected, rtol=1e-12, atol=0)
    assert output.statistics["class_balanced/weight"].item() == pytest.approx(weights[labels].sum().item())
    assert output.losses.mean() != cross_entropy(logits, labels, weight=weights)


def test_before_the_deferred_share_it_is_cross_entropy_bit_for_bit():
    """deferred = 0.8 of 10 steps: steps 1 to 8 are plain, 9 and 10 weighted."""
    logits, labels = draw()
    part, plain = ClassBalanced(0.9, 0.8, [1, 2, 3]), cross_entropy(logits, labels, reduction="none")
    are_plain = [torch.equal(part.per_example(logits, labels, Step(t, 10)).losses, plain) for t in range(1, 11)]
    assert are_plain == [True] * 8 + [False] * 2


@pytest.mark.parametrize(("deferred", "total", "first"), [(0.0, 10, 1), (0.29, 100, 30), (0.5, 1, 1), (0.99, 2, 3)])
def test_the_first_weighted_step(deferred, total, first):
    """0.29 · 100 is below 29 in floating point; half of one step rounds down, and 1.98 of two leaves no step."""
    weights = torch.tensor([3.0])
    acts = [step for step in range(1, total + 1) if weights_at(Step(step, total), weights, deferred) == 3]
    assert acts == list(range(first, total + 1))
