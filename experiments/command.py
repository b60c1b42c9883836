"""The command line that all tables share: ``python -m experiments.<name>``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dsgd.config.validation import ConfigErrors
from dsgd.runs import safe_name
from experiments.collect import collect
from experiments.tables import Table, to_markdown, write


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
    usual = experiment or name
    options = _parser(name, usual).parse_args(arguments)
    overrides = tuple(options.overrides)
    try:
        frame = collect(options.experiment, options.results_dir, overrides)
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    table = draw(_file_name(name, usual, options), frame)
    table = replace(table, notes=[*table.notes, f"Command: `{_command(name, usual, options)}`"])
    paths = write(table, options.out or options.results_dir)
    print(f"{to_markdown(table)}\nwritten: {', '.join(map(str, paths))}")
    return 0


def _parser(name: str, usual: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", allow_abbrev=False)
    parser.add_argument("--experiment", default=usual, help="a variant of the experiment, as laptop/smoke")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="where runs/ lies")
    parser.add_argument("--out", type=Path, help="where the files go; else beside runs/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for run.py beside experiment=...")
    return parser


def _file_name(name: str, usual: str, options: argparse.Namespace) -> str:
    """The table's, and what makes it another than the usual one."""
    variant = [] if options.experiment == usual else [options.experiment.replace("/", "_")]
    return "-".join([name, *variant, *map(safe_name, options.overrides)])


def _command(name: str, usual: str, options: argparse.Namespace) -> str:
    variant = [] if options.experiment == usual else ["--experiment", options.experiment]
    return " ".join(["python", "-m", f"experiments.{name}", *variant, *options.overrides])
