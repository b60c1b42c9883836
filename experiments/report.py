"""One self-contained HTML page of what the run folders hold: tables, figures, claims, audit, states, environments.

python -m experiments.report                                      all experiments, laptop variants that have runs
python -m experiments.report --experiments laptop/smoke,table2    these
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dsgd.config import tree
from dsgd.config.messages import ConfigErrors
from dsgd.files import write_atomically
from dsgd.runs import RunFolder
from experiments import command, page
from experiments.audit import audit
from experiments.catalogue import Item, items_of
from experiments.claims import ledger, read_claims
from experiments.collect import collect
from experiments.command import Asked
from experiments.figures import drawing, told
from experiments.folders import output, warn_without_runs
from experiments.listing import cells
from experiments.names import model_title, task_title
from experiments.page import Section, grid, paragraph, text
from experiments.plan import STATES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TITLE = "Stable fine-tuning: results"

#: Of a run's surroundings, what tells environments apart.
ENVIRONMENT = ("python", "platform", "device", "precision", "threads", "processes", "git_commit", "git_dirty")


@dataclass(frozen=True)
class Experiment:
    """A named experiment and what became of its runs."""

    name: str
    frame: pd.DataFrame

    @property
    def has_runs(self) -> bool:
        """Whether one has finished."""
        return bool((self.frame["state"] == "finished").any())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``report.html``; returns 0, or 2 where an experiment or an override is wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    warn_without_runs(options.results_dir)
    folder = output(parser, options.out or options.results_dir)
    named = [name for name in options.experiments.split(",") if name]
    overrides = tuple(options.overrides)
    try:
        found = experiments_of(named, options.results_dir, overrides)
        content = report(found, options.results_dir, named, overrides)
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    path = folder / "report.html"
    write_atomically(path, content)
    print(f"written: {path}")
    return 0


def experiments_of(named: Sequence[str], results: Path, overrides: tuple[str, ...]) -> list[Experiment]:
    """Those that are named; without names all of the paper, and the laptop's variants that have finished runs.

    Raises:
        ConfigErrors: there is no such experiment, or an override is wrong.
    """
    folder = tree.CONF / "experiment"
    everything = sorted(folder.glob("*.yaml")), sorted(folder.glob("*/*.yaml"))
    usual, variants = ([str(path.relative_to(folder).with_suffix("")) for path in paths] for paths in everything)
    found = [Experiment(name, collect(name, results, overrides)) for name in named or [*usual, *variants]]
    return [each for each in found if named or each.has_runs or each.name in usual]


def report(found: Sequence[Experiment], results: Path, named: Sequence[str], overrides: tuple[str, ...]) -> str:
    """The page as HTML."""
    options = [f"--experiments {','.join(named)}"] if named else []
    how = " ".join(["python -m experiments.report", *options, *overrides])
    counts = Counter(run["state"] for run in runs_of(found))
    summary = ", ".join(f"{counts[state]} {state}" for state in STATES)
    introduction = paragraph(f"Made by `{how}`. {sum(counts.values())} distinct runs are planned: {summary}.")
    sections = [
        states(found, overrides),
        *(section for each in found for section in drawn(each, overrides)),
        claims(results, named, overrides),
        audited(),
        environments(found),
    ]
    return page.page(TITLE, introduction, sections)


# --- sections -------------------------------------------------------------------------------------------------------


def states(found: Sequence[Experiment], overrides: tuple[str, ...]) -> Section:
    """What has become of every planned run, a line for each cell that has one, and the failed ones by name."""
    body = ""
    for each in found:
        how = " ".join(["python -m experiments.plan", each.name, *overrides])
        body += f"<h3>{text(each.name)}</h3>" + paragraph(f"`{how}`", "note")
        body += paragraph(told(each.frame) + ".") + _cells(each.frame) + _failed(each.frame)
    return Section("runs", "Runs and their states", body)


def drawn(experiment: Experiment, overrides: tuple[str, ...]) -> Iterator[Section]:
    """A section for each table and figure that shows an experiment's runs."""
    for item in items_of(experiment.name):
        usual = item.experiment
        asked = command.asked_for(item.name, usual, experiment.name, Path(), overrides)
        variant = "" if experiment.name == usual else f", of {experiment.name}"
        yield Section(asked.name, f"{title_of(item.name)}{variant}", _drawn(item, experiment.frame, asked))


def claims(results: Path, named: Sequence[str], overrides: tuple[str, ...]) -> Section:
    """The ledger by each claim's own experiment, or by each of the named ones."""
    body = ""
    for name in named or (None,):
        how = ["python -m experiments.claims", *([f"--experiment {name}"] if name else []), *overrides]
        lines = ledger(read_claims(), results, name, overrides)
        body += paragraph(f"`{' '.join(how)}`", "note") + _listing(lines)
    return Section("claims", "The papers' claims", body)


def audited() -> Section:
    """What the paper's printed numbers say of each other."""
    how = paragraph("`python -m experiments.audit`", "note")
    return Section("audit", "Audit of the printed numbers", how + _listing(audit()))


def environments(found: Sequence[Experiment]) -> Section:
    """What the finished runs ran on, each distinct one once."""
    runs = [run for run in runs_of(found) if run["state"] == "finished"]
    seen = Counter(_environment(run) for run in runs)
    if not seen:
        return Section("environments", "Environments", paragraph("No run has finished.", "empty"))
    rows = [[str(count), *map(text, environment)] for environment, count in seen.most_common()]
    return Section("environments", "Environments", grid(["runs", *ENVIRONMENT, "packages"], [rows]))


def title_of(name: str) -> str:
    """``figure4a`` → Figure 4a, ``figures9_11`` → Figures 9–11, ``focal_grid`` → Focal grid."""
    for kind in ("table", "figures", "figure"):
        if name.startswith(kind):
            return f"{kind.capitalize()} {name.removeprefix(kind).replace('_', '–', 1)}"
    return name.replace("_", " ").capitalize()


def runs_of(found: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Every planned run once, however many experiments share it."""
    by_id = {run["id"]: run for each in found for run in each.frame.to_dict("records")}
    return [{str(key): value for key, value in run.items()} for run in by_id.values()]


# --- parts of sections ----------------------------------------------------------------------------------------------


def _drawn(item: Item, frame: pd.DataFrame, asked: Asked) -> str:
    body = page.table(command.with_command(item.table(asked.name, frame), asked)) if item.table else ""
    if item.figure:
        shown = page.picture(drawing(item.figure, frame, asked.command).figure, title_of(item.name))
        body += paragraph(f"{told(frame)}. `{asked.command}`", "note") + shown
    return body


def _cells(frame: pd.DataFrame) -> str:
    """Cells in which something has happened; the others are only counted."""
    rows, untouched = [], 0
    for (model, task, method), runs in frame.groupby(["model", "task", "method"], sort=False):
        counts = runs["state"].value_counts()
        if counts.get("missing", 0) == len(runs):
            untouched += 1
            continue
        names = [model_title(str(model)), task_title(str(task)), str(method)]
        rows.append([*map(text, names), *(str(counts.get(state, 0)) for state in STATES)])
    rest = paragraph(f"{untouched} cells without any run.", "empty") if untouched else ""
    return (grid(["model", "task", "method", *STATES], [rows]) if rows else "") + rest


def _failed(frame: pd.DataFrame) -> str:
    failed = frame[frame["state"] == "failed"].to_dict("records")
    rows = [[text(str(run[key])) for key in ("model", "task", "method", "seed", "reason")] for run in failed]
    return grid(["failed: model", "task", "method", "seed", "reason"], [rows]) if rows else ""


def _listing(rows: Sequence[DataclassInstance]) -> str:
    head, *body = cells(rows)
    return grid(head, [[[text(cell) for cell in row] for row in body]])


def _environment(run: dict[str, Any]) -> tuple[str, ...]:
    folder = RunFolder(run["folder"])
    known = folder.read("environment.json") or {}
    packages = ", ".join(f"{name} {version}" for name, version in folder.packages.items())
    return (*(str(known.get(key, "unknown")) for key in ENVIRONMENT), packages)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--experiments", default="", help="names, separated by commas; default: all")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="where runs/ lies")
    parser.add_argument("--out", type=Path, help="where report.html goes; else beside runs/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for run.py beside experiment=...")
    return parser


if __name__ == "__main__":
    sys.exit(main())
