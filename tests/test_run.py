"""``run.py`` as a person uses it: exit codes, what is printed, what is left behind, and what survives an accident."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from dsgd import console
from dsgd.config.tree import CONF
from dsgd.execution import _how_it_ended, execute, fork_server, worker_count
from dsgd.runs import RunFolder, folder_of, latest_attempt, scan
from dsgd.summary import metrics_under
from shared import ROOT

#: As short as a run can be, but in a child process, as a person's run is.
SHORT = ("debug=tiny", "debug.max_steps=2", "model.layers=1", "task.max_length=16", "tracking=none")


def states(tmp_path):
    return sorted(folder.state for folder in scan(tmp_path))


def table(output):
    return [line for line in output.splitlines() if line.startswith("|")]


def test_one_run_ends_with_its_folder_and_leaves_nothing_else(command, tmp_path):
    done = command(*SHORT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    folder = RunFolder(tmp_path / lines[-1])
    assert folder.state == "finished"
    assert any("accuracy" in line and "finished" in line for line in lines)
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_a_sweep_trains_skips_and_shows_the_same_table(command, tmp_path):
    sweep = ("-m", "method=fft,dsgd", "seed=42,52", *SHORT)
    first = command(*sweep)
    assert first.returncode == 0, first.stderr
    assert sum(line.startswith("finished") for line in first.stdout.splitlines()) == 4
    rows = table(first.stdout)
    assert len(rows) == 4  # head, rule, fft, dsgd
    assert all("2/2" in row and "±" in row for row in rows[2:])

    started = time.perf_counter()
    again = command(*sweep)
    assert time.perf_counter() - started < 30
    assert sum(line.startswith("skipped") for line in again.stdout.splitlines()) == 4
    assert table(again.stdout) == rows
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_a_skip_imports_no_torch(run_of, tmp_path):
    run = run_of()
    folder_of(run).mark_finished({"accuracy": 0.5, "status": "successful", "train_seconds": 1.0})
    overrides = [f"results_dir={tmp_path}", "debug=tiny", "model.layers=1", "task.max_length=16"]
    code = (
        "import runpy, sys\n"
        f"sys.argv = {['run.py', *overrides]!r}\n"
        f"try: runpy.run_path({str(ROOT / 'run.py')!r}, run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert not {'torch', 'transformers', 'wandb', 'pandas'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["method=dsdg"], ["method = dsdg", "did you mean dsgd?"]),
        (["schedule.tau=1.5"], ["schedule.tau = 1.5", "[0, 1]"]),
        (["trainer.lr=abc"], ["trainer.lr = abc", "number"]),
        (["task=bbc_new", "seed=x"], ["task = bbc_new", "did you mean bbc_news?", "seed = x", "2 errors"]),
        (["-m", "seed=1,x"], ["seed = x"]),
    ],
)
def test_a_wrong_command_line_is_told_at_once(command, tmp_path, arguments, words):
    started = time.perf_counter()
    done = command(*arguments)
    assert time.perf_counter() - started < 20
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_fails_alone_and_is_the_only_one_trained_again(command, tmp_path):
    sweep = ("-m", "seed=1,2", *SHORT[:1], "debug.max_steps=30", *SHORT[2:])
    call = [sys.executable, str(ROOT / "run.py"), *sweep, f"results_dir={tmp_path}"]
    with subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.kill(running_pid(tmp_path), signal.SIGKILL)
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert states(tmp_path) == ["failed", "finished"]
    assert "failed: " in output
    assert "killed by signal 9 (SIGKILL)" in output

    again = command(*sweep)
    assert again.returncode == 0, again.stderr
    words = [line.split()[0] for line in again.stdout.splitlines() if " seed " in line]
    assert sorted(words) == ["finished", "skipped"]


def running_pid(tmp_path, timeout=120):
    """The process that trains a run, once one is seen."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        for folder in scan(tmp_path):
            state = folder.read("state.json")
            if state and state["state"] == "running" and state["pid"]:
                return state["pid"]
        time.sleep(0.05)
    raise TimeoutError("no run was started")


def test_two_processes_asked_for_one_run_train_it_once(command, tmp_path):
    call = [sys.executable, str(ROOT / "run.py"), *SHORT, f"results_dir={tmp_path}"]
    both = [subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    outcomes = sorted(word for output in outputs for word in ("finished ", "skipped ") if word in output)
    assert outcomes == ["finished ", "skipped "]
    (folder,) = scan(tmp_path)
    assert [record["step"] for record in folder.history if "train/loss" in record] == [1, 2]


def test_a_timeout_is_a_failed_run(command, tmp_path):
    done = command(*SHORT, "runtime.timeout=0.2")
    assert done.returncode == 1
    (folder,) = scan(tmp_path)
    assert folder.state == "failed"
    assert folder.reason.startswith("timeout")
    assert (folder.path / "error.txt").exists()


def test_a_forced_run_replaces_the_old_one_only_when_it_succeeds(train, run_of):
    folder = train()
    old = folder.metrics
    assert execute(run_of()) == "skipped"
    forced = run_of("force=true", "runtime.isolate=true", "runtime.timeout=0.1")
    assert execute(forced) == "failed"
    assert folder.metrics == old
    assert latest_attempt(forced).reason.startswith("timeout")
    assert console.single(forced) == console.sweep([forced]) == 1
    assert execute(run_of("force=true")) == "finished"
    assert folder.metrics["accuracy"] == old["accuracy"]
    assert folder.metrics["seconds"] != old["seconds"]
    assert not list(folder.path.parents[3].glob(".replacements/*"))


def test_a_python_error_is_kept_with_its_traceback(run_of):
    run = run_of("model.package=no_such_package")
    assert execute(run) == "failed"
    folder = folder_of(run)
    assert "no_such_package" in folder.reason
    assert "Traceback" in (folder.path / "error.txt").read_text()


@pytest.mark.parametrize(
    ("code", "words"), [(0, None), (3, "exited with code 3"), (-signal.SIGTERM, "killed by signal 15 (SIGTERM)")]
)
def test_how_a_child_ended_is_said_in_words(code, words):
    child = fork_server().Process(target=end_with, args=(code,))
    child.start()
    child.join()
    ended = _how_it_ended(child, None)
    assert ended is None if words is None else words in ended


def end_with(code):
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(10)
    os._exit(code)


def test_joblib_s_counts_are_read_as_joblib_reads_them():
    cores = len(os.sched_getaffinity(0))
    assert (worker_count(None), worker_count(3), worker_count(-1)) == (1, 3, cores)


def test_showing_a_config_trains_nothing(command, tmp_path):
    done = command("trainer.lr=3e-5", "--cfg", "job", "--resolve", "seed=3")
    assert done.returncode == 0, done.stderr
    assert "lr: 3.0e-05" in done.stdout
    assert "\nseed: 3\n" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_flag_whose_value_is_left_out_may_be_the_last_word(tmp_path):
    words = [sys.executable, str(ROOT / "run.py"), "method=fft", "--info"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_two_workers_share_a_sweep(command, tmp_path):
    done = command("-m", "hydra/launcher=two_workers", "seed=1,2,3", *SHORT)
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["finished"] * 3
    assert {folder.metrics["threads"] for folder in scan(tmp_path)} == {max(1, len(os.sched_getaffinity(0)) // 2)}


@pytest.mark.parametrize("device", ["auto", pytest.param("cpu", marks=pytest.mark.slow)])
def test_two_processes_of_one_run_equal_one(train, tmp_path, device):
    """m is global and gradients are summed over ranks, also where the last window's rest falls to one rank."""
    common = ("debug=tiny", "debug.examples=21", "model.layers=1", "task.max_length=16", "tracking=none")
    exact = ("runtime.precision=fp32", "model.dropout=0", f"runtime.device={device}")
    alone = train(*common, *exact, "trainer.batch_size=20")
    results = tmp_path / "two"
    call = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(ROOT / "run.py")]
    call += [*common, *exact, "trainer.batch_size=10", "trainer.processes=2", f"results_dir={results}"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = scan(results)
    mine = [record["train/loss"] for record in alone.history if "train/loss" in record]
    theirs = [record["train/loss"] for record in folder.history if "train/loss" in record]
    assert theirs == pytest.approx(mine, rel=1e-5)
    assert "finished" in done.stdout
    assert json.loads((folder.path / "environment.json").read_text())["processes"] == 2


def test_the_dashboard_mirrors_the_history(command, tmp_path):
    """What W&B's own reader reads back from a run's offline folder is the run's ``history.jsonl``."""
    assert command(*SHORT[:-1]).returncode == 0
    (folder,) = scan(tmp_path)
    call = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder.path / "wandb" / "latest-run")]
    lines = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    logged = [record["history"] for record in map(json.loads, lines) if record["type"] == "history"]
    expected = {}
    for record in folder.history:
        expected.setdefault(record["step"], {}).update({key: value for key, value in record.items() if key != "step"})
    assert [record["step"]["num"] for record in logged] == list(expected)
    for record in logged:
        wanted = expected[record["step"]["num"]]
        assert {key: record["item"][key] for key in wanted} == wanted


def test_new_thresholds_act_on_stored_predictions(train, run_of):
    """No training: with a bound on MCC that nothing reaches, what was not collapsed is degenerate."""
    folder = train()
    run = run_of("evaluation.mcc_sigmas=1000")
    assert execute(run) == "skipped"
    expected = "collapsed" if folder.metrics["status"] == "collapsed" else "degenerate"
    row = metrics_under(run.config.evaluation, folder)
    assert row["status"] == expected
    assert row["accuracy"] == folder.metrics["accuracy"]


@pytest.mark.parametrize("name", ["metrics.json", "state.json"])
def test_a_damaged_file_means_a_failed_run_that_is_trained_again(train, run_of, name):
    folder = train()
    (folder.path / "metrics.json").unlink()
    (folder.path / name).write_text('{"accuracy": 0.')
    assert folder.state == "failed"
    assert console.sweep([run_of()]) == 1
    assert execute(run_of()) == "finished"


def test_a_folder_that_cannot_be_written_is_one_failed_run(run_of, tmp_path, capsys):
    """The reason is told although it can be kept nowhere, and no file is named that is not there."""
    run = run_of(f"results_dir={tmp_path}/file")
    (tmp_path / "file").write_text("")  # after planning, which would tell it
    outcome = execute(run)
    assert outcome == "failed"
    assert "Not a directory" in outcome.reason
    assert console.sweep([run], {run.id: outcome}) == 1
    output = capsys.readouterr().out
    assert "Not a directory" in output
    assert "error.txt" not in output


def test_a_damaged_resume_point_costs_the_start_and_not_the_run(train, run_of):
    whole = train("runtime.checkpoint_every=2")
    numbers = [record for record in whole.history if "train/loss" in record]
    (whole.path / "metrics.json").unlink()
    (whole.path / "checkpoint").mkdir()
    (whole.path / "checkpoint" / "resume.pt").write_bytes(b"half a")
    with (whole.path / "history.jsonl").open("a") as file:
        file.write('{"step": 5, "train/l')
    assert execute(run_of("runtime.checkpoint_every=2")) == "finished"
    assert [record for record in whole.history if "train/loss" in record] == numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sorted(
        str(path.relative_to(CONF / "experiment").with_suffix("")) for path in (CONF / "experiment").rglob("*.yaml")
    ),
)
def test_every_experiment_runs_with_a_tiny_budget(command, tmp_path, name):
    done = command(f"experiment={name}", "seed=42", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(states(tmp_path)) == {"finished"}


def test_a_finished_run_whose_diagnostics_cannot_be_had_counts_as_failed(train, run_of):
    """The old folder stays, and the exit code does not hide that the second attempt failed."""
    folder = train()
    run = run_of("diagnostics=gradients", "runtime.isolate=true", "runtime.timeout=0.1")
    assert execute(run) == "failed"
    assert folder.state == "finished"
    assert console.single(run) == console.sweep([run]) == 1
