"""``python -m experiments.benchmark``: what things cost on this CPU, each beside its bar.

Ratios are of neighbouring measurements in one process, their median with a 95 % bootstrap interval; a bar is missed
only where the whole interval lies beyond it. Exits 1 if one is missed or could not be measured. Where there is a CUDA
device, ``experiments.benchmark.gpu`` follows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dsgd.config.cuda import cuda_device_count
from dsgd.files import write_atomically
from dsgd.summary import markdown_table
from experiments.benchmark import gpu, steps, sweeps, trainer
from experiments.benchmark.ratios import Interval, interval, paired
from experiments.benchmark.surroundings import surroundings

#: From a scratch folder and whether to be quick, to the samples.
Measure = Callable[[Path, bool], list[float]]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    what: str
    side: Literal["≤", "≥"]
    bar: float
    unit: Literal["", " s"]
    measure: Measure

    def is_missed(self, found: Interval) -> bool:
        """Whether the whole interval lies on the wrong side."""
        return found.low > self.bar if self.side == "≤" else found.high < self.bar


def _steps(*overrides: str, beside: Sequence[str] = (), halves: bool = False) -> Measure:
    """Steps of ``overrides`` over those of plain fine-tuning, ``beside`` said to both."""

    def measure(folder: Path, quick: bool) -> list[float]:
        one, other = (
            steps.Stepper(steps.make_training(folder, *said, *beside), halves=halves)
            for said in (overrides, ["method=fft"])
        )
        return paired(one, other, 6 if quick else 60)

    return measure


def _throughput(*, tuned: bool) -> Measure:
    def measure(folder: Path, quick: bool) -> list[float]:
        count = 3 if quick else 10
        training, rows = trainer.on_mrpc(folder)
        print(f"  ({rows})")
        ours, theirs = trainer.Ours(training, count), trainer.Theirs(folder, training, count, tuned=tuned)
        return paired(theirs, ours, 2 if quick else 6)

    return measure


FP32, BF16 = "runtime.precision=fp32", "runtime.precision=bf16"
WATCHED = ("method=fft", "diagnostics=gradients")
ROWS = (
    Row("dsgd", "DSGD step / FFT step", "≤", 1.02, "", _steps("method=dsgd")),
    Row("pcgrad_fp32", "PCGrad step / FFT step, equal groups, fp32", "≤", 1.20, "",
        _steps("method=pcgrad", beside=[FP32], halves=True)),
    Row("pcgrad_bf16", "PCGrad step / FFT step, equal groups, bf16", "≤", 1.30, "",
        _steps("method=pcgrad", beside=[BF16], halves=True)),
    Row("diagnostics_10", "step with W/C diagnostics on 10 layers / FFT step", "≤", 1.10, "", _steps(*WATCHED)),
    Row("diagnostics_all", "the same on all layers", "≤", 1.30, "", _steps(*WATCHED, "diagnostics.layers=null")),
    Row("lnsr", "LNSR step / FFT step", "≤", 1.40, "", _steps("method=lnsr")),
    Row("trainer_default", "throughput / transformers.Trainer, its defaults", "≥", 2.0, "", _throughput(tuned=False)),
    Row("trainer_tuned", "throughput / transformers.Trainer, tuned", "≥", 1.15, "", _throughput(tuned=True)),
    Row("overhead", "overhead of a run of a warm sweep", "≤", 1.5, " s",
        lambda folder, quick: sweeps.overhead(folder, 2 if quick else 8)),
    Row("two_workers", "runs per hour of two workers / one", "≥", 1.7, "",
        lambda folder, quick: sweeps.two_workers(folder, 60, 1 if quick else 2)),
    Row("plan_cold", "plan of 840 runs, never planned before", "≤", 15, " s",
        lambda folder, _: sweeps.plan(folder, warm=False)),
    Row("plan_cached", "plan of 840 runs, planned before", "≤", 2, " s",
        lambda folder, _: sweeps.plan(folder, warm=True)),
    Row("table", "table from 840 run folders", "≤", 5, " s", lambda folder, _: sweeps.table(folder)),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; 1 if a bar is missed, 2 if the command line is wrong."""
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark", allow_abbrev=False)
    parser.add_argument("--only", nargs="+", choices=names, metavar="name", help="rows to measure; see --list")
    parser.add_argument("--list", action="store_true", help="the rows' names and bars")
    parser.add_argument("--quick", action="store_true", help="few repetitions: does it run? The intervals are wide")
    parser.add_argument("--out", type=Path, default=Path("results/benchmark_cpu.json"), help="where the numbers go")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if row.name in (options.only or names)]
    if options.list:
        print("\n".join(f"{row.name:16} {row.side} {row.bar:g}{row.unit:2} {row.what}" for row in rows))
        return 0
    records = [_measured(row, options.quick) for row in rows]
    print("\n" + "\n".join(markdown_table([["what", "bar", "median", "95 % interval", ""], *map(_line, records)])))
    command = " ".join(["python -m experiments.benchmark", *(sys.argv[1:] if arguments is None else arguments)])
    found: dict[str, Any] = {"command": command, **surroundings(), "rows": records}
    if cuda_device_count() and not options.only:
        found["gpu"] = gpu.measure()
    write_atomically(options.out, json.dumps(found, indent=1) + "\n")
    print(f"written: {options.out}")
    return int(any(record["verdict"] != "met" for record in records))


def _measured(row: Row, quick: bool) -> dict[str, Any]:
    """Samples, interval and verdict; a row that breaks costs none of the others."""
    print(f"{row.name} …", flush=True)
    record: dict[str, Any] = {"name": row.name, "what": row.what, "bar": f"{row.side} {row.bar:g}{row.unit}"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            samples = row.measure(Path(folder), quick)
            found = interval(samples)
        except Exception as error:
            return {**record, "verdict": "not measured", "error": f"{type(error).__name__}: {error}"}
    verdict = "missed" if row.is_missed(found) else "met"
    return {**record, "unit": row.unit, **found._asdict(), "samples": samples, "verdict": verdict}


def _line(record: dict[str, Any]) -> list[str]:
    if "error" in record:
        return [record["what"], record["bar"], record["error"].splitlines()[0], "", record["verdict"]]
    unit = record["unit"]
    numbers = f"{record['median']:.3f}{unit}", f"{record['low']:.3f} to {record['high']:.3f}{unit}"
    return [record["what"], record["bar"], *numbers, record["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
