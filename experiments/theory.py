"""The DSGD paper's lemmas and theorems, computed on small problems: what holds, what fails, what lies outside.

    python -m experiments.theory [--out DIR]

Each line of the table is one statement. Where the statement's conditions are met on everything that was computed, it
*holds* or *fails* by the numbers; where they are not, the line is *outside* and says what happens there. Writes
``theory.md``, ``theory.csv``, ``theory.png`` and ``theory.pdf`` into ``--out``. Everything is float64 and seeded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from dsgd.schedules import LinearSchedule
from experiments.folders import output
from experiments.listing import print_listing, write_listing
from experiments.toys import Array, Gradients, Toy, Valley, descend, norm, overlapping, separable

Verdict = Literal["holds", "fails", "outside"]

TOLERANCE = 1e-9  # of a ratio or a loss in float64 after some hundred steps
PROBLEMS = range(10)
BATCH = 20


@dataclass(frozen=True)
class Line:
    """One statement of the paper and what came out."""

    source: str
    statement: str
    computed: str
    verdict: Verdict


def main(arguments: list[str] | None = None) -> int:
    """Print the table; with ``--out``, write it and the figure."""
    parser = argparse.ArgumentParser(prog="python -m experiments.theory", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="write theory.md, .csv, .png and .pdf into this folder")
    options = parser.parse_args(arguments)
    folder = options.out and output(parser, options.out)
    lines = check()
    print_listing(lines)
    if folder is not None:
        from experiments.theory_figure import draw  # matplotlib is only needed here

        write_listing(lines, folder, "theory", f"python -m experiments.theory --out {options.out}")
        draw(folder / "theory")
    return 0


def check() -> list[Line]:
    """Every statement, in the paper's order."""
    checks: tuple[Callable[[], Iterable[Line]], ...] = (
        property_of_each_group,
        update_bound,
        divergence_recurrence,
        stability_bound,
        descent,
        dominance_during_training,
        rate,
        cancellation,
        empty_groups,
    )
    return [line for part in checks for line in part()]


def verdict(holds: bool, conditions: bool = True) -> Verdict:
    """What a line may say: outside its conditions a statement neither holds nor fails."""
    if not conditions:
        return "outside"
    return "holds" if holds else "fails"


def ramp(steps: int, tau: float = 1.0) -> Array:
    """The paper's γ_t = τ t/T, (steps,)."""
    schedule = LinearSchedule(steps, tau)
    return np.array([schedule(step) for step in range(1, steps + 1)])


# ------------------------------------------------------------------ Lemmas 4.2 and 4.3, Corollary 4.4


def property_of_each_group() -> Iterator[Line]:
    """Full-batch descent on L_W alone and on L_C alone, from the same starts."""
    alone = {
        (name, group): [errors_after_training_on(group, make(seed), seed) for seed in PROBLEMS]
        for name, make in (("separable", separable), ("overlapping", overlapping))
        for group in ("W", "C")
    }
    only_wrong, only_correct = alone["separable", "W"], alone["separable", "C"]

    def zero(errors: list[int]) -> str:
        return f"no training error in {sum(error == 0 for error in errors)} of {len(errors)} problems"

    yield Line(
        "Lemma 4.2",
        "descent on L_W ends with zero training error (S separable)",
        zero(only_wrong),
        verdict(not any(only_wrong), conditions=all(separable(seed).is_separable for seed in PROBLEMS)),
    )
    yield Line(
        "Lemma 4.2",
        "the same where no line separates S: L_W then has no stationary point to reach",
        zero(alone["overlapping", "W"]),
        verdict(
            not any(alone["overlapping", "W"]), conditions=all(overlapping(seed).is_separable for seed in PROBLEMS)
        ),
    )
    yield Line(
        "Lemma 4.3",
        "descent on L_C does not guarantee zero training error",
        f"{zero(only_correct)}; up to {max(only_correct)} of 40 wrong",
        verdict(any(only_correct)),
    )
    pairs = list(zip(only_wrong, only_correct, strict=True))
    fewer = sum(wrong < correct for wrong, correct in pairs)
    more = sum(wrong > correct for wrong, correct in pairs)
    yield Line(
        "Corollary 4.4",
        "keep G_W whole rather than G_C",
        f"L_W leaves fewer errors than L_C in {fewer} of {len(pairs)} problems, more in {more}",
        verdict(fewer > 0 and more == 0),
    )


def errors_after_training_on(group: Literal["W", "C"], toy: Toy, seed: int) -> int:
    """Wrongly classified examples after 400 steps along one group's gradient only."""
    theta = np.random.default_rng(seed).normal(size=toy.shape)
    for _ in range(400):
        seen = toy.gradients(theta)
        theta = theta - 2.0 * (seen.wrong if group == "W" else seen.correct) / seen.size
    return int(toy.wrong(theta).sum())


# ------------------------------------------------------------------ Lemmas C.2 and C.3, Theorem 4.5


def update_bound() -> Iterator[Line]:
    """Random parameters, batches and γ."""
    ratios, weights, over_tau = [], [], []
    for toy, theta, generator in random_points(100):
        tau = generator.uniform(0.05, 1)
        gamma = tau * (1 - generator.uniform())
        seen = toy.gradients(theta)
        ratios.append(norm(seen.step(gamma)) / (seen.weight(gamma) * toy.lipschitz))
        weights.append(seen.weight(gamma))
        over_tau.append(seen.weight(gamma) / tau)
    yield Line(
        "Lemma C.2",
        "‖θ − U(θ)‖ ≤ ϱηH with ϱ ≤ 1",
        f"largest ‖θ − U(θ)‖/(ϱηH) {max(ratios):.3f}, largest ϱ {max(weights):.3f}, in {len(ratios)} batches",
        verdict(max(ratios) <= 1 + TOLERANCE and max(weights) <= 1 + TOLERANCE),
    )
    beyond = sum(ratio > 1 + TOLERANCE for ratio in over_tau)
    yield Line(
        "Appendix D.6",
        "ϱ_t ∈ (0, τ]",
        f"ϱ exceeds τ in {beyond} of {len(over_tau)} batches, up to {max(over_tau):.1f} τ",
        verdict(max(over_tau) <= 1 + TOLERANCE),
    )


def random_points(count: int) -> Iterator[tuple[Toy, Array, np.random.Generator]]:
    """Batches of ``BATCH`` examples with random parameters, half of them near 0: ``count`` of every problem."""
    for seed in PROBLEMS:
        generator = np.random.default_rng([seed, 1])
        whole = overlapping(seed)
        for number in range(count):
            batch = whole.take(generator.choice(len(whole.y), BATCH, replace=False))
            yield batch, generator.normal(size=whole.shape) * (0.1, 2.0)[number % 2], generator


@dataclass(frozen=True, eq=False)
class Pair:
    """Two trainings of one rule from different starts on different batches: what seeds do (section 4.2)."""

    distances: Array  # Δ_t, (T + 1,)
    weights: Array  # ϱ_t + ϱ̃_t, (T,)
    divergences: Array  # the largest |L(θ_t, z) - L(θ̃_t, z)| over z, (T + 1,)
    lr: float
    lipschitz: float

    @property
    def bounds(self) -> Array:
        """Equations 17 and 18 for every length of training, (T + 1,)."""
        growth = np.concatenate([[0.0], np.cumsum(self.weights)]) * self.lr * self.lipschitz
        return np.asarray(self.lipschitz * (self.distances[0] + growth))

    @property
    def recurrence(self) -> Array:
        """(Δ_{t+1} - Δ_t)/((ϱ_t + ϱ̃_t) η H), (T,): Lemma C.3 says that it is at most 1."""
        return np.asarray(np.diff(self.distances) / (self.weights * self.lr * self.lipschitz))


@cache
def pair_of_trainings(seed: int, dynamic: bool, lr: float = 0.5, steps: int = 200) -> Pair:
    """DSGD with γ = t/T (``dynamic``) or SGD, from the same two starts on the same two batch sequences."""
    whole = overlapping(seed)
    gammas = ramp(steps) if dynamic else np.ones(steps)
    paths = [one_training(whole, np.random.default_rng([seed, half]), gammas, lr) for half in (2, 3)]
    distances, divergences, weights = [], [], []
    for (theta, seen), (other, other_seen) in zip(*paths, strict=True):
        distances.append(norm(theta - other))
        divergences.append(np.abs(whole.losses(theta) - whole.losses(other)).max())
        weights.append((seen, other_seen))
    sums = [a.weight(gamma) + b.weight(gamma) for (a, b), gamma in zip(weights, gammas, strict=False)]
    return Pair(np.array(distances), np.array(sums), np.array(divergences), lr, whole.lipschitz)


def one_training(
    whole: Toy, generator: np.random.Generator, gammas: Array, lr: float
) -> Iterator[tuple[Array, Gradients]]:
    """Equation 1 on random batches from a random start."""
    start = generator.normal(size=whole.shape)
    batches = [generator.choice(len(whole.y), BATCH, replace=False) for _ in range(len(gammas) + 1)]
    return descend(start, lr, gammas, lambda theta, step: whole.take(batches[step]).gradients(theta))


def divergence_recurrence() -> Iterator[Line]:
    """Every step of every pair of trainings."""
    for rule, dynamic, bound in (("DSGD", True, "(ϱ + ϱ̃)ηH"), ("SGD", False, "2ηH")):
        ratios = np.array([pair_of_trainings(seed, dynamic).recurrence for seed in PROBLEMS])
        yield Line(
            "Lemma C.3",
            f"{rule}: Δ_t+1 ≤ Δ_t + {bound}",
            f"largest (Δ_t+1 − Δ_t)/({bound}) {ratios.max():.3f}, in {ratios.size} steps",
            verdict(bool(ratios.max() <= 1 + TOLERANCE)),
        )


def stability_bound() -> Iterator[Line]:
    """The bounds, what they bound, and what a smaller learning rate does to the bound of SGD."""
    pairs = [(pair_of_trainings(seed, True), pair_of_trainings(seed, False)) for seed in PROBLEMS]
    tightness = max(float((pair.divergences / pair.bounds).max()) for both in pairs for pair in both)
    yield Line(
        "Theorem 4.5",
        "ε and ε′ (Eq. 17, 18) bound |L(θ_T, z) − L(θ̃_T, z)|",
        f"largest measured divergence is {tightness:.4f} of its bound, over all z and T ≤ 200",
        verdict(tightness <= 1 + TOLERANCE),
    )
    ratios = [float(dsgd.bounds[-1] / sgd.bounds[-1]) for dsgd, sgd in pairs]
    yield Line(
        "Theorem 4.5",
        "ε ≤ ε′",
        f"ε/ε′ from {min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} pairs",
        verdict(max(ratios) <= 1 + TOLERANCE),
    )
    closer = sum(dsgd.divergences[-1] <= sgd.divergences[-1] for dsgd, sgd in pairs)
    yield Line(
        "Section 4.2",
        "DSGD itself, not its bound, diverges less than SGD",
        f"in {closer} of {len(pairs)} pairs; the theorem compares bounds only",
        verdict(closer == len(pairs), conditions=False),  # the theorem says nothing of it
    )
    slower = max(slower_sgd_bound(seed) for seed in PROBLEMS)
    yield Line(
        "Section 4.2",
        "the bound is tighter than that of SGD with learning rate η·mean(ϱ)",
        f"that SGD's bound is at most {slower:.6f} of DSGD's",
        verdict(slower > 1 + TOLERANCE),
    )


def slower_sgd_bound(seed: int) -> float:
    """ε′/ε where SGD's learning rate is DSGD's times DSGD's mean ϱ."""
    dsgd = pair_of_trainings(seed, True)
    sgd = pair_of_trainings(seed, False, lr=dsgd.lr * float(dsgd.weights.mean()) / 2)
    return float(sgd.bounds[-1] / dsgd.bounds[-1])


# ------------------------------------------------------------------ Theorem 4.6 and equation 24


@dataclass(frozen=True)
class Drop:
    """One step of DSGD on a batch with both groups filled, τ = 1."""

    dominates: bool  # condition (2)
    frozen: float  # fall of L_W where W stays the set that θ_t gets wrong
    moving: float  # fall of L_W where W is what θ gets wrong at the time
    guaranteed: float  # equation 22
    entered: int  # examples that the step turned wrong
    conflict_grows: bool  # ‖G_W + γ G_C‖ > ‖G_W + G_C‖


@cache
def drops(rate: float) -> list[Drop]:
    """Steps from random points with η = ``rate``·m/M, M the smoothness of the frozen L_W."""
    found = []
    for toy, theta, generator in random_points(100):
        gamma = 1 - generator.uniform()
        seen = toy.gradients(theta)
        if not seen.groups_filled:
            continue
        wrong = toy.wrong(theta)
        smoothness = toy.smoothness(wrong)
        lr = rate * seen.size / smoothness
        after = theta - lr * seen.step(gamma)
        before = toy.losses(theta)[wrong].sum()
        square = norm(seen.scaled(gamma)) ** 2
        found.append(
            Drop(
                dominates=seen.wrong_dominates(1.0),
                frozen=float(before - toy.losses(after)[wrong].sum()),
                moving=float(before - toy.losses(after)[toy.wrong(after)].sum()),
                guaranteed=(lr / (2 * seen.size) - smoothness * lr**2 / (2 * seen.size**2)) * square,
                entered=int((toy.wrong(after) & ~wrong).sum()),
                conflict_grows=norm(seen.scaled(gamma)) > norm(seen.scaled(1.0)) * (1 + TOLERANCE),
            )
        )
    return found


def descent() -> Iterator[Line]:
    """The descent of L_W where the three conditions hold, and where each of them does not."""
    inside = [drop for drop in drops(0.9) if drop.dominates]
    margin = min(drop.frozen - drop.guaranteed for drop in inside)
    yield Line(
        "Theorem 4.6, Eq. 22",
        "L_W falls by at least (η/2m − Mη²/2m²)‖G_W + γG_C‖² (W frozen, τ = 1, η = 0.9 m/M)",
        f"smallest excess over the guaranteed fall {margin:.2e}, in {len(inside)} steps",
        verdict(margin >= -TOLERANCE),
    )
    for condition, factor, steps in (
        ("(2) ‖G_W‖ ≥ τ‖G_C‖ not met, τ = 1", 0.9, [drop for drop in drops(0.9) if not drop.dominates]),
        ("(3) not met, η = 8 m/M", 8.0, [drop for drop in drops(8.0) if drop.dominates]),
    ):
        rises = sum(drop.frozen < 0 for drop in steps)
        yield Line(
            "Theorem 4.6",
            f"L_W falls; condition {condition}",
            f"L_W rises in {rises} of {len(steps)} steps",
            verdict(rises == 0, conditions=factor < 1 and all(drop.dominates for drop in steps)),
        )
    rises = sum(drop.moving < 0 for drop in inside)
    entered = sum(drop.entered > 0 for drop in inside)
    yield Line(
        "Theorem 4.6",
        "L_W falls, W being what θ gets wrong at the time; all three conditions met",
        f"L_W rises in {rises} of {len(inside)} steps; W gains examples in {entered}: L_W jumps, so it is not M-smooth",
        verdict(rises == 0, conditions=entered == 0),
    )


def dominance_during_training() -> Iterator[Line]:
    """How often condition (2) holds in training, where it is said to be mild."""
    for make in (separable, overlapping):
        for tau in (1.0, 0.1):
            shares = dominance(make, tau)
            first, last = shares[: len(shares) // 4].mean(), shares[-len(shares) // 4 :].mean()
            yield Line(
                "Theorem 4.6 (2)",
                f"‖G_W‖ ≥ τ‖G_C‖ at every step of training, τ = {tau:g}, {make.__name__} classes",
                f"at {first:.0%} of the steps of the first quarter and {last:.0%} of those of the last",
                verdict(bool(shares.min() == 1)),
            )


@cache
def dominance(make: Callable[[int], Toy], tau: float, steps: int = 400) -> Array:
    """Share of the problems in which condition (2) holds at step t of training, (steps,)."""
    gammas = ramp(steps, tau)
    held = np.zeros(steps)
    for seed in PROBLEMS:
        path = one_training(make(seed), np.random.default_rng([seed, 4]), gammas, lr=0.5)
        held += [seen.wrong_dominates(tau) for _, seen in path][:-1]
    return np.asarray(held / len(PROBLEMS))


def rate() -> Iterator[Line]:
    """Equation 24 along trainings with W frozen at its start, as long as condition (2) holds."""
    ratios = [ratio for seed in PROBLEMS for ratio in rate_ratios(overlapping(seed), seed)]
    yield Line(
        "Eq. 24",
        "min_t ‖G_W + γ_tG_C‖²/m ≤ 2(L_W(θ_0) − L_W(θ_T+1))/((η − Mη²/m)(T + 1)), so O(1/T)",
        f"largest left/right {max(ratios):.3f} in {len(ratios)} lengths of {len(PROBLEMS)} trainings",
        verdict(max(ratios) <= 1 + TOLERANCE),
    )
    steps = [drop for drop in drops(0.9) if drop.dominates]
    grows = sum(drop.conflict_grows for drop in steps)
    yield Line(
        "Eq. 24, middle term",
        "‖G_W + γG_C‖² ≤ ‖G_W + G_C‖² (γ is dropped there)",
        f"the left is larger in {grows} of {len(steps)} steps that meet condition (2)",
        verdict(grows == 0),
    )


def rate_ratios(toy: Toy, seed: int, tau: float = 0.1, steps: int = 400) -> Iterator[float]:
    """Left over right side of equation 24 for every T up to the last step that meets the theorem's conditions."""
    start = 0.1 * np.random.default_rng([seed, 5]).normal(size=toy.shape)
    wrong = toy.wrong(start)
    smoothness = toy.smoothness(wrong)
    lr = 0.5 * len(toy.y) / smoothness
    gammas = ramp(steps, tau)
    path = list(descend(start, lr, gammas, lambda theta, _: toy.gradients(theta, wrong)))
    least = np.inf
    for number, (gamma, (_, seen), (after, _)) in enumerate(zip(gammas, path, path[1:], strict=False), start=1):
        if not (seen.groups_filled and seen.wrong_dominates(tau)):
            return
        least = min(least, norm(seen.scaled(gamma)) ** 2 / seen.size)
        fall = float(toy.losses(start)[wrong].sum() - toy.losses(after)[wrong].sum())
        yield least * (lr - smoothness * lr**2 / seen.size) * number / (2 * fall)


# ------------------------------------------------------------------ gradient cancellation and empty groups


@dataclass(frozen=True, eq=False)
class Escape:
    """A training in the valley: θ before each step and after the last."""

    thetas: Array
    last: Gradients


def escape(gammas: Array, start: float, lr: float = 0.2) -> Escape:
    """Equation 1 in the valley."""
    valley = Valley()
    path = list(descend(np.array([start]), lr, gammas, lambda theta, _: valley.gradients(float(theta[0]))))
    return Escape(np.array([float(theta[0]) for theta, _ in path]), path[-1][1])


def cancellation() -> Iterator[Line]:
    """GD and DSGD from where W and C cancel, in the valley and in a convex problem."""
    valley, steps = Valley(), 1000
    stall = valley.cancellation(1.0)
    stuck, free = escape(np.ones(steps), stall), escape(ramp(steps), stall)
    moved, left = np.abs(stuck.thetas - stall).max(), norm(stuck.last.wrong)
    end = float(free.thetas[-1])
    wrong, then = stuck.last.wrong_count, free.last.wrong_count
    yield Line(
        "Section 4.3, Remark",
        "GD stalls where G_W = −G_C ≠ 0",
        f"‖G_W‖ = {left:.3f}; moved by {moved:.1e} in {steps} steps; {wrong} wrong",
        verdict(bool(moved < TOLERANCE < left)),
    )
    yield Line(
        "Section 4.3",
        "DSGD leaves that point and reaches a better one (valley of one parameter)",
        f"loss {valley.loss(stall):.3f} → {valley.loss(end):.3f}, wrong {wrong} → {then}",
        verdict(then < wrong),
    )
    yield from escape_by_change_of_gamma(valley)
    yield from return_to_the_stall()


def escape_by_change_of_gamma(valley: Valley) -> Iterator[Line]:
    """Theorem 4.6's second case: W and C cancel at γ_t, and γ_{t+1} differs."""
    gamma, after = 0.9, 0.95
    start = valley.cancellation(gamma)
    moved = escape(np.array([gamma, after]), start)
    constant = np.full(1000, gamma)
    static = escape(constant, start)
    seen = valley.gradients(start)
    fall = float(np.logaddexp(0, -valley.margins(start)[0]) - np.logaddexp(0, -valley.margins(moved.thetas[-1])[0]))
    yield Line(
        "Theorem 4.6, second case",
        f"from G_W + γ_tG_C = 0, γ {gamma:g} → {after:g} (rising, τ = 1): L_W falls within two steps",
        f"θ moves by {moved.thetas[-1] - start:+.1e}, L_W falls by {fall:.1e}; "
        f"‖G_W‖/‖G_C‖ = {norm(seen.wrong) / norm(seen.correct):.2f} < τ, so condition (2) excludes it",
        verdict(fall > 0, conditions=seen.wrong_dominates(1.0)),
    )
    yield Line(
        "Theorem 4.6 (1)",
        "the same with a static γ = 0.9, which γ_t ≠ γ_t+1 excludes",
        f"moved by {np.abs(static.thetas - start).max():.1e} in 1000 steps: it stalls as GD does",
        verdict(bool(np.abs(static.thetas - start).max() > TOLERANCE), conditions=bool(np.diff(constant).all())),
    )


def return_to_the_stall() -> Iterator[Line]:
    """The convex problem has one point where GD stalls; DSGD leaves it and, as γ rises to 1, comes back."""
    toy = overlapping(0)
    lr = len(toy.y) / toy.smoothness(np.ones(len(toy.y), dtype=bool))
    lengths = (100, 1000, 4000)

    def path(start: Array, gammas: Array) -> list[tuple[Array, Gradients]]:
        return list(descend(start, lr, gammas, lambda theta, _: toy.gradients(theta)))

    stall = path(np.zeros(toy.shape), np.ones(2000))[-1][0]
    paths = [path(stall, ramp(steps)) for steps in lengths]
    farthest = max(norm(theta - stall) for theta, _ in paths[-1])
    ends = [norm(steps[-1][0] - stall) for steps in paths]
    left = norm(paths[-1][-1][1].wrong)
    yield Line(
        "Section 4.3, Remark",
        "DSGD stops only where ‖G_W‖ = ‖G_C‖ = 0 (convex, overlapping classes, τ = 1)",
        f"for T = {', '.join(map(str, lengths))} it ends {', '.join(f'{end:.1e}' for end in ends)} from GD's stall, "
        f"having been {farthest:.2f} away; ‖G_W‖ = {left:.2f} there",
        verdict(left < TOLERANCE or ends[-1] >= ends[0]),
    )


def empty_groups() -> Iterator[Line]:
    """W or C empty: Corollary D.1 and the remark that it does not agree with."""
    toy = separable(0)
    (*_, (right, _)) = descend(np.zeros(toy.shape), 1.0, np.ones(2000), lambda theta, _: toy.gradients(theta))
    all_correct, all_wrong = toy.gradients(right), toy.gradients(-right)
    assert (all_correct.wrong_count, all_wrong.wrong_count) == (0, len(toy.y))
    gamma = 0.3
    slower = norm(all_correct.step(gamma) - gamma * all_correct.step(1.0)) / norm(all_correct.step(1.0))
    equal = norm(all_wrong.step(gamma) - all_wrong.step(1.0)) / norm(all_wrong.step(1.0))
    yield Line(
        "Corollary D.1",
        "W empty: a step of GD with ηγ; C empty: a step of GD with η",
        f"relative differences {slower:.1e} and {equal:.1e}",
        verdict(max(slower, equal) < TOLERANCE),
    )
    apart = norm(all_correct.step(gamma) - all_correct.step(1.0)) / norm(all_correct.step(1.0))
    yield Line(
        "Section 4.3, Remark",
        "W empty: DSGD is GD (with the same η)",
        f"steps differ by {apart:.0%} of GD's at γ = {gamma:g}",
        verdict(apart < TOLERANCE),
    )
    yield rate_with_w_empty(toy, right)


def rate_with_w_empty(toy: Toy, right: Array) -> Line:
    """Gradient descent on a convex loss L of smoothness M with steps η_t <= 1/M: Σ η_t ‖∇L‖²/2 <= L(θ_0) - inf L."""
    start = 0.1 * right  # as many right, but with gradients that are not yet small
    lr = len(toy.y) / toy.smoothness(np.ones(len(toy.y), dtype=bool))
    ratios, stayed = [], True
    for steps in (100, 1000, 4000):
        path = list(descend(start, lr, ramp(steps), lambda theta, _: toy.gradients(theta)))
        stayed = stayed and all(seen.wrong_count == 0 for _, seen in path)
        least = min(norm(seen.step(1.0)) ** 2 for _, seen in path[:-1])
        ratios.append(least * lr * ramp(steps).sum() / (2 * toy.losses(start).mean()))
    return Line(
        "Corollary D.1",
        "W empty: min_t ‖G/m‖² ≤ 2 L(θ_0)/(η Σγ_t), so O(1/T)",
        f"largest left/right {max(ratios):.3f} for T = 100, 1000, 4000",
        verdict(max(ratios) <= 1 + TOLERANCE, conditions=stayed),
    )


if __name__ == "__main__":
    sys.exit(main())
