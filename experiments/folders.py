"""The folders that a command line names."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def output(parser: argparse.ArgumentParser, folder: Path) -> Path:
    """``folder``, made where there is none; ends the process with exit code 2 where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{folder}: no folder can be made there: {error.strerror}")
    if not os.access(folder, os.W_OK):
        parser.error(f"{folder}: nothing can be written there")
    return folder


def warn_without_runs(results: Path) -> None:
    """Say on stderr that ``results`` holds no runs at all, as a misspelt one does."""
    if not (results / "runs").is_dir():
        print(f"{results} holds no runs, so all are missing", file=sys.stderr)
