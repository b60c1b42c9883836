"""The command line that all tables and figures share: ``python -m experiments.<name>``."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from dsgd.config.messages import ConfigErrors
from dsgd.runs import safe_name
from experiments.collect import collect
from experiments.folders import output, warn_without_runs
from experiments.tables import Table, to_markdown, write

#: Characters of a file's name before its ending.
LONGEST_NAME = 150


def main(
    name: str,
    draw: Callable[[str, pd.DataFrame], Table],
    arguments: Sequence[str] | None = None,
    experiment: str | None = None,
) -> int:
    """Collect an experiment's runs, draw the table, print it, and write it as Markdown, CSV and LaTeX.

    Args:
        name: of the table.
        draw: from the name of the files and what ``collect`` returns to the table.
        arguments: of the command line; None = the process's own.
        experiment: whose runs the table shows unless ``--experiment`` names a variant; None = that of its own name.

    Returns:
        0, or 2 if the command line is wrong.
    """
    return run(name, lambda asked, frame: write_table(draw, asked, frame), arguments, experiment)


class Asked(NamedTuple):
    """What a command line asks for."""

    name: str  # of the files, without an ending
    command: str  # that makes them
    folder: Path  # where they go


def run(
    name: str,
    produce: Callable[[Asked, pd.DataFrame], list[Path]],
    arguments: Sequence[str] | None = None,
    experiment: str | None = None,
) -> int:
    """Collect an experiment's runs and have files written of them; arguments and result as for :func:`main`."""
    usual = experiment or name
    parser = _parser(name, usual)
    options = parser.parse_args(arguments)
    warn_without_runs(options.results_dir)
    folder = output(parser, options.out or options.results_dir)
    try:
        frame = collect(options.experiment, options.results_dir, tuple(options.overrides))
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    asked = asked_for(name, usual, options.experiment, folder, options.overrides)
    print(f"written: {', '.join(map(str, produce(asked, frame)))}")
    return 0


def asked_for(name: str, usual: str, experiment: str, folder: Path, overrides: Sequence[str] = ()) -> Asked:
    """The files and the command line of table or figure ``name``, drawn of an experiment that is ``usual`` or not."""
    variant = [] if experiment == usual else [experiment]
    file_name = short_name(
        "-".join([name, *(other.replace("/", "_") for other in variant), *map(safe_name, overrides)])
    )
    option = ["--experiment", *variant] if variant else []
    return Asked(file_name, " ".join(["python", "-m", f"experiments.{name}", *option, *overrides]), folder)


def short_name(name: str) -> str:
    """``name``, of which a long rest is a checksum: file systems take 255 characters, endings and all."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 11]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def write_table(draw: Callable[[str, pd.DataFrame], Table], asked: Asked, frame: pd.DataFrame) -> list[Path]:
    """Draw a table, print it, and write it; returns its paths."""
    table = with_command(draw(asked.name, frame), asked)
    paths = write(table, asked.folder)
    print(to_markdown(table))
    return paths


def with_command(table: Table, asked: Asked) -> Table:
    """The table with the command that makes it as its last note."""
    return replace(table, notes=[*table.notes, f"Command: `{asked.command}`"])


def _parser(name: str, usual: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", allow_abbrev=False)
    parser.add_argument("--experiment", default=usual, help="a variant of the experiment, as laptop/smoke")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="where runs/ lies")
    parser.add_argument("--out", type=Path, help="where the files go; else beside runs/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for run.py beside experiment=...")
    return parser
