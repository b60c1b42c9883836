"""Runs that share a device: how many, found by trial or given, and the workers that a sweep needs for them."""

import multiprocessing
from dataclasses import replace

import pytest

from dsgd import sharing
from dsgd.config.command import read_command
from dsgd.config.schema import Runtime
from dsgd.config.validation import problems
from dsgd.devices import Load, best_sharing


def loads(table):
    """A measurement that a test reads off a table: runs at once → (steps per second, share of the memory)."""
    asked = []

    def measure(runs):
        asked.append(runs)
        return Load(*table[runs])

    return measure, asked


def test_sharing_doubles_while_throughput_rises():
    """10, 18, 30 steps/s, then 31: not a tenth more than 30, so four."""
    measure, asked = loads({1: (10, 0.05), 2: (18, 0.1), 4: (30, 0.2), 8: (31, 0.4)})
    assert best_sharing(measure, most=16) == 4
    assert asked == [1, 2, 4, 8]


def test_memory_for_twice_as_many_is_there_before_they_are_tried():
    """Two hold 0.5 of the memory; four would hold all of it."""
    measure, asked = loads({1: (10, 0.25), 2: (20, 0.5)})
    assert best_sharing(measure, most=16) == 2
    assert asked == [1, 2]


def test_each_run_has_a_core():
    measure, asked = loads({1: (10, 0.0), 2: (20, 0.0)})
    assert best_sharing(measure, most=3) == 2
    assert asked == [1, 2]


def test_a_failed_trial_ends_the_search():
    measure, _ = loads({1: (10, 0.1), 2: (0.0, 1.0)})
    assert best_sharing(measure, most=8) == 1
    failing, asked = loads({1: (0.0, 1.0)})
    assert best_sharing(failing, most=8) == 1
    assert asked == [1]


def shared(run, value):
    return replace(run, config=replace(run.config, runtime=replace(run.config.runtime, seeds_per_device=value)))


def test_auto_becomes_the_smallest_number_of_the_sweep_s_tasks(run_of, monkeypatch):
    """The first task's runs scale to four, the second's to two; neither the ids nor a number that was given change."""
    monkeypatch.setattr(sharing, "usable_cores", lambda: 4)
    scale = {"bbc_news": 4, "csv-like": 2}
    first, second = run_of("seed=1"), run_of("seed=2")
    second = replace(second, config=replace(second.config, task=replace(second.config.task, title="csv-like")))
    asking, given = [shared(first, "auto"), shared(second, "auto")], shared(run_of("seed=3"), "3")

    def measure(run, count):
        return Load(10.0 * min(count, scale[run.config.task.shown]), 0.0)

    found = sharing.resolve([*asking, given], measure)
    assert [run.config.runtime.seeds_per_device for run in found] == ["2", "2", "3"]
    assert [run.id for run in found] == [run.id for run in (*asking, given)]


def test_nothing_is_tried_for_finished_runs(run_of, monkeypatch):
    monkeypatch.setattr(sharing, "is_done", lambda run: True)

    def never(run, count):
        raise AssertionError

    (found,) = sharing.resolve([shared(run_of(), "auto")], never)
    assert found.config.runtime.seeds_per_device == "1"


@pytest.mark.parametrize(
    ("words", "runs", "expected"),
    [
        (["-m", "seed=1,2,3"], "4", ["hydra/launcher=joblib", "hydra.launcher.n_jobs=8"]),
        (["-m", "seed=1,2,3"], "1", []),
        (["-m", "seed=1,2,3", "hydra/launcher=two_workers"], "4", []),
    ],
)
def test_a_sweep_gets_a_worker_for_each_slot_unless_a_launcher_is_named(run_of, words, runs, expected):
    """Two devices of four slots each, and ten runs."""
    sweep = [shared(run_of(), runs)] * 10
    assert sharing.launcher(read_command(words), sweep, devices=lambda: 2) == expected


def test_there_are_no_more_workers_than_runs(run_of):
    sweep = [shared(run_of(), "4")] * 3
    assert sharing.launcher(read_command(["-m"]), sweep, devices=lambda: 2)[1] == "hydra.launcher.n_jobs=3"


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "automatic", ""])
def test_only_whole_numbers_and_auto_are_taken(run_of, value):
    (problem,) = problems(shared(run_of(), value).config)
    assert problem.startswith(f"runtime.seeds_per_device = {value}: give a whole number of at least 1, or auto")


def test_sharing_and_tf32_need_a_cuda_device(run_of):
    config = run_of().config
    asked = Runtime(device="cpu", isolate=False, seeds_per_device="2", tf32=True)
    one, other = problems(replace(config, runtime=asked))
    assert one.startswith("runtime.seeds_per_device = 2: the run has no CUDA device")
    assert other.startswith("runtime.tf32 = true: the run has no CUDA device")


@pytest.mark.slow
def test_a_trial_measures_runs_that_go_at_once(run_of):
    """On the CPU, whose memory counts as free; and a trial that fails leaves a full device."""
    load = sharing.load_of(run_of("trainer.batch_size=2"), 2)
    assert load.steps_per_second > 0
    assert load.memory_share == 0
    broken = run_of()
    broken = replace(broken, config=replace(broken.config, model=replace(broken.config.model, package="nowhere")))
    assert sharing.load_of(broken, 1) == Load(0.0, 1.0)
    assert not multiprocessing.active_children()
