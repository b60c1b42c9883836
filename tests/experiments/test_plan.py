"""What an experiment has and lacks, on run folders made as ``dsgd.runs`` makes them."""

import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dsgd import locks
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.runs import RunFolder, replacement
from experiments import cost, plan
from experiments.grid import Facts, grid

FACTS = Facts(
    parameters=1000,
    embeddings=0,
    blocks=1,
    gflops=None,
    tokens=5,
    inputs=1,
    train_examples=95,
    evaluation_examples=30,
    classes=2,
    window=10,
    micro_batch=5,
    epochs=2,
    max_steps=None,
    learning_rate=1e-3,
    parts=("adapter=full",),
)
DEVICE = cost.Device(name="a calculator", tflops=1e-6, least_step=0.0, bytes=4, memory_gib=None)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def smoke():
    """Four runs: fft and dsgd, seeds 42 and 52."""
    return grid("laptop/smoke")


def folder(results, run):
    made = RunFolder(results / run.folder)
    made.path.mkdir(parents=True)
    return made


def states(runs, results):
    return [entry.state for entry in plan.look(runs, results)]


def planned(capsys, *arguments):
    assert plan.main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_without_runs_all_are_missing_and_cost_something(tmp_path, capsys):
    text = planned(capsys, "laptop/smoke", "--results-dir", tmp_path)
    assert "4 runs: 0 finished, 0 running, 0 failed, 4 missing" in text
    assert "4 by arithmetic" in text


def test_each_state_is_told_apart(tmp_path, smoke):
    finished, running, failed, _ = smoke
    folder(tmp_path, finished).mark_finished({"seconds": 10.0})
    folder(tmp_path, running).mark_running()
    folder(tmp_path, failed).mark_failed("out of memory")
    held = locks.take(tmp_path / "runs" / ".locks" / f"{running.id}.lock")
    assert states(smoke, tmp_path) == ["finished", "running", "failed", "missing"]
    held.release()
    assert states(smoke, tmp_path) == ["finished", "failed", "failed", "missing"]


def test_a_run_is_found_by_its_id_under_another_label(tmp_path, smoke):
    RunFolder(tmp_path / f"runs/a/b/c/seed42-{smoke[0].id}").mark_finished({"seconds": 1.0})
    assert states(smoke, tmp_path)[0] == "finished"


def test_a_finished_run_without_the_diagnostics_asked_for_is_missing(tmp_path):
    """Its second attempt stands for it; with the file it is finished."""
    run = grid("laptop/smoke", ["diagnostics=gradients"])[0]
    done = folder(tmp_path, run)
    done.mark_finished({"seconds": 1.0})
    assert states([run], tmp_path) == ["missing"]
    second = replacement(tmp_path, run.id)
    second.mark_failed("out of memory")
    assert states([run], tmp_path) == ["failed"]
    done.write("diagnostics.parquet", "")
    assert states([run], tmp_path) == ["finished"]


def test_missing_runs_become_command_lines_that_name_them_alone(tmp_path, smoke, capsys):
    for run in (smoke[0], smoke[3]):
        folder(tmp_path, run).mark_finished({"seconds": 1.0})
    lines = planned(capsys, "laptop/smoke", "--results-dir", tmp_path, "--missing").splitlines()
    found = [run.id for line in lines for run in expand(read_command(shlex.split(line)[2:]))]
    assert found == [smoke[1].id, smoke[2].id]


def test_failed_runs_are_retried_on_request_only(tmp_path, smoke, capsys):
    folder(tmp_path, smoke[0]).mark_failed("out of memory")
    command = ("laptop/smoke", "--results-dir", tmp_path, "--missing")
    assert len(planned(capsys, *command).splitlines()) == 2
    (everything,) = planned(capsys, *command, "--retry", "failed").splitlines()
    assert len(expand(read_command(shlex.split(everything)[2:]))) == 4


def test_an_experiment_s_own_settings_are_in_its_command_lines(tmp_path, capsys):
    """gradient=spikes is in no parameter of the sweep."""
    planned_ids = [run.id for run in grid("laptop/gradient_spikes")]
    lines = planned(capsys, "laptop/gradient_spikes", "--results-dir", tmp_path, "--missing").splitlines()
    assert [run.id for line in lines for run in expand(read_command(shlex.split(line)[2:]))] == planned_ids


@pytest.mark.parametrize("missing", [(), (0,), (0, 3), (1, 2, 5), (0, 1, 2, 3, 4, 5, 6)])
def test_sweeps_cover_exactly_the_combinations(missing):
    """2 methods × 2 tasks × 3 seeds; those not missing are given, and their products give them back."""
    everything = [
        (f"method={method}", f"task={task}", f"seed={seed}") for method in "ab" for task in "cd" for seed in (1, 2, 3)
    ]
    given = [texts for number, texts in enumerate(everything) if number not in missing]
    products = plan.sweeps(given)
    covered = [
        tuple(f"{key}={value}" for key, value in zip(product, values, strict=True))
        for product in products
        for values in itertools.product(*product.values())
    ]
    assert sorted(covered) == sorted(given)


def test_a_full_product_is_one_sweep():
    texts = [(f"a={a}", f"b={b}", f"c={c}") for a in range(2) for b in range(3) for c in range(4)]
    assert plan.sweeps(texts) == [{"a": ("0", "1"), "b": ("0", "1", "2"), "c": ("0", "1", "2", "3")}]


def test_time_rests_on_the_nearest_finished_runs(tmp_path, smoke):
    """The cell's median, else that of the model and task, else arithmetic."""
    first, second, other, _ = smoke
    assert plan.estimate(first, plan.look(smoke, tmp_path), DEVICE).basis == "arithmetic"
    folder(tmp_path, first).mark_finished({"seconds": 10.0})
    folder(tmp_path, second).mark_finished({"seconds": 20.0})
    found = plan.look(smoke, tmp_path)
    assert plan.estimate(first, found, DEVICE) == plan.Estimate(15.0, "finished runs of the cell")
    assert plan.estimate(other, found, DEVICE) == plan.Estimate(15.0, "finished runs of the model and task")


def test_arithmetic_time():
    """95 examples in windows of 10 are 10 steps an epoch, 20 in two.

    A forward pass is 2·1000·5 = 1e4 operations; a step 10·3·1e4 = 3e5, at 1e6 a second 0.3 s; 20 steps 6 s. Three
    evaluations of 30 examples are 90·1e4 = 9e5 operations, 0.9 s.
    """
    assert cost.seconds(FACTS, DEVICE) == pytest.approx(6.9)


def test_a_second_pass_doubles_the_steps_but_not_the_evaluations():
    """12 + 0.9 s."""
    facts = Facts(**{**vars(FACTS), "parts": ("adapter=full", "gradient=sam")})
    assert cost.seconds(facts, DEVICE) == pytest.approx(12.9)


def test_arithmetic_memory():
    """16·1000 of weights and AdamW; 5 examples × 5 tokens × 17 values × width √(1000/12) × 4 bytes."""
    assert cost.memory_bytes(FACTS, DEVICE) == pytest.approx(16_000 + 5 * 5 * 17 * (1000 / 12) ** 0.5 * 4)


def test_what_is_not_stated_is_not_estimated(capsys, tmp_path, smoke):
    facts = Facts(**{**vars(FACTS), "parameters": None})
    assert cost.seconds(facts, DEVICE) is None
    run = smoke[0].__class__(**{**vars(smoke[0]), "facts": facts})
    text = "\n".join(plan.report("x", tmp_path, plan.look([run], tmp_path), {"missing"}, "cpu"))
    assert "no estimate" in text
    assert "without 1 runs whose model or task states no size" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (59, "59 s"), (100, "1.7 min"), (3600 * 12, "12 h"), (86400 * 30, "30 days")]
)
def test_durations_read_well(seconds, text):
    assert plan.duration(seconds) == text


def test_an_unknown_name_is_one_error_with_the_nearest(capsys):
    assert plan.main(["laptop/smok"]) == 2
    error = capsys.readouterr().err
    assert "1 error" in error
    assert "did you mean laptop/smoke?" in error


def test_the_command_needs_no_torch(tmp_path):
    code = (
        "import sys; from experiments import plan; assert plan.main(['laptop/smoke']) == 0;"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={**os.environ, "DSGD_CACHE": str(tmp_path)})


def test_failed_runs_are_not_passed_over_where_nothing_is_missing(tmp_path, capsys):
    for run in grid("laptop/smoke"):
        folder(tmp_path, run).mark_failed("non-finite")
    assert plan.main(["laptop/smoke", "--results-dir", str(tmp_path)]) == 0
    assert "nothing is missing; --retry failed adds what has failed" in capsys.readouterr().out
