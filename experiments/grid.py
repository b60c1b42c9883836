"""A named experiment as the list of its runs: composed as ``run.py`` composes it, and remembered on disk.

Composing takes seconds; what it depends on is hashed, so that asking again takes none. Torch-free.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsgd import runs
from dsgd.cache import cache_folder
from dsgd.config.parts import SLOTS
from dsgd.config.remembered import composition_key
from dsgd.config.schema import Config, Evaluation, ImbalanceKind, Task, TaskForm
from dsgd.files import digest_of_json, read_json, write_atomically
from dsgd.imbalance import class_counts

if TYPE_CHECKING:
    from dsgd.config.compose import Run


@dataclass(frozen=True)
class Facts:
    """What the cost of a run depends on; None where the model's or the task's YAML does not say."""

    parameters: int | None  # of the whole network
    embeddings: int | None  # of them in lookup tables, which take no multiplications
    blocks: int | None
    gflops: float | None  # of one input's forward pass, where parameters × tokens does not give it
    tokens: int  # of one input, padding included
    inputs: int  # rows that make one example
    train_examples: int | None
    evaluation_examples: int | None
    classes: int | None
    window: int  # examples of an optimiser step
    micro_batch: int
    epochs: int
    max_steps: int | None
    learning_rate: float
    parts: tuple[str, ...]  # of the slots, such as "gradient=pcgrad"


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid."""

    id: str
    cell_id: str
    model: str
    task: str
    method: str  # its label
    preset: str
    seed: int
    overrides: tuple[str, ...]  # for run.py: this run and no other
    folder: str  # where it will lie, relative to the results folder; it is found by its id
    diagnostics: str
    variants: tuple[str, ...]  # names of further averages of the one training
    evaluation: Evaluation
    facts: Facts


def grid(name: str, overrides: Sequence[str] = ()) -> list[PlannedRun]:
    """The distinct runs of ``conf/experiment/<name>.yaml``, in the order of its sweep.

    Args:
        name: path below ``conf/experiment/`` without its ending.
        overrides: further ones, as on ``run.py``'s command line; they win over the experiment.

    Raises:
        ConfigErrors: there is no such experiment, or an override or a combination is wrong.
    """
    file = cache_folder() / "grids" / f"{_key(name, overrides)}.json"
    found = _read(file)
    if found is None:
        found = _compose(name, overrides)
        if not any(_names_a_file(run) for run in found):
            with contextlib.suppress(OSError):  # where nothing can be written, the next command composes again
                _write(file, found)
    return found


def _names_a_file(run: PlannedRun) -> bool:
    """Whether the run's id depends on a file of the user's, whose edits nothing here sees."""
    return any(text.split("=", 1)[0].endswith("path") for text in run.overrides)


def _mirror(overrides: Sequence[str]) -> list[tuple[str, int]]:
    """What a mirror of the hub holds: a run on a part of a data set is another run."""
    given = [text.partition("=")[2] for text in overrides if text.startswith("data.root=")]
    root = given[-1] if given else os.environ.get("DSGD_DATA_ROOT")
    files = Path(root).expanduser().rglob("*.parquet") if root else ()
    return sorted((str(file), file.stat().st_size) for file in files)


def _key(name: str, overrides: Sequence[str]) -> str:
    """Everything that the result depends on, as 32 hexadecimal digits."""
    return composition_key([name, list(overrides), _mirror(overrides)], [Path(runs.__file__), Path(__file__)])


def _read(file: Path) -> list[PlannedRun] | None:
    """The remembered grid, or None where there is none that can be read."""
    try:
        remembered = read_json(file)
        if remembered["sha256"] != digest_of_json(remembered["runs"]):
            return None
        return [_planned(row) for row in remembered["runs"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _write(file: Path, found: list[PlannedRun]) -> None:
    rows = json.loads(json.dumps([dataclasses.asdict(run) for run in found]))
    write_atomically(file, json.dumps({"sha256": digest_of_json(rows), "runs": rows}))


def _planned(row: dict[str, Any]) -> PlannedRun:
    facts = row.pop("facts")
    facts["parts"] = tuple(facts["parts"])
    row["overrides"], row["variants"] = tuple(row["overrides"]), tuple(row["variants"])
    return PlannedRun(**{**row, "evaluation": Evaluation(**row["evaluation"]), "facts": Facts(**facts)})


def _compose(name: str, overrides: Sequence[str]) -> list[PlannedRun]:
    from dsgd.config.command import Command
    from dsgd.config.compose import expand

    command = Command((), (f"experiment={name}", *overrides), multirun=True, only_shows=False)
    return [_plan(run) for run in expand(command)]


def _plan(run: Run) -> PlannedRun:
    config = run.config
    overrides = {text.split("=", 1)[0]: text for text in run.overrides}  # the last of two wins
    if "experiment" in overrides:  # it sets keys itself; its grid must not come with them
        overrides["hydra.sweeper.params"] = "hydra.sweeper.params=null"
    return PlannedRun(
        id=run.id,
        cell_id=run.cell_id,
        model=config.model.shown,
        task=config.task.shown,
        method=run.label,
        preset=config.method.name,
        seed=config.seed,
        overrides=tuple(overrides.values()),
        folder=str(runs.usual_path(run)),
        diagnostics=config.diagnostics.name,
        variants=tuple(f"swa{k}" for k in getattr(config.averaging, "last", ())),
        evaluation=config.evaluation,
        facts=_facts(config),
    )


def _facts(config: Config) -> Facts:
    model, task, trainer = config.model, config.task, config.trainer
    return Facts(
        parameters=model.parameters,
        embeddings=model.embeddings,
        blocks=model.layers or model.blocks,
        gflops=model.gflops,
        tokens=model.tokens or min(task.max_length, task.tokens or task.max_length),
        inputs=1 if task.form in (TaskForm.single, TaskForm.binary_concat) else 2,
        train_examples=_train_examples(task),
        evaluation_examples=task.evaluation_examples,
        classes=task.classes,
        window=trainer.batch_size * trainer.accumulation * trainer.processes,
        micro_batch=trainer.batch_size,
        epochs=trainer.epochs,
        max_steps=config.debug.max_steps or trainer.max_steps,
        learning_rate=trainer.lr,
        parts=tuple(f"{slot}={getattr(config, slot).name}" for slot in SLOTS),
    )


def _train_examples(task: Task) -> int | None:
    """After thinning out, for classes of one size."""
    if task.train_examples is None or task.imbalance.kind is ImbalanceKind.none:
        return task.train_examples
    if task.classes is None:
        return None
    largest = task.train_examples // task.classes
    return sum(class_counts(task.imbalance.kind.value, task.imbalance.factor, task.classes, largest))
