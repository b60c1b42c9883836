"""Makes the miniature run folders under ``tests/experiments/miniature`` and the tables that must come out of them.

PYTHONPATH=. python tests/experiments/make_runs.py

Every number is drawn from a generator of a fixed seed: no model was trained. The folders hold what run folders hold,
and of every state and status one at least.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np

from dsgd.config.schema import Evaluation
from dsgd.evaluation import Predictions, evaluate
from dsgd.runs import RunFolder, safe_name
from experiments import table1, table1_ensembles, table2, table6, tables
from experiments.collect import gather
from experiments.grid import Facts, PlannedRun

HERE = Path(__file__).parent
RESULTS = HERE / "miniature"
GOLDEN = HERE / "golden"
DRAWERS = {
    "table1": table1.draw,
    "table1_ensembles": table1_ensembles.draw,
    "table2": table2.draw,
    "table6": table6.draw,
}

PACKAGES = {"torch": "2.0", "transformers": "5.0", "numpy": "2.0"}


def main() -> None:
    """Replace the committed folders and tables."""
    for folder in (RESULTS, GOLDEN):
        shutil.rmtree(folder, ignore_errors=True)
    make_runs(RESULTS)
    for name in DRAWERS:
        tables.write(drawn(name, RESULTS), GOLDEN)


def drawn(name: str, results: Path) -> tables.Table:
    """The table of the miniature runs under ``results``."""
    return DRAWERS[name](name, gather(planned(name), results))


def planned(name: str) -> list[PlannedRun]:
    """The runs that a miniature experiment plans."""
    if name.startswith("table1"):
        methods = ("fft", "focal", "swa", "dsgd", "dsgd[tau=0.5]")
        return _grid("roberta_large", ("copa", "rte"), methods, (42, 52, 62))
    if name == "table2":
        return _grid("vit_base", ("cifar10_longtail_100", "cifar10_step_2"), ("fft", "dsgd"), tuple(range(42, 93, 10)))
    return _grid("roberta_large", ("mrpc+rte", "mrpc+cola", "rte+cola"), ("fft", "dsgd"), (42, 52))


def make_runs(results: Path) -> None:
    """Write the folder of every planned run that is not missing."""
    generator = np.random.default_rng(0)
    for run in {run.id: run for name in DRAWERS for run in planned(name)}.values():
        _make(run, RunFolder(results / run.folder), generator)


def _grid(model: str, tasks: tuple[str, ...], methods: tuple[str, ...], seeds: tuple[int, ...]) -> list[PlannedRun]:
    return [_planned(model, task, method, seed) for task in tasks for method in methods for seed in seeds]


def _planned(model: str, task: str, method: str, seed: int) -> PlannedRun:
    name = _digest(f"{model} {task} {method} {seed}")
    return PlannedRun(
        id=name,
        cell_id=_digest(f"{model} {task} {method}"),
        model=model,
        task=task,
        method=method,
        preset=method.split("[")[0],
        seed=seed,
        overrides=(),
        folder=f"runs/{model}/{task}/{safe_name(method)}/seed{seed}-{name}",
        diagnostics="none",
        variants=("swa3", "swa5") if method == "swa" else (),
        evaluation=Evaluation(),
        facts=Facts(*[None] * 4, 128, 1, *[None] * 3, 20, 20, 3, None, 1e-5, ()),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _make(run: PlannedRun, folder: RunFolder, generator: np.random.Generator) -> None:
    what = (run.task, run.method, run.seed)
    if what == ("rte", "swa", 62) or (run.task, run.method) == ("rte", "dsgd[tau=0.5]"):
        return  # missing
    here = {"pid": 1, "host": "elsewhere", "time": "2026-01-01T00:00:00+0000"}
    if what == ("rte", "fft", 52):
        folder.write_json("state.json", {"state": "failed", "reason": "non-finite", **here})
    elif what == ("rte", "focal", 62):
        folder.write_json("state.json", {"state": "running", **here})
    else:
        _finish(run, folder, generator)
        folder.write_json("state.json", {"state": "finished", **here})


def _finish(run: PlannedRun, folder: RunFolder, generator: np.random.Generator) -> None:
    predictions = _predictions(run, generator)
    row = {
        **{key: getattr(run, key) for key in ("id", "cell_id", "model", "task", "method", "preset", "seed")},
        **evaluate(predictions, run.evaluation),
        "precision": "bf16",
        "device": "cuda:0",
        "threads": 2 if (run.task, run.method, run.seed) == ("copa", "dsgd", 62) else 1,
        "thresholds": vars(run.evaluation),
    }
    for variant in run.variants:
        averaged = evaluate(_predictions(run, generator), run.evaluation)
        row |= {f"accuracy_{variant}": averaged["accuracy"], f"status_{variant}": averaged["status"]}
    folder.write_json("metrics.json", row)
    folder.write_json("environment.json", {"packages": PACKAGES})
    if run.preset in ("fft", "dsgd"):  # of which ensembles are made
        predictions.save(folder.path / "predictions.parquet")


def _predictions(run: PlannedRun, generator: np.random.Generator) -> Predictions:
    """40 examples of 2 classes, labelled alike in every run; better ones for DSGD, one class alone where collapsed.

    Of a pair of tasks the first has 25 of them.
    """
    n = 40
    labels = (np.arange(n) % 5 < 2).astype(np.int64)
    right = generator.random(n) < (0.9 if run.preset == "dsgd" else 0.75)
    chosen = np.where(right, labels, 1 - labels)
    if (run.task, run.method) == ("copa", "focal") or (run.task, run.method, run.seed) == ("copa", "fft", 62):
        chosen = np.zeros_like(labels)
    if (run.task, run.method, run.seed) == ("copa", "dsgd[tau=0.5]", 52):
        chosen = 1 - labels  # degenerate
    if (run.task, run.method, run.seed) == ("mrpc+rte", "fft", 52):
        chosen[25:] = 0  # the second task alone has collapsed
    scores = np.where(np.arange(2) == chosen[:, None], 1.0, 0.0) * (1 + generator.random((n, 1)))
    classes, parts = ["no", "yes"], run.task.split("+")
    several = (np.repeat([0, 1], [25, n - 25]), dict.fromkeys(parts, classes)) if len(parts) > 1 else ()
    return Predictions(np.arange(n), labels, scores.astype(np.float32), classes, *several)


if __name__ == "__main__":
    main()
