"""W&B mirrors: real offline runs, read back by W&B's own reader; no test reaches the network."""

import inspect
import json
import logging
import math
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest

from dsgd.config.schema import Tracking, TrackingMode
from dsgd.tracking import PRELOAD, NoTracker, WandbTracker, make_tracker, resolve_mode

wandb = pytest.importorskip("wandb")

RECORDS = [
    {"step": 1, "train/loss": 0.1 + 0.2, "train/gamma": 1 / 3},
    {"step": 2, "train/loss": 1e-12, "train/wrong": 7},
    {"step": 2, "eval/accuracy": 0.5},
    {"step": 4, "train/loss": math.nan, "train/norm": math.inf},
]


@pytest.fixture(autouse=True, scope="module")
def no_service_stays():
    """W&B keeps a helper process and a thread, which tests that fork should not inherit."""
    yield
    wandb.teardown()


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """No key, no mode, no server of the user's; and if all fails, a port on which nobody answers."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def tracker(folder, mode=TrackingMode.offline, name="wandb", **changes):
    arguments = {"run_id": "abc123", "name": "dsgd seed42", "group": "cell7", "tags": ["dsgd"], "config": {"seed": 42}}
    return make_tracker(Tracking(name=name, mode=mode, tags=["mine"]), folder=folder, **{**arguments, **changes})


def read_records(folder):
    """The W&B records of the latest run in ``folder``, by type."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder / "wandb" / "latest-run")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    by_type = {}
    for record in map(json.loads, lines):
        by_type.setdefault(record["type"], []).append(record.get(record["type"]))
    return by_type


def history(records):
    """Mirror of ``history.jsonl``: one dict a step, W&B's own keys left out."""
    return [
        {"step": row["step"]["num"], **{key: float(value) for key, value in row["item"].items() if key[0] != "_"}}
        for row in records["history"]
    ]


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- offline runs ---------------------------------------------------------------------------------------------------


def test_what_is_logged_is_what_the_reader_finds(tmp_path, capfd, caplog):
    class Kind(Enum):
        step = "step"

    config = {"task": {"kind": Kind.step, "root": Path("data")}, "seed": 42, "tasks": ("a", "b"), "none": None}
    opened = tracker(tmp_path, tags=["dsgd", "mine", "long" * 20, ""], config=config)
    opened.log(RECORDS[:1])
    opened.log(RECORDS[1:])
    opened.finish({"accuracy": 0.75, "status": "successful", "recall_by_class": {"yes": 0.5}})

    records = read_records(tmp_path)
    found = history(records)
    assert found[:2] == [
        {"step": 1, "train/loss": 0.1 + 0.2, "train/gamma": 1 / 3},
        {"step": 2, "train/loss": 1e-12, "train/wrong": 7.0, "eval/accuracy": 0.5},
    ]
    assert found[2]["step"] == 4
    assert math.isnan(found[2]["train/loss"])
    assert found[2]["train/norm"] == math.inf
    assert len(found) == 3

    (run,) = records["run"]
    assert (run["run_id"], run["project"], run["run_group"]) == ("abc123", "dsgd", "cell7")
    assert run["display_name"] == "dsgd seed42"
    assert sorted(run["tags"]) == ["dsgd", ("long" * 20)[:64], "mine"]
    written = {key: value for key, value in run["config"]["update"].items() if key != "_wandb"}
    assert written == {"task": {"kind": "step", "root": "data"}, "seed": 42, "tasks": ["a", "b"], "none": None}
    summary = {key: value for row in records["summary"] for key, value in row["update"].items()}
    assert (summary["accuracy"], summary["status"]) == (0.75, "successful")
    assert [record["exit_code"] for record in records["exit"]] == [0]  # and, on a slow machine, a runtime
    assert capfd.readouterr() == ("", "")
    assert warnings_in(caplog) == []


def test_runs_of_one_process_stay_apart(tmp_path):
    """The second opens while the first is open, as after a run that forgot to finish."""
    first, second = (tmp_path / name for name in ("first", "second"))
    first.mkdir()
    second.mkdir()
    one, two = tracker(first, run_id="one"), tracker(second, run_id="two")
    one.log([{"step": 1, "a": 1}])
    two.log([{"step": 1, "b": 2}])
    two.finish({})
    one.finish({}, exit_code=1)
    assert history(read_records(first)) == [{"step": 1, "a": 1.0}]
    assert history(read_records(second)) == [{"step": 1, "b": 2.0}]
    assert read_records(first)["exit"] == [{"exit_code": 1}]


def test_a_resumed_run_is_mirrored_whole_under_its_id(tmp_path, monkeypatch):
    interrupted = tracker(tmp_path)
    interrupted.log(RECORDS[:1])
    interrupted.finish({}, exit_code=1)
    (before,) = (tmp_path / "wandb").glob("offline-run-*")
    before.rename(before.with_name("offline-run-20000101_000000-abc123"))  # folders are named by the second
    resumed = tracker(tmp_path)
    resumed.log(RECORDS[:3])
    resumed.finish({})
    assert len(list((tmp_path / "wandb").glob("offline-run-*-abc123"))) == 2
    assert [row["step"] for row in history(read_records(tmp_path))] == [1, 2]


def test_a_forkserver_child_opens_an_offline_run(tmp_path):
    """As a sweep's runs do: a child forked from a server that has imported W&B."""
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, pathlib, sys\n"
        "from dsgd.config.schema import Tracking\n"
        "from dsgd.tracking import PRELOAD, make_tracker\n"
        "def child(folder):\n"
        "    assert all(name in sys.modules for name in PRELOAD)\n"
        "    run = {'run_id': 'abc', 'name': 'n', 'group': 'g', 'tags': [], 'config': {}}\n"
        "    tracker = make_tracker(Tracking(), folder=folder, **run)\n"
        "    tracker.log([{'step': 3, 'a': 0.5}])\n"
        "    tracker.finish({})\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('forkserver')\n"
        "    context.set_forkserver_preload(list(PRELOAD))\n"
        "    process = context.Process(target=child, args=(pathlib.Path(sys.argv[1]),))\n"
        "    process.start()\n"
        "    process.join()\n"
        "    sys.exit(process.exitcode)\n"
    )
    root = Path(inspect.getfile(WandbTracker)).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert history(read_records(tmp_path)) == [{"step": 3, "a": 0.5}]


def test_preloading_starts_nothing():
    """A server that forks must own no thread; numpy's count as numpy's, which the server imports anyway."""
    script = (
        "import importlib, threading, numpy\n"
        "from multiprocessing import active_children\n"
        f"[importlib.import_module(name) for name in {PRELOAD!r}]\n"
        "print(threading.active_count(), active_children())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 []"


# --- failures -------------------------------------------------------------------------------------------------------


def use_all(opened):
    opened.log([{"step": 1, "a": 1.0}])
    opened.log([{"step": 2, "a": 1.0}])
    opened.finish({"accuracy": 1.0})
    opened.finish({"accuracy": 1.0})


def test_a_failing_init_warns_once(tmp_path, monkeypatch, caplog):
    def fail(**_):
        raise wandb.errors.CommError("no route\nsecond line")

    monkeypatch.setattr(wandb, "init", fail)
    use_all(tracker(tmp_path))
    (message,) = warnings_in(caplog)
    assert "CommError: no route)" in message


def test_a_missing_package_warns_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "dsgd.wandb_import", raising=False)
    use_all(tracker(tmp_path))
    (message,) = warnings_in(caplog)
    assert "wandb" in message


@pytest.mark.parametrize("broken", ["log", "finish"])
def test_a_failure_under_way_warns_once_and_still_finishes(tmp_path, monkeypatch, caplog, broken):
    calls = []

    class Run:
        def __init__(self):
            self.summary = {}

        def log(self, values, step):
            self.do("log")

        def finish(self, exit_code):
            self.do("finish")

        def do(self, name):
            calls.append(name)
            if name == broken:
                raise BrokenPipeError("the service died")

    monkeypatch.setattr(wandb, "setup", lambda settings: None)
    monkeypatch.setattr(wandb, "init", lambda **_: Run())
    use_all(tracker(tmp_path))
    assert calls == (["log", "finish"] if broken == "log" else ["log", "log", "finish"])
    assert len(warnings_in(caplog)) == 1


def test_a_malformed_record_is_a_warning_too(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(wandb, "setup", lambda settings: None)
    monkeypatch.setattr(wandb, "init", lambda **_: None)
    opened = tracker(tmp_path)
    opened._run = object()
    opened.log([{"no step": 1}])
    assert len(warnings_in(caplog)) == 1


@pytest.mark.slow
def test_an_unreachable_server_costs_no_more_than_the_timeout(tmp_path, monkeypatch, caplog):
    """A key is set and nobody answers; in a process of its own, because the session's settings outlive the test."""
    script = (
        "import pathlib, sys, time, dsgd.tracking\n"
        "from dsgd.config.schema import Tracking\n"
        "dsgd.tracking._SETTINGS['init_timeout'] = 3.0\n"
        "run = {'run_id': 'abc', 'name': 'n', 'group': 'g', 'tags': [], 'config': {}}\n"
        "tracker = dsgd.tracking.make_tracker(Tracking(), folder=pathlib.Path(sys.argv[1]), **run)\n"
        "tracker.log([{'step': 1, 'a': 1.0}])\n"
        "tracker.finish({})\n"
    )
    environment = {**os.environ, "WANDB_API_KEY": "0123456789" * 4, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
    (line,) = done.stderr.splitlines()
    assert line.startswith("W&B stopped (CommError")


# --- whether and where ----------------------------------------------------------------------------------------------


def test_no_tracker_does_nothing(tmp_path, monkeypatch):
    def fail(**_):
        raise AssertionError("W&B was called")

    monkeypatch.setattr(wandb, "init", fail)
    opened = tracker(tmp_path, name="none")
    assert isinstance(opened, NoTracker)
    use_all(opened)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_can_disable_tracking(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert isinstance(tracker(tmp_path, mode=TrackingMode.online), NoTracker)


@pytest.mark.parametrize(
    ("configured", "environment", "expected"),
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_API_KEY": ""}, "offline"),
        ("auto", {"WANDB_API_KEY": "key"}, "online"),
        ("auto", {"WANDB_MODE": "online"}, "online"),
        ("auto", {"WANDB_MODE": "offline", "WANDB_API_KEY": "key"}, "offline"),
        ("auto", {"WANDB_MODE": "disabled", "WANDB_API_KEY": "key"}, "disabled"),
        ("online", {}, "online"),
        ("online", {"WANDB_MODE": "offline", "WANDB_API_KEY": "key"}, "offline"),
        ("online", {"WANDB_MODE": "dryrun"}, "offline"),
        ("online", {"WANDB_MODE": "disabled"}, "disabled"),
        ("offline", {"WANDB_API_KEY": "key"}, "offline"),
        ("offline", {"WANDB_MODE": "online", "WANDB_API_KEY": "key"}, "offline"),
        ("offline", {"WANDB_MODE": "disabled"}, "disabled"),
    ],
)
def test_the_environment_can_only_narrow_what_the_config_says(configured, environment, expected):
    assert resolve_mode(configured, environment) == expected


def test_importing_the_module_is_cheap():
    script = "import sys, dsgd.tracking; print([m for m in ('wandb', 'torch', 'hydra') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
