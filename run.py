"""Train what the command line names: compose → validate → execute each run → say how it went and where it is.

python run.py                                       one run, the embedded default
python run.py method=fft seed=52                    one run, overridden
python run.py -m method=fft,dsgd seed=42,52         a sweep; finished runs are skipped
python run.py --methods                             every method: what it changes, and where it comes from
"""

from __future__ import annotations

import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from dsgd import console, sharing
from dsgd.config import catalogue
from dsgd.config.command import read_command
from dsgd.config.compose import Run, distinct, is_multirun, jobs
from dsgd.config.messages import ConfigErrors
from dsgd.execution import execute, worker_count
from dsgd.streams import guard_streams

#: The runs of the command line, in the order of Hydra's jobs; travels to the launcher's workers with ``launch``.
planned: list[Run] = []


def main() -> int:
    """Return 0 if every run is finished, 1 if one failed, 2 if the command line is wrong."""
    guard_streams()
    if "--methods" in sys.argv[1:]:
        print(catalogue.table(catalogue.methods()))
        return 0
    command = read_command(sys.argv[1:])
    sys.argv[1:] = [*command.overrides, *command.flags]  # Hydra reads it again
    try:
        runs = jobs(command)
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    if is_multirun(command) and not command.only_shows:
        runs = sharing.resolve(runs)
        sys.argv[1:1] = sharing.launcher(command, runs)
    planned.extend(runs)
    try:
        launch()
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the finished runs", file=sys.stderr)
        return 130
    if command.only_shows:
        return 0
    return console.sweep(distinct(runs)) if is_multirun(command) else console.single(runs[0])


@hydra.main(version_base="1.3", config_path="conf", config_name="config")  # type: ignore[untyped-decorator]
def launch(_composed: DictConfig) -> None:
    """One job of Hydra's launcher, in this process or in a worker: one run, as it was planned.

    Hydra composes each job when its turn comes; an edit of ``conf/`` in the meantime must not reach it.
    """
    guard_streams()  # of a worker
    hydra_config = HydraConfig.get()
    sweeps = hydra_config.mode == RunMode.MULTIRUN
    run = planned[hydra_config.job.num if sweeps else 0]
    outcome = execute(run, worker_count(hydra_config.launcher.get("n_jobs")), alone=not sweeps, say=console.say)
    console.ended(run, outcome)


if __name__ == "__main__":
    sys.exit(main())
