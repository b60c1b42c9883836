"""What surrounds the training: starting runs, running two at once, planning and collecting 840 of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.execution import execute
from dsgd.runs import RunFolder, folder_of
from experiments.benchmark.ratios import paired
from experiments.grid import grid

ROOT = Path(__file__).parents[2]
SHORT = ("debug=tiny", "tracking=none", "runtime.threads=1", "runtime.progress=none")

#: 14 methods, 6 tasks and 10 seeds: the size of the paper's Table 1 for one model.
PLAN = (
    "task=multirc,copa,rte,boolq,mrpc,cola",
    "method=fft,dsgd,focal,lora,adalora,ia3,pcgrad,cagrad,lnsr,noisytune,swa,ema,sam,r3f",
    "seed=42,52,62,72,82,92,102,112,122,132",
)
EXPERIMENT = "laptop/smoke"


def overhead(folder: Path, runs: int) -> list[float]:
    """Seconds of each run beside its steps and evaluations; the first, which warms the fork server, is left out."""
    seconds = []
    for seed in range(runs + 1):
        (run,) = expand(read_command([f"results_dir={folder}", *SHORT, f"seed={seed}"]))
        started = time.perf_counter()
        outcome = execute(run, alone=False)
        whole = time.perf_counter() - started
        if outcome != "finished":
            raise RuntimeError(f"a run of the benchmark {outcome}: {folder_of(run).reason}")
        metrics, history = folder_of(run).metrics, folder_of(run).history
        seconds.append(whole - metrics["train_seconds"] - sum(line.get("eval/seconds", 0.0) for line in history))
    return seconds[1:]


def two_workers(folder: Path, steps: int, pairs: int) -> list[float]:
    """Runs per hour of two workers over those of one, of the same six runs, with one thread each.

    Of whole commands: what starts once, Python and its imports, counts too, and weighs more the shorter the runs are.
    """
    common = (*SHORT[1:], "debug.examples=200", "hydra.mode=MULTIRUN", "seed=1,2,3,4,5,6")
    small = ("task.max_length=32", f"trainer.max_steps={steps}")

    def sweep(launcher: str) -> float:
        results = folder / launcher
        seconds = _seconds("run.py", f"results_dir={results}", f"hydra/launcher={launcher}", *common, *small)
        shutil.rmtree(results)
        return seconds

    return paired(lambda: sweep("basic"), lambda: sweep("two_workers"), pairs)


def plan(folder: Path, *, warm: bool) -> list[float]:
    """Seconds of the command that lists all 840 runs; the second time it finds the grid on disk."""
    command = ("-m", "experiments.plan", "--results-dir", str(folder / "results"), EXPERIMENT, *PLAN)
    seconds = [_seconds(*command, cache=folder / "cache") for _ in range(2 if warm else 1)]
    return seconds[-1:]


def table(folder: Path) -> list[float]:
    """Seconds of a table out of 840 finished run folders of made-up predictions, their grid known."""
    generator = np.random.default_rng(0)
    os.environ["DSGD_CACHE"] = str(folder / "cache")
    for run in grid(EXPERIMENT, PLAN):
        _finish(RunFolder(folder / run.folder), run.id, generator)
    options = ("--experiment", EXPERIMENT, "--results-dir", str(folder), *PLAN)
    return [_seconds("-m", "experiments.table1", *options, cache=folder / "cache")]


def _finish(folder: RunFolder, name: str, generator: np.random.Generator) -> None:
    """A run folder as a finished run leaves it, of 100 made-up predictions."""
    from dsgd.config.schema import Evaluation
    from dsgd.evaluation import Predictions, evaluate

    labels = np.arange(100) % 2
    scores = generator.normal(size=(100, 2)).astype(np.float32)
    predictions = Predictions(np.arange(100), labels, scores, ["0", "1"])
    folder.write_json("environment.json", {"packages": {}})
    thresholds = Evaluation()
    row = {"id": name, **evaluate(predictions, thresholds), "thresholds": asdict(thresholds)}
    folder.write_json("metrics.json", row)
    folder.write_json("state.json", {"state": "finished", "pid": 1, "host": "", "time": ""})
    predictions.save(folder.path / "predictions.parquet")


def _seconds(*arguments: str, cache: Path | None = None) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"DSGD_CACHE": str(cache)} if cache else {})}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return time.perf_counter() - started
