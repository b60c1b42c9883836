"""Small classifiers in float64 on which the paper's theory can be computed rather than believed.

``Toy`` is the paper's own setting (section 4.1): one linear layer, softmax, cross-entropy, so each example's loss is
convex, Lipschitz and smooth with constants that are known. ``Valley`` is a classifier of one parameter, not convex,
whose two groups pull against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Gradients:
    """What one batch says at one θ: sums over the wrongly and the correctly classified examples."""

    wrong: Array  # G_W, the shape of θ
    correct: Array  # G_C
    wrong_count: int
    size: int  # m

    @property
    def groups_filled(self) -> bool:
        """Whether neither W nor C is empty."""
        return 0 < self.wrong_count < self.size

    def scaled(self, gamma: float) -> Array:
        """G_W + γ G_C."""
        return self.wrong + gamma * self.correct

    def step(self, gamma: float) -> Array:
        """(G_W + γ G_C)/m: equation 1 without η; γ = 1 is gradient descent."""
        return self.scaled(gamma) / self.size

    def weight(self, gamma: float) -> float:
        """ϱ, the mean weight of an example (Lemma C.2)."""
        return (self.wrong_count + gamma * (self.size - self.wrong_count)) / self.size

    def wrong_dominates(self, tau: float) -> bool:
        """Condition (2) of Theorem 4.6: ‖G_W‖² >= τ² ‖G_C‖²."""
        return norm(self.wrong) >= tau * norm(self.correct)


@dataclass(frozen=True, eq=False)
class Toy:
    """A linear softmax classifier's data.

    Attributes:
        x: (n, d) features, the last of them 1 for the bias.
        y: (n,) labels, 0 to K - 1; θ is (K, d).
    """

    x: Array
    y: Rows

    @property
    def shape(self) -> tuple[int, int]:
        """Of θ."""
        return int(self.y.max()) + 1, self.x.shape[1]

    @property
    def lipschitz(self) -> float:
        """H: no example's gradient is longer, since ‖p - y‖ <= √2."""
        return float(np.sqrt(2) * np.linalg.norm(self.x, axis=1).max())

    @property
    def is_separable(self) -> bool:
        """Whether some line has both of two classes on its right sides, by linear programming."""
        sides = (1 - 2 * self.y)[:, None] * self.x
        found = linprog(np.zeros(self.x.shape[1]), A_ub=sides, b_ub=-np.ones(len(self.y)), bounds=(None, None))
        return bool(found.status == 0)

    def smoothness(self, mask: Mask) -> float:
        """M of the summed loss of the examples in ``mask``: the Hessian of log-sum-exp is at most 1/2."""
        return float(np.linalg.norm(self.x[mask], ord=2) ** 2 / 2)

    def take(self, rows: Rows) -> Toy:
        """The batch of these rows."""
        return Toy(self.x[rows], self.y[rows])

    def losses(self, theta: Array) -> Array:
        """Cross-entropy of each example, (n,)."""
        logits = self.x @ theta.T
        return np.asarray(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(self.y)), self.y])

    def wrong(self, theta: Array) -> Mask:
        """Which examples are in W, (n,); a tie is wrong."""
        logits = self.x @ theta.T
        own = logits[np.arange(len(self.y)), self.y].copy()
        logits[np.arange(len(self.y)), self.y] = -np.inf
        return np.asarray(own <= logits.max(axis=1))

    def gradients(self, theta: Array, wrong: Mask | None = None) -> Gradients:
        """G_W and G_C of all examples; ``wrong`` puts other examples into W than those that θ gets wrong."""
        mask = self.wrong(theta) if wrong is None else wrong
        logits = self.x @ theta.T
        residual = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        residual[np.arange(len(self.y)), self.y] -= 1
        sums = [residual[rows].T @ self.x[rows] for rows in (mask, ~mask)]
        return Gradients(sums[0], sums[1], int(mask.sum()), len(self.y))


@dataclass(frozen=True)
class Valley:
    """Three correct examples and a wrong one that share one parameter θ; all are right beyond the valley.

    The margin of the wrong example is θ - 1, that of the others 1 + (θ - 1.2)²: on the way to θ > 1, where the wrong
    one is right, the others lose margin up to 1.2 (and stay right), so they pull back.
    """

    copies: int = 3

    def margins(self, theta: float) -> tuple[float, float]:
        """Of the example that starts wrong and of each of the others; positive is correct."""
        return theta - 1, 1 + (theta - 1.2) ** 2

    def loss(self, theta: float) -> float:
        """Summed logistic loss."""
        one, others = self.margins(theta)
        return float(np.logaddexp(0, -one) + self.copies * np.logaddexp(0, -others))

    def gradients(self, theta: float) -> Gradients:
        """G_W and G_C as arrays of one element."""
        one, others = self.margins(theta)
        pulls = -_sigmoid(-one), -self.copies * _sigmoid(-others) * 2 * (theta - 1.2)
        wrong, correct = (0.0, sum(pulls)) if one > 0 else pulls
        return Gradients(np.array([wrong]), np.array([correct]), int(one <= 0), self.copies + 1)

    def cancellation(self, gamma: float) -> float:
        """The θ below 0.6 at which G_W + γ G_C = 0 and which attracts, by bisection to the last bit.

        Raises:
            ValueError: with this γ nothing cancels there.
        """
        low, high = 0.0, 0.6

        def pull(theta: float) -> float:
            return float(self.gradients(theta).scaled(gamma)[0])

        if not pull(low) < 0 < pull(high):
            raise ValueError(f"gamma = {gamma}: W and C do not cancel below θ = 0.6")
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if pull(middle) < 0 else (low, middle)
        return low


def descend(
    theta: Array, lr: float, gammas: Array, gradients_at: Callable[[Array, int], Gradients]
) -> Iterator[tuple[Array, Gradients]]:
    """θ and the batch's gradients before each step of equation 1; one step for every γ in ``gammas``.

    The θ after the last step comes at the end, with the gradients that a further step would see.
    """
    for step, gamma in enumerate(gammas):
        seen = gradients_at(theta, step)
        yield theta, seen
        theta = theta - lr * seen.step(float(gamma))
    yield theta, gradients_at(theta, len(gammas))


def separable(seed: int, count: int = 40) -> Toy:
    """Two classes of equal size, 2 features and a bias, split by a line with a margin of at least 0.3."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(16 * count, 2))
    side = x @ generator.normal(size=2) + 0.5 * generator.normal()
    rows = np.concatenate([np.flatnonzero(sign * side > 0.3)[: count // 2] for sign in (-1, 1)])
    return Toy(_with_bias(x[rows]), (side[rows] > 0).astype(np.int64))


def overlapping(seed: int, count: int = 40) -> Toy:
    """Two classes, 70 % and 30 %, whose Gaussians overlap: no line splits them."""
    generator = np.random.default_rng(seed)
    y = (np.arange(count) >= 0.7 * count).astype(np.int64)
    x = generator.normal(size=(count, 2)) + 0.8 * y[:, None]
    return Toy(_with_bias(x), y)


def norm(array: Array) -> float:
    """Euclidean, over all entries."""
    return float(np.linalg.norm(array))


def _with_bias(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))])


def _sigmoid(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))
