"""What became of each run of one command, told by this process and by the launcher's workers. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import get_args

from dsgd.execution import Outcome, Word


def tell(file: Path, run_id: str, outcome: Outcome) -> None:
    """Add a run's outcome to ``file``; one line at once, so that workers' lines do not mix."""
    line = json.dumps({"id": run_id, "outcome": str(outcome), "reason": outcome.reason}) + "\n"
    with suppress(OSError), file.open("a", encoding="utf-8") as stream:  # on another machine it may not be there
        stream.write(line)


def told(file: Path) -> Mapping[str, Outcome]:
    """Run id to its outcome, the last where there are several; only runs of which something was told."""
    return dict(_lines(file))


def _lines(file: Path) -> Iterator[tuple[str, Outcome]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, KeyError):
            entry = json.loads(line)
            if entry["outcome"] in get_args(Word):
                yield entry["id"], Outcome(entry["outcome"], entry["reason"])
