"""``python -m experiments.benchmark.gpu``: the fused loss and whole training steps on a CUDA device.

Prints two tables and writes one JSON file; takes some minutes, and neither a hub nor pretrained weights. Where there is
no CUDA device it says so and exits 0, for nothing here has a bar.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dsgd.config.cuda import cuda_device_count
from dsgd.files import write_atomically
from experiments.benchmark import losses, models
from experiments.benchmark.surroundings import surroundings


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark.gpu", allow_abbrev=False)
    out = Path("results/gpu/benchmark.json")
    parser.add_argument("--out", type=Path, default=out, help="where the numbers go")
    options = parser.parse_args(arguments)
    if not cuda_device_count():
        print("There is no CUDA device here: nothing is measured.")
        return 0
    command = " ".join(["python -m experiments.benchmark.gpu", *(sys.argv[1:] if arguments is None else arguments)])
    found = {"command": command, **surroundings(), **measure()}
    write_atomically(options.out, json.dumps(found, indent=1) + "\n")
    print(f"written: {options.out}")
    return 0


def measure() -> dict[str, Any]:
    """All of it, printed as it comes: the device's name, ``losses`` and ``models``."""
    import torch

    name = torch.cuda.get_device_name()
    cells: list[losses.Cell] = []
    contests: list[dict[str, Any]] = []

    def kept(found: Iterator[Any], records: list[Any]) -> Iterator[Any]:
        for record in found:
            records.append(record)
            yield record

    print(f"\nLoss, forward and backward, bfloat16 logits, medians on {name}\n")
    for line in losses.table(kept(losses.measure(), cells)):
        print(line, flush=True)
    print("\nOptimiser steps in bf16, random weights of the published shapes\n")
    for line in models.table(kept(models.measure(), contests)):
        print(line, flush=True)
    return {"gpu": name, "losses": [cell._asdict() for cell in cells], "models": contests}


if __name__ == "__main__":
    sys.exit(main())
