"""What tests import; a plain module, because pytest gives the name conftest to several."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: One transformer block, a few steps, no dashboard, and in this very process: a second or two.
TINY = (
    "debug=tiny",
    "model.layers=1",
    "task.max_length=16",
    "tracking=none",
    "runtime.isolate=false",
    "runtime.progress=none",
)


def losses(folder):
    """The training losses in a run's history."""
    lines = (folder.path / "history.jsonl").read_text().splitlines()
    return [record["train/loss"] for record in map(json.loads, lines) if "train/loss" in record]
