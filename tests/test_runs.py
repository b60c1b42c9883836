"""The run folder: states, atomic files, names, and finding a run by its id."""

import json
import os
import socket
from contextlib import contextmanager

import pytest

from dsgd import locks
from dsgd.runs import RunFolder, find, folder_of, safe_name, scan, swap_in


def make(tmp_path, name="seed42-0123456789", **state):
    folder = RunFolder(tmp_path / "runs" / "model" / "task" / "fft" / name)
    if state:
        folder.write_json("state.json", {"host": socket.gethostname(), "pid": os.getpid(), **state})
    return folder


@contextmanager
def locked(folder):
    """As long as some process trains the run."""
    lock = locks.take(folder.path.parents[3] / ".locks" / f"{folder.run_id}.lock")
    yield lock
    lock.release()


def test_a_folder_without_a_state_is_missing(tmp_path):
    assert make(tmp_path).state == "missing"


def test_metrics_alone_mean_finished(tmp_path):
    folder = make(tmp_path, state="running")
    with locked(folder):
        assert folder.state == "running"
    folder.mark_finished({"accuracy": 1.0})
    assert folder.state == "finished"
    assert folder.metrics == {"accuracy": 1.0}


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_running_means_that_the_lock_is_held(tmp_path, host):
    """Neither a number that another process has now nor a machine that is gone keeps a run running for ever."""
    folder = make(tmp_path, state="running", host=host, pid=os.getpid())
    assert (folder.state, folder.reason) == ("failed", "the process ended without a word")
    with locked(folder):
        assert folder.state == "running"


def test_a_failure_keeps_its_reason_and_its_traceback(tmp_path):
    folder = make(tmp_path, state="running")
    folder.mark_failed("non-finite: at step 3", "Traceback …")
    assert (folder.state, folder.reason) == ("failed", "non-finite: at step 3")
    assert (folder.path / "error.txt").read_text() == "Traceback …"


def test_a_write_leaves_nothing_beside_it(tmp_path):
    folder = make(tmp_path)
    folder.write_json("a.json", {"x": 1})
    assert [path.name for path in folder.path.iterdir()] == ["a.json"]
    assert json.loads((folder.path / "a.json").read_text()) == {"x": 1}


def test_a_failed_write_leaves_the_old_content(tmp_path):
    folder = make(tmp_path)
    folder.write_json("a.json", {"x": 1})
    with pytest.raises(TypeError):
        folder.write_json("a.json", {"x": object()})
    assert folder.read("a.json") == {"x": 1}


def test_clearing_keeps_what_a_resumed_run_needs(tmp_path):
    folder = make(tmp_path, state="failed")
    folder.append_history([{"step": 1}])
    (folder.path / "wandb").mkdir()
    folder.clear()
    assert list(folder.path.iterdir()) == []
    (folder.path / "checkpoint").mkdir()
    folder.append_history([{"step": 1}, {"step": 2}])
    folder.clear()
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoint", "history.jsonl"]


def test_history_is_cut_back_to_a_step(tmp_path):
    folder = make(tmp_path, state="running")
    folder.append_history([{"step": 1}, {"step": 2}, {"step": 2, "eval/accuracy": 1.0}, {"step": 3}])
    assert len(folder.keep_history(2)) == 3
    assert [record["step"] for record in folder.history] == [1, 2, 2]


def test_a_run_is_found_by_its_id_under_any_label(run_of, tmp_path):
    """``method=fft loss=dsgd`` is ``method=dsgd``; the folder that exists serves both."""
    run, same = run_of("method=dsgd"), run_of("method=fft", "loss=dsgd")
    assert folder_of(run).path != folder_of(same).path
    folder_of(run).mark_running()
    assert folder_of(same) == folder_of(run) == find(tmp_path, run.id)


def test_scan_passes_over_locks_and_replacements(tmp_path):
    folder = make(tmp_path, state="failed")
    (tmp_path / "runs" / ".replacements" / "a" / "b" / "seed1-x").mkdir(parents=True)
    assert list(scan(tmp_path)) == [folder]


def test_a_swap_replaces_the_whole_folder(tmp_path):
    old, new = make(tmp_path), RunFolder(tmp_path / "runs" / ".replacements" / "0123456789")
    old.write_json("only_old.json", {})
    new.write_json("metrics.json", {"accuracy": 0.5})
    swap_in(new, old)
    assert [path.name for path in old.path.iterdir()] == ["metrics.json"]
    assert not new.path.exists()


@pytest.mark.parametrize("label", ["dsgd[tau=0.5,schedule=cosine]", "fft[root=/a b/*?]", "é" * 300])
def test_labels_become_names_without_special_characters(label):
    name = safe_name(label)
    assert 0 < len(name) <= 120
    assert not set(name) & set("[]*?/\\ '\"")
