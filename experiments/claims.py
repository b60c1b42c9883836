"""The papers' claims, each tested on our runs and held against the paper's own tables.

    python -m experiments.claims [--experiment NAME] [--results-dir results] [--out DIR] [key=value ...]

``claims.yaml`` says what is claimed, which experiment's runs speak to it and which test decides it
(``claim_tests.py``). A claim is *supported* where all of its comparisons are significant at 5 % after Holm's correction
over the claim, *refuted* where one of them is significant the other way, *undecided* where the runs there are do not
tell, *not run* where there are none. With ``--experiment`` all claims are judged by those runs instead, and what was
said of other models is carried over to the ones that were trained.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

from omegaconf import MISSING, OmegaConf

from dsgd.config.messages import ConfigErrors
from experiments.claim_tests import OF_ONE, PRINTED_EFFECTS, TESTS, Outcome
from experiments.collect import collect
from experiments.comparison import column_title
from experiments.folders import output, warn_without_runs
from experiments.listing import print_listing, write_listing
from experiments.names import model_title
from experiments.samples import Moments, Place, Sample, pools, printed_values, samples_of
from experiments.statistics import holm

LEDGER = Path(__file__).with_name("claims.yaml")
ALPHA = 0.05
SHOWN = 3  # comparisons that a line names

Verdict = Literal["supported", "refuted", "undecided", "not run"]
T = TypeVar("T", bound=Moments)


@dataclass
class Claim:
    """An entry of ``claims.yaml``; methods are named as in ``samples.Place``, or ``name*`` for a pool of labels."""

    claim: str = MISSING
    source: str = MISSING
    experiment: str = MISSING  # whose runs speak to it
    test: str = MISSING  # a key of TESTS
    of: list[str] = field(default_factory=list)  # the methods that it favours
    than: list[str] = field(default_factory=list)
    scope: str = "every"  # every: in each task; average: over each model's tasks
    table: str = ""  # of the paper, whose values speak to it
    models: list[str] = field(default_factory=list)  # none: all
    tasks: list[str] = field(default_factory=list)  # patterns; none: all
    limit: float = 1.0  # of a ratio of times


@dataclass(frozen=True)
class Line:
    """What became of one claim."""

    claim: str
    source: str
    ours: Verdict
    numbers: str
    runs: str
    paper: str  # what its own tables say


def main(arguments: list[str] | None = None) -> int:
    """Print the ledger for the runs of some experiments; with ``--out``, write it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.claims", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--experiment", help="judge all claims by the runs of this one; default: each by its own")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="where runs/ lies")
    parser.add_argument("--out", type=Path, help="also write claims.md and claims.csv into this folder")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for run.py beside experiment=...")
    options = parser.parse_args(arguments)
    warn_without_runs(options.results_dir)
    folder = options.out and output(parser, options.out)
    try:
        lines = ledger(read_claims(), options.results_dir, options.experiment, tuple(options.overrides))
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    print_listing(lines)
    print("\n" + ", ".join(f"{sum(line.ours == verdict for line in lines)} {verdict}" for verdict in get_args(Verdict)))
    if folder is not None:
        named = ["--experiment", options.experiment] if options.experiment else []
        command = " ".join(
            ["python", "-m", "experiments.claims", *named, "--out", str(options.out), *options.overrides]
        )
        write_listing(lines, folder, "claims", command)
    return 0


def read_claims(path: Path = LEDGER) -> list[Claim]:
    """The claims of a YAML file.

    Raises:
        ValueError: an entry names a test or a scope that there is not.
        omegaconf.errors.OmegaConfBaseException: an entry has another key or a value of another type.
    """
    claims = []
    for entry in OmegaConf.load(path):
        claim = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Claim), entry))
        assert isinstance(claim, Claim)
        for key, value, known in (("test", claim.test, list(TESTS)), ("scope", claim.scope, ["every", "average"])):
            if value not in known:
                raise ValueError(f"{path.name}: {claim.claim}: {key} = {value}: give one of {', '.join(known)}")
        claims.append(claim)
    return claims


def ledger(
    claims: Sequence[Claim], results: Path, experiment: str | None = None, overrides: tuple[str, ...] = ()
) -> list[Line]:
    """One line for each claim, by the runs of ``experiment``, or of each claim's own.

    Raises:
        ConfigErrors: there is no such experiment, or an override is wrong.
    """

    @cache
    def samples(name: str) -> dict[Place, Sample]:
        return samples_of(collect(name, results, overrides))

    return [
        Line(
            claim.claim,
            claim.source,
            *judged(claim, samples(experiment or claim.experiment)),
            said_by_the_paper(claim, printed_values(claim.table)),
        )
        for claim in claims
    ]


def judged(claim: Claim, samples: Mapping[Place, Sample]) -> tuple[Verdict, str, str]:
    """Verdict, its numbers, and the runs that it rests on."""
    there = chosen(claim, {**samples, **pools(samples, [*claim.of, *claim.than])}, carry_over=True)
    found = comparisons(claim, there)
    runs = _runs(claim, found, {model_title(place.model) for place in there if place.model not in claim.models})
    begun = [one for one in found if all(sample.ended for sample in one.of + one.than)]
    planned = {place.method.partition("/")[0] for place in there}
    lacking = [name for name in [*claim.of, *claim.than] if name not in planned]
    unplanned = f"not planned: {', '.join(lacking)}" if lacking else ""
    if not begun:
        return "not run", unplanned or "no run has ended", runs
    outcomes = [TESTS[claim.test](one.of, one.than, claim.limit) for one in begun]
    adjusted = [outcome._replace(p=p) for outcome, p in zip(outcomes, holm([one.p for one in outcomes]), strict=True)]
    verdict = _verdict(adjusted, complete=len(begun) == len(found) and not lacking)
    return verdict, _numbers(begun, adjusted) + f" ({unplanned})" * bool(lacking), runs


def said_by_the_paper(claim: Claim, values: Mapping[Place, Moments]) -> str:
    """Whether the printed means and STDs, taken as they are, agree with the claim, and where not."""
    effect_of = PRINTED_EFFECTS.get(claim.test)
    found = comparisons(claim, chosen(claim, values, carry_over=False))
    if effect_of is None or not found:
        return "its tables do not say"
    effects = sorted((effect_of(one.of, one.than), one.name) for one in found)
    against = [f"{name} {effect:+.2f}" for effect, name in effects if effect < 0]
    if not against:
        return f"its tables agree ({len(found)} of {len(found)})"
    return f"its tables contradict it in {len(against)} of {len(found)}: {_some(against)}"


# ------------------------------------------------------------------ what is compared with what


class Comparison(NamedTuple, Generic[T]):
    """Both sides of a test, with one entry a task; ``than`` is empty in claims about one method."""

    name: str
    of: list[T]
    than: list[T]


def comparisons(claim: Claim, values: Mapping[Place, T]) -> list[Comparison[T]]:
    """Every comparison that a claim asks for and both sides of which there are."""
    found: dict[str, Comparison[T]] = {}
    for model, column in dict.fromkeys((place.model, place.column) for place in values):
        here = [place.method for place in values if (place.model, place.column) == (model, column)]
        where = model_title(model) + (f" on {column_title(column)}" if claim.scope == "every" else "")
        for of, than in _pairs(claim, here):
            name = f"{where}, {of}" + (f" against {than}" if than else "")
            one = found.setdefault(name, Comparison(name, [], []))
            one.of.append(values[Place(model, column, of)])
            one.than.extend([values[Place(model, column, than)]] if than else [])
    return list(found.values())


def _pairs(claim: Claim, methods: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``swa`` stands for each of the averages that its training was evaluated with."""
    of, than = (
        [method for name in names for method in methods if method.partition("/")[0] == name]
        for names in (claim.of, claim.than)
    )
    return itertools.product(of, [""] if claim.test in OF_ONE else than)


def chosen(claim: Claim, values: Mapping[Place, T], *, carry_over: bool) -> dict[Place, T]:
    """Those of the claim's tasks and models; with ``carry_over`` of all models where none of its own is there."""
    on_tasks = {
        place: value
        for place, value in values.items()
        if not claim.tasks or any(fnmatchcase(place.column.task, pattern) for pattern in claim.tasks)
    }
    own = {place: value for place, value in on_tasks.items() if not claim.models or place.model in claim.models}
    return own or (on_tasks if carry_over else {})


# ------------------------------------------------------------------ words


def _verdict(outcomes: Sequence[Outcome], complete: bool) -> Verdict:
    signs = [math.copysign(outcome.p < ALPHA, outcome.effect) for outcome in outcomes]  # ±0 where not significant
    if min(signs) < 0:
        return "refuted"
    return "supported" if complete and min(signs) > 0 else "undecided"


def _numbers(found: Sequence[Comparison[Sample]], outcomes: Sequence[Outcome]) -> str:
    """How many comparisons speak for the claim and against it, and those that least speak for it."""
    sure = [outcome.effect for outcome in outcomes if outcome.p < ALPHA]
    counts = f"{sum(effect > 0 for effect in sure)} for, {sum(effect < 0 for effect in sure)} against, of {len(found)}"
    order = sorted(zip(outcomes, found, strict=True), key=lambda pair: pair[0].effect)
    return f"{counts}: " + _some([f"{one.name}: {outcome.text}{_p(outcome.p)}" for outcome, one in order])


def _p(p: float) -> str:
    return "" if p == 0 else ", no test: too few runs or no spread" if math.isnan(p) else f", p = {p:.2g}"


def _runs(claim: Claim, found: Sequence[Comparison[Sample]], models: set[str]) -> str:
    """How many of the planned runs (or ensembles) have ended, and on which models if on others than the claim's."""
    samples = {id(sample): sample for one in found for sample in one.of + one.than}.values()
    if not samples:
        return "none planned"
    carried = f", carried over to {', '.join(sorted(models))}" if claim.models and models else ""
    return f"{sum(sample.ended for sample in samples)} of {sum(sample.planned for sample in samples)}{carried}"


def _some(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return "; ".join([*texts[:SHOWN], *more])


if __name__ == "__main__":
    sys.exit(main())
