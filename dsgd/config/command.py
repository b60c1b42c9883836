"""Take a command line apart: Hydra's flags, the overrides, and paths written so that Hydra's grammar reads them.

Torch-free.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from dsgd.config.files import local_path

#: Keys whose value is a path: taken as it is written, and ``~`` is the home folder.
PATH_KEYS = ("results_dir", "model.path", "task.path", "task.evaluation_path", "data.root")


@dataclass(frozen=True)
class Command:
    """A command line, taken apart: Hydra's flags away from the overrides."""

    flags: tuple[str, ...]
    overrides: tuple[str, ...]
    multirun: bool
    only_shows: bool  # --cfg, --info, --help: nothing will run
    config_dir: str | None = None  # a further folder of configs, searched before conf/


def read_command(arguments: Sequence[str]) -> Command:
    """Take ``arguments`` apart; exit with 2 and one line on a flag that is malformed or not supported.

    Overrides may stand on both sides of a flag. Hydra by itself accepts none behind a flag if one stands before it.
    """
    options = get_args_parser().parse_intermixed_args(list(arguments))
    _check_flags(options)
    flags = list(arguments)
    for override in options.overrides:
        flags.remove(override)
    only_shows = any((options.cfg, options.info, options.help, options.hydra_help, options.shell_completion))
    overrides = tuple(literal_path(text, options.multirun) for text in options.overrides)
    return Command(tuple(flags), overrides, options.multirun, only_shows, options.config_dir)


def literal_path(text: str, multirun: bool = False) -> str:
    """Return the override ``text`` with a path quoted where Hydra's grammar would misread it, and ``~`` expanded.

    Args:
        text: one override as it was typed; returned unchanged unless its key is one of ``PATH_KEYS``.
        multirun: commas separate several paths, unless the whole text names something that exists.
    """
    key, _, raw = text.partition("=")
    if key not in PATH_KEYS or not raw:
        return text
    parsed = parse_one(text)
    if parsed is not None and isinstance(value := parsed.value(), str | QuotedString):
        plain = value.text if isinstance(value, QuotedString) else value
        return f"{key}={quoted(str(local_path(plain)))}" if plain.startswith("~") else text
    if parsed is not None and not _exists(raw):  # a sweep, null, a number
        return text
    paths = raw.split(",") if multirun and not _exists(raw) else [raw]
    return f"{key}={','.join(quoted(str(local_path(path))) for path in paths)}"


def parse_one(text: str) -> Override | None:
    """Parse one override without a config; return None where Hydra's grammar cannot read it."""
    try:
        (parsed,) = OverridesParser.create().parse_overrides([text])
    except (HydraException, RecursionError, ValueError):  # ValueError: a number of more digits than Python reads
        return None
    return parsed


def quoted(value: str) -> str:
    """Quote ``value`` so that Hydra reads it as one text."""
    return str(QuotedString(value, Quote.double).with_quotes())


def _check_flags(options: Namespace) -> None:
    """Refuse flags that Hydra would follow and the plan of runs would not, and combinations Hydra answers badly."""
    if options.multirun and (options.cfg or options.info):
        _refuse("--cfg and --info show one run; leave --multirun out")
    if options.resolve and not options.cfg:
        _refuse("--resolve goes with --cfg: --cfg job --resolve")
    if options.package and not options.cfg:
        _refuse("--package goes with --cfg: --cfg job --package trainer")
    for flag in ("config_name", "config_path", "experimental_rerun"):
        value = getattr(options, flag)
        if value is not None:
            name = "--" + flag.replace("_", "-")
            instead = "write DIR/experiment/mine.yaml and type --config-dir DIR experiment=mine"
            _refuse(f"{name} {value}: not supported; {instead}")
    if options.config_dir is not None and not Path(options.config_dir).is_dir():
        _refuse(f"--config-dir {options.config_dir}: no such folder")


def _refuse(reason: str) -> NoReturn:
    sys.stderr.write(f"run.py: {reason}\n")
    raise SystemExit(2)


def _exists(path: str) -> bool:
    try:
        return local_path(path).exists()
    except (OSError, ValueError):  # too long, or a null character
        return False
