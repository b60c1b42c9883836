"""How runs and sweeps end: kills, signals, full disks, long temporary folders; and what they leave behind."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from dsgd import console
from dsgd.execution import Outcome, execute
from dsgd.runs import DIAGNOSTIC_FILES, RunFolder, folder_of, scan
from dsgd.sweep import Forget
from shared import ROOT


def sweep(*more, method="fft,dsgd", seed="1,2", steps=12, every="3"):
    """Runs of a tiny model over so many steps, with a resume point after every so many."""
    length = (f"trainer.max_steps={steps}", f"debug.max_steps={steps}", f"runtime.checkpoint_every={every}")
    small = ("debug=tiny", "model.layers=1", "task.max_length=16", "tracking=none", "runtime.threads=1")
    return ("-m", f"method={method}", f"seed={seed}", *small, *length, *more)


ONE = sweep(method="dsgd", seed="1", steps=300, every="null")


def start(tmp_path, *arguments, **options):
    """``run.py`` in a session of its own."""
    call = [sys.executable, str(ROOT / "run.py"), *arguments, f"results_dir={tmp_path}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(call, cwd=tmp_path.parent, start_new_session=True, **pipes, **options)


def wait_until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)


def trainers_of(results):
    """The processes that train runs now."""
    states = [folder.read("state.json") or {} for folder in scan(results) if folder.state == "running"]
    return [state["pid"] for state in states if state.get("pid")]


def trainer_of(results):
    """The process that trains a run, as soon as there is one."""
    wait_until(lambda: trainers_of(results), 600)
    return trainers_of(results)[0]


def is_gone(group):
    """Whether no process of the session is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def table(output):
    return [line for line in output.splitlines() if line.startswith("|")]


# --- kills and signals ----------------------------------------------------------------------------------------------


def content_of(results):
    """All that the runs of a store say, without times."""
    found = {}
    for folder in scan(results):
        history = [{key: value for key, value in line.items() if "seconds" not in key} for line in folder.history]
        names = ("predictions.parquet", *DIAGNOSTIC_FILES["all"])
        files = {name: (folder.path / name).read_bytes() for name in names if (folder.path / name).exists()}
        found[folder.path.name] = (history, files)
    return found


@pytest.fixture(scope="module", params=["none", "all"])
def undisturbed(request, tmp_path_factory):
    """A sweep with or without diagnostics: its arguments, its table and its files."""
    arguments, results = sweep(f"diagnostics={request.param}"), tmp_path_factory.mktemp("undisturbed") / "results"
    process = start(results, *arguments)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return arguments, table(output), content_of(results)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda each: each.name
)
def test_a_sweep_that_is_killed_again_and_again_gives_what_an_undisturbed_one_gives(undisturbed, tmp_path, number):
    arguments, expected, files = undisturbed
    results, draw, codes = tmp_path / "results", random.Random(number), []
    for attempt in range(40):
        process = start(results, *arguments)
        if attempt % 3:  # else it is killed while it starts
            wait_until(lambda running=process: running.poll() is not None or trainers_of(results), 600)
        try:
            output, _ = process.communicate(timeout=draw.uniform(0.2, 6) + attempt**2 / 4)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
            output, _ = process.communicate(timeout=600)
        wait_until(lambda group=process.pid: is_gone(group), 60)
        codes.append(process.returncode)
        if process.returncode == 0:
            break
    assert codes[-1] == 0, output
    interrupted = -signal.SIGKILL if number == signal.SIGKILL else 128 + number
    assert set(codes[:-1]) <= {interrupted, -number}  # the second before the handler stands
    assert len(codes) > 1
    assert table(output) == expected
    assert content_of(results) == files


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "two_workers"])
def test_everything_ends_with_a_killed_parent(tmp_path, launcher):
    """Workers, fork servers and the processes that train."""
    results = tmp_path / "results"
    process = start(results, *sweep(f"hydra/launcher={launcher}", steps=100_000))
    trainer_of(results)
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: is_gone(process.pid), 60)
    assert {folder.state for folder in scan(results)} == {"failed"}


@pytest.mark.slow
def test_a_suspended_run_keeps_its_lock_and_never_writes_beside_another(tmp_path):
    """Its parent is killed; who asks for the run meanwhile leaves it alone; awake, it ends, and the next one trains."""
    results = tmp_path / "results"
    first = start(results, *ONE)
    child = trainer_of(results)
    os.kill(child, signal.SIGSTOP)
    first.kill()
    first.wait(timeout=60)  # its output stays open as long as the child lives
    try:
        second = start(results, *ONE)
        output, _ = second.communicate(timeout=600)
    finally:
        os.kill(child, signal.SIGCONT)
    assert "running elsewhere" in output
    wait_until(lambda: is_gone(first.pid), 60)
    third = start(results, *ONE)
    output, _ = third.communicate(timeout=600)
    assert third.returncode == 0, output
    (folder,) = scan(results)
    assert [line["step"] for line in folder.history if "train/loss" in line] == list(range(1, 301))


@pytest.mark.slow
def test_one_run_trains_alone_although_the_locks_were_removed(tmp_path):
    results = tmp_path / "results"
    first = start(results, *ONE)
    trainer_of(results)
    subprocess.run(["rm", "-r", str(results / "runs" / ".locks")], check=True)
    second = start(results, *ONE)
    outputs = [process.communicate(timeout=600)[0] for process in (first, second)]
    third = start(results, *ONE)
    output, _ = third.communicate(timeout=600)
    assert third.returncode == 0, [*outputs, output]
    (folder,) = scan(results)
    assert [line["step"] for line in folder.history if "train/loss" in line] == list(range(1, 301))


# --- reasons --------------------------------------------------------------------------------------------------------


def limited():
    """No file may become larger than 300 KiB: what a full disk is to a resume point."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (300 * 1024, 300 * 1024))


@pytest.mark.slow
def test_a_resume_point_that_does_not_fit_leaves_its_reason_and_nothing_else(tmp_path):
    results = tmp_path / "results"
    process = start(results, *sweep(method="fft", seed="1"), preexec_fn=limited)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 1
    (folder,) = scan(results)
    assert "File too large" in folder.reason
    assert folder.reason in output
    assert str(folder.path / "error.txt") in output
    assert (folder.path / "error.txt").exists()
    assert [path for path in folder.path.rglob("*") if path.stat().st_size > 100_000] == []


@pytest.mark.slow
def test_a_long_temporary_folder_is_no_failure(tmp_path, monkeypatch):
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    process = start(tmp_path / "results", *sweep(method="fft", seed="1"))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output


def test_a_sweep_that_trained_nothing_has_failed(run_of, capsys):
    """The table and the exit code come from what became of each run, whatever its folder says."""
    run = run_of()
    assert console.sweep([run], {run.id: Outcome("failed", "no room")}) == 1
    output = capsys.readouterr().out
    assert "| 0/1 |" in output
    assert "no room" in output
    assert console.sweep([run]) == 1  # nothing was told, and there is nothing


def test_a_run_whose_process_is_gone_is_not_running(run_of, capsys):
    run = run_of()
    folder_of(run).mark_running()
    assert console.sweep([run]) == 1
    assert "running elsewhere" not in capsys.readouterr().out


class Undescribed(Exception):  # noqa: N818
    """Has a reason that is no text, as urllib's errors do."""

    def __init__(self):
        super().__init__("no route")
        self.reason = OSError("no route")


def test_a_reason_is_the_error_s_own_text(run_of, monkeypatch):
    def fail(*_):
        raise Undescribed

    monkeypatch.setattr("dsgd.training.load_task", fail)
    outcome = execute(run_of())
    assert (outcome, outcome.reason) == ("failed", "Undescribed: no route")


# --- what is left behind --------------------------------------------------------------------------------------------


def test_importing_the_dashboard_leaves_no_temporary_folder(tmp_path):
    """Not even where the process ends without its exit handlers."""
    code = "import dsgd.wandb_import, os; os._exit(0)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_finished_sweep_writes_nothing(command, tmp_path):
    """So that a disk which may only be read still gives its table."""
    words = sweep(steps=2, every="null")
    assert command(*words).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = command(*words)
    assert again.returncode == 0
    assert len(table(again.stdout)) == 4
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_hydra_keeps_of_a_job_is_let_go():
    class Ended:
        cfg = hydra_cfg = "large"
        return_value = None

    Forget().on_job_end(config=None, job_return=Ended)
    assert Ended.cfg is Ended.hydra_cfg is None


MEMORY = """
import json, sys
import run
from dsgd.execution import Outcome

def execute(_run, *_, **__):
    with open("/proc/self/statm") as file:
        seen.append(int(file.read().split()[1]) * 4096)
    return Outcome("failed", "not trained")

seen = []
run.execute = execute
sys.argv = ["run.py", "-m", "seed=range(0,100)", "debug=tiny", "results_dir=" + sys.argv[1]]
run.main()
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_the_parent_s_memory_stays_flat(tmp_path):
    """Hydra kept a quarter of a MiB of every run: of 70 runs 17 MiB."""
    call = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen) == 100
    assert seen[-1] - seen[29] < 4 * 2**20


# --- secrets --------------------------------------------------------------------------------------------------------

SECRETS = ("WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN")


def test_no_secret_of_the_environment_is_written(command, tmp_path, monkeypatch):
    """Into the run folder (the dashboard's files among them), the printed lines, or the report."""
    values = {name: f"{name.lower().replace('_', '')[:8]}{'5' * 32}" for name in SECRETS}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    short = ("debug=tiny", "debug.max_steps=2", "model.layers=1", "task.max_length=16")
    trained = command(*short, "tracking.mode=offline")
    assert trained.returncode == 0, trained.stderr
    failed = command(*short, "tracking=none", "seed=2", "model.package=no_such_package")
    assert failed.returncode == 1
    call = [sys.executable, "-m", "experiments.report", "--experiments", "laptop/smoke", "--results-dir", str(tmp_path)]
    drawn = subprocess.run([*call, *short], cwd=ROOT, capture_output=True, text=True, check=True)
    text = "".join(each.stdout + each.stderr for each in (trained, failed, drawn))
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("wandb" in path for path in files)
    for value in values.values():
        assert value not in text
        assert [path for path, content in files.items() if value.encode() in content] == []
    assert RunFolder(tmp_path / trained.stdout.splitlines()[-1]).state == "finished"
