"""What an experiment has, what it lacks, and what the rest will cost.

python -m experiments.plan table1                      finished, running, failed and missing runs of each cell
python -m experiments.plan table1 --device h100        with the cost on that device
python -m experiments.plan table1 --missing            command lines that train only what is missing
python -m experiments.plan table1 --missing --retry failed      and what has failed
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsgd.config.cuda import cuda_device_count
from dsgd.config.messages import ConfigErrors
from dsgd.runs import State
from experiments import cost
from experiments.cost import Device
from experiments.folders import warn_without_runs
from experiments.grid import PlannedRun, grid
from experiments.states import Found, look

STATES: tuple[State, ...] = ("finished", "running", "failed", "missing")


@dataclass(frozen=True)
class Estimate:
    """Seconds of one run, and what they rest on."""

    seconds: float
    basis: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where the experiment or an override is wrong."""
    options = _parser().parse_args(arguments)
    warn_without_runs(options.results_dir)
    try:
        found = look(grid(options.experiment, options.overrides), options.results_dir)
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    wanted: set[State] = {"missing", "failed"} if options.retry else {"missing"}
    if options.missing:
        lines = command_lines(entry.run for entry in found if entry.state in wanted)
    else:
        device = options.device or ("a100" if cuda_device_count() else "cpu")
        lines = report(options.experiment, options.results_dir, found, wanted, device)
    print("\n".join(lines))
    return 0


# --- cost -----------------------------------------------------------------------------------------------------------


def estimate(run: PlannedRun, found: Iterable[Found], device: Device) -> Estimate | None:
    """From finished runs of the same cell, else of the same model and task, else by arithmetic; None without facts."""
    timed = [(entry.run, entry.seconds) for entry in found if entry.seconds is not None]
    same_cell = [seconds for other, seconds in timed if other.cell_id == run.cell_id]
    alike = [seconds for other, seconds in timed if (other.model, other.task) == (run.model, run.task)]
    for seconds, basis in ((same_cell, "finished runs of the cell"), (alike, "finished runs of the model and task")):
        if seconds:
            return Estimate(statistics.median(seconds), basis)
    computed = cost.seconds(run.facts, device)
    return None if computed is None else Estimate(computed, "arithmetic")


def report(name: str, results: Path, found: list[Found], wanted: set[State], device_name: str) -> list[str]:
    """A line for each cell, then the sums."""
    device = cost.devices()[device_name]
    cells: dict[str, list[Found]] = {}
    for entry in found:
        cells.setdefault(entry.run.cell_id, []).append(entry)
    estimates = {cell: estimate(entries[0].run, found, device) for cell, entries in cells.items()}
    rows = [("model", "task", "method", *STATES, "each", "based on")]
    for cell, entries in cells.items():
        run, each = entries[0].run, estimates[cell]
        counts = Counter(entry.state for entry in entries)
        shown = [str(counts[state] or "-") for state in STATES]
        ends = ("?", "no estimate") if each is None else (duration(each.seconds), each.basis)
        rows.append((run.model, run.task, run.method, *shown, *ends))
    counts = Counter(entry.state for entry in found)
    summary = ", ".join(f"{counts[state]} {state}" for state in STATES)
    rest = [entry for entry in found if entry.state in wanted]
    sums = _sums(rest, estimates, device, failed=counts["failed"] > 0)
    head = f"{name}: {len(found)} runs in {len(cells)} cells, results in {results}"
    return [head, "", *_columns(rows), "", f"{len(found)} runs: {summary}", *sums]


def _sums(rest: list[Found], estimates: dict[str, Estimate | None], device: Device, *, failed: bool) -> list[str]:
    """What the runs that are still to train need altogether."""
    if not rest:
        return ["nothing is missing; --retry failed adds what has failed" if failed else "nothing is left to train"]
    lines = [f"to train: {len(rest)} run{'s' * (len(rest) > 1)}, one after another on {device.name} (estimates)"]
    known = [each for entry in rest if (each := estimates[entry.run.cell_id]) is not None]
    by_basis = Counter(each.basis for each in known)
    bases = "; ".join(f"{count} by {basis}" for basis, count in by_basis.items())
    lines.append(f"  time    {duration(sum(each.seconds for each in known))} ({bases or 'nothing to go by'})")
    if len(known) < len(rest):
        lines.append(f"          without {len(rest) - len(known)} runs whose model or task states no size")
    totals = {key: _total(rest, other) for key, other in cost.devices().items() if other != device}
    elsewhere = [f"{key} {duration(total)}" for key, total in totals.items() if total is not None]
    if elsewhere:
        lines.append(f"          by arithmetic on other devices: {', '.join(elsewhere)}")
    disk = [size for entry in rest if (size := cost.disk_bytes(entry.run.facts)) is not None]
    if disk:
        lines.append(f"  disk    {_size(sum(disk))} of run folders")
    memory = [size for entry in rest if (size := cost.memory_bytes(entry.run.facts, device)) is not None]
    if memory:
        room = f" of {device.memory_gib:g} GiB" if device.memory_gib else ""
        lines.append(f"  memory  {_size(max(memory))}{room} for the largest run: weights, AdamW, activations")
    return lines


def _total(rest: list[Found], device: Device) -> float | None:
    each = [cost.seconds(entry.run.facts, device) for entry in rest]
    return None if None in each else sum(value for value in each if value is not None)


# --- command lines --------------------------------------------------------------------------------------------------


def command_lines(missing: Iterable[PlannedRun]) -> list[str]:
    """``run.py`` command lines that train these runs and no others: as few sweeps as merging key by key gives."""
    lines = []
    for sweep in sweeps(run.overrides for run in missing):
        flag = ["-m"] if any(len(values) > 1 for values in sweep.values()) else []
        arguments = [f"{key}={','.join(values)}" for key, values in sweep.items()]
        lines.append(shlex.join(["python", "run.py", *flag, *arguments]))
    return lines


def sweeps(combinations: Iterable[Sequence[str]]) -> list[dict[str, tuple[str, ...]]]:
    """Products that cover exactly these distinct combinations of ``key=value``.

    Those that differ in one key alone become one with the values of both, key after key from the last.
    """
    products: list[dict[str, tuple[str, ...]]] = []
    for texts in combinations:
        pairs = (text.split("=", 1) for text in texts)
        products.append({key: (value,) for key, value in pairs})
    for key in reversed(list(dict.fromkeys(key for product in products for key in product))):
        merged: dict[tuple[object, ...], dict[str, tuple[str, ...]]] = {}
        for product in products:
            others = frozenset(item for item in product.items() if item[0] != key)
            first = merged.setdefault((others, key in product), product)
            if first is not product:
                first[key] += product[key]
        products = list(merged.values())
    return products


# --- words ----------------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Two digits and a unit: ``45 s``, ``12 min``, ``3.5 h``, ``20 days``."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            amount = seconds / size
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _size(count: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 2**10:.0f} KiB"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.plan", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("experiment", help="a name under conf/experiment/, such as table1 or laptop/smoke")
    parser.add_argument("overrides", nargs="*", help="further overrides, as on run.py's command line")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="the folder that holds runs/")
    parser.add_argument("--missing", action="store_true", help="print command lines that train only the missing runs")
    parser.add_argument("--retry", choices=["failed"], help="count these with the missing ones")
    parser.add_argument("--device", choices=sorted(cost.devices()), help="whose time to estimate")
    return parser


if __name__ == "__main__":
    sys.exit(main())
