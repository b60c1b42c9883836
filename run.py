"""Train what the command line names: compose → validate → execute each run → say how it went and where it is.

python run.py                                       one run, the embedded default
python run.py method=fft seed=52                    one run, overridden
python run.py -m method=fft,dsgd seed=42,52         a sweep; finished runs are skipped
python run.py --methods                             every method: what it changes, and where it comes from
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dsgd import console, sharing, sweep
from dsgd.config import catalogue
from dsgd.config.command import Command, read_command
from dsgd.config.compose import Run, jobs, launches_here
from dsgd.config.messages import ConfigErrors
from dsgd.execution import Outcome, execute, worker_count
from dsgd.outcomes import tell, told
from dsgd.processes import end_with, endable
from dsgd.streams import guard_streams

#: What each of the launcher's jobs is to train; travels to its workers with ``launch``.
plan = sweep.Plan()


def main() -> int:
    """Return 0 if every run is finished, 1 if one failed, 2 if the command line is wrong, 128 + n after signal n."""
    guard_streams()
    if "--methods" in sys.argv[1:]:
        print(catalogue.table(catalogue.methods()))
        return 0
    command = read_command(sys.argv[1:])
    sys.argv[1:] = [*command.overrides, *command.flags]  # Hydra reads it again
    try:
        if command.only_shows:
            jobs(command)
            launch()
            return 0
        with endable():
            asked = sweep.asked_by(command)
            return train_all(command, asked.runs, asked.left) if asked.sweeps else train_one(asked.runs[0])
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    except KeyboardInterrupt as end:
        print("interrupted; the same command goes on from the finished runs", file=sys.stderr)
        return 128 + getattr(end, "number", signal.SIGINT)


def train_one(run: Run) -> int:
    """Train a single run in this process's own launcher; returns the exit code."""
    outcome = execute(run, say=console.say)
    console.ended(run, outcome)
    return console.single(run, outcome)


def train_all(command: Command, runs: Sequence[Run], left: Sequence[Run]) -> int:
    """Train what is ``left`` of a sweep's runs and tell what became of all; returns the exit code."""
    remaining = {run.id for run in left}
    outcomes = {run.id: Outcome("skipped") for run in runs if run.id not in remaining}
    for run in runs:
        if run.id in outcomes:
            console.ended(run, outcomes[run.id])
    return console.sweep(runs, {**outcomes, **(launched(command, left) if left else {})})


def launched(command: Command, left: Sequence[Run]) -> Mapping[str, Outcome]:
    """Have Hydra's launcher train ``left``; returns what became of each, as far as it was told."""
    sys.argv[1:] = [*sharing.launcher(command, left), *sweep.arguments(command, left), *command.flags]
    with tempfile.TemporaryDirectory(prefix="dsgd-", ignore_cleanup_errors=True) as folder:
        if launches_here(command):  # else what the launcher leaves must be seen by other machines
            os.environ["DSGD_SWEEP_DIR"] = folder
        plan.runs, plan.report, plan.supervisor = list(left), Path(folder) / "outcomes.jsonl", os.getpid()
        launch()
        return told(plan.report)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")  # type: ignore[untyped-decorator]
def launch(_composed: DictConfig) -> None:
    """One job of Hydra's launcher, in this process or in a worker: one run, as it was planned.

    Hydra composes each job when its turn comes; an edit of ``conf/`` in the meantime must not reach it.
    """
    guard_streams()  # of a worker
    end_with(plan.supervisor)
    job = HydraConfig.get()
    run = plan.runs[job.job.num]
    outcome = execute(run, worker_count(job.launcher.get("n_jobs")), alone=False, say=console.say)
    console.ended(run, outcome)
    if plan.report is not None:
        tell(plan.report, run.id, outcome)


if __name__ == "__main__":
    sys.exit(main())
