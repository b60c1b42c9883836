"""Every ``conf/experiment/``: one grid of distinct runs, sharing what others train already, and able to run."""

import os
from functools import cache

import pytest
from omegaconf import OmegaConf

from dsgd.config import tree
from dsgd.config.command import read_command
from dsgd.config.compose import expand, is_multirun
from dsgd.execution import execute
from dsgd.runs import folder_of

FOLDER = tree.CONF / "experiment"
NAMES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.yaml"))
#: What makes a run a matter of seconds, whatever its model and task.
TINY = ("debug=tiny", "tracking=none", "runtime.isolate=false", "runtime.progress=none", "runtime.threads=1")
LAPTOP = [name for name in NAMES if name.startswith("laptop/")]


@cache
def runs(name):
    """The experiment's distinct runs; skips where it names a model or a task that does not exist."""
    content = OmegaConf.load(FOLDER / f"{name}.yaml")
    for group in tree.NODES:
        for option in str(content.hydra.sweeper.params.get(group, "")).split(","):
            if option and not (tree.CONF / group / f"{option}.yaml").exists():
                pytest.skip(f"there is no {group}={option}")
    command = read_command([f"experiment={name}"])
    assert is_multirun(command)
    return tuple(expand(command))


def ids(name):
    return {run.id for run in runs(name)}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_one_grid_of_distinct_runs(name):
    assert len(ids(name)) == len(runs(name)) > 1


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_begins_with_its_command_and_what_to_expect(name):
    text = (FOLDER / f"{name}.yaml").read_text()
    assert text.startswith("# @package _global_\n# ")
    assert f"#   python run.py experiment={name}\n" in text
    assert "\n# Expect " in text


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_runs_is_as_its_comment_says(name):
    """``Expect N runs`` and, where it is told, ``in M cells``."""
    told = next(line for line in (FOLDER / f"{name}.yaml").read_text().splitlines() if line.startswith("# Expect "))
    words = told.removeprefix("# Expect ").replace(",", "").split()
    assert int(words[0]) == len(runs(name))
    if "cells" in words or "cell" in words:
        assert int(words[3]) == len({run.cell_id for run in runs(name)})


def test_table_1_is_the_paper_s():
    """2 models × 6 tasks × 7 methods × 10 seeds."""
    found = runs("table1")
    assert len(found) == 840
    assert {run.config.seed for run in found} == set(range(42, 133, 10))
    assert len({(run.config.model.name, run.config.task.name, run.label) for run in found}) == 84


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        *((name, "table1") for name in ("figure1", "figure2", "figure3", "figure4d", "figure8", "figures9_11")),
        *((f"laptop/{name}", "laptop/table1") for name in ("figure1", "figure2", "figure3", "figure4d", "figures9_11")),
        ("laptop/figure8", "laptop/table1_ensembles"),
    ],
)
def test_a_figure_of_table_1_s_runs_trains_nothing_anew(part, whole):
    assert ids(part) <= ids(whole)


@pytest.mark.parametrize(
    ("name", "other", "shared"),
    [
        ("table1_ensembles", "table1", 240),  # 2 models × 6 tasks × fft, dsgd × 10 seeds
        ("figure4a", "table1", 20),  # fft, and dsgd with the linear function
        ("figure4b", "table1", 20),  # fft, and dsgd with τ = 1
        ("figure4c", "table1", 20),  # fft, dsgd
        ("figure7", "table1", 2),  # seed 132; 456 is in no table
        ("stability_region", "table1", 70),  # the model's own learning rate
        ("weight_decay_sensitivity", "table1", 20),  # fft with the model's own weight decay, on two tasks
        ("focal_grid", "table1", 0),  # evaluated on a holdout: never to be taken for table 1's
        ("learning_rates", "table1", 0),
    ],
)
def test_what_two_experiments_have_in_common_is_one_run(name, other, shared):
    assert len(ids(name) & ids(other)) == shared


def test_each_run_that_a_choice_rests_on_is_held_out():
    for name in ("focal_grid", "learning_rates"):
        assert {run.config.task.holdout for run in runs(name)} == {0.1}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAPTOP)
def test_the_first_run_of_every_laptop_experiment_trains(name, tmp_path):
    first = runs(name)[0]
    if first.config.task.hub_id and not os.environ.get("DSGD_DATA_ROOT"):
        pytest.skip(f"task={first.config.task.name} is read from a mirror: set DSGD_DATA_ROOT")
    run, *_ = expand(read_command([f"experiment={name}", f"results_dir={tmp_path}", *TINY]))
    assert execute(run) == "finished", folder_of(run).reason
