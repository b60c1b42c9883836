"""Who holds a run may write into its folder, and nobody else; the lock outlives a killed parent in its child."""

import os
import shutil
import time

import pytest

from dsgd import locks
from dsgd.execution import fork_server
from dsgd.runs import (
    Claim,
    LostRunError,
    RunFolder,
    find,
    folder_of,
    lock_file_of,
    recover,
    replacement_for,
    swap_in,
    usual_path,
)

ROW = {"accuracy": 0.5, "status": "successful"}


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "locks" / "a.lock"
    assert not locks.is_held(path)
    held = locks.take(path)
    assert locks.is_held(path)
    assert locks.take(path) is None
    held.release()
    assert not locks.is_held(path)
    locks.take(path).release()


def hold(_lock, seconds):
    time.sleep(seconds)


def test_a_child_holds_its_parent_s_lock(tmp_path):
    """The parent's descriptor is closed without unlocking, as the kernel does for a killed process."""
    path = tmp_path / "a.lock"
    lock = locks.take(path)
    child = fork_server().Process(target=hold, args=(lock, 60))
    child.start()
    os.close(lock._descriptor)
    assert locks.is_held(path)
    child.kill()
    child.join()
    assert not locks.is_held(path)


@pytest.fixture
def mine(run_of):
    """A run folder of this process."""
    run = run_of()
    path = folder_of(run).path
    folder = RunFolder(path, Claim(locks.take(lock_file_of(run))))
    folder.mark_starting()
    return run, folder


def test_the_owner_goes_on_after_the_locks_were_removed(mine):
    run, folder = mine
    shutil.rmtree(lock_file_of(run).parent)
    folder.append_history([{"step": 1}])
    assert locks.is_held(lock_file_of(run))
    assert len(folder.history) == 1


def test_who_lost_a_run_writes_nothing(mine):
    """The locks are removed, another process takes the run and ends."""
    run, folder = mine
    shutil.rmtree(lock_file_of(run).parent)
    other = RunFolder(folder.path, Claim(locks.take(lock_file_of(run))))
    other.mark_starting()
    for _ in ("while it trains", "after it ended"):
        with pytest.raises(LostRunError):
            folder.append_history([{"step": 1}])
        with pytest.raises(LostRunError):
            folder.mark_finished(ROW)
        folder.mark_failed("interrupted")
        assert folder.read("state.json")["owner"] == other.claim.token
        assert folder.history == []
        if locks.is_held(lock_file_of(run)):
            other.claim.lock.release()


def test_a_removed_folder_is_not_made_anew(mine):
    _, folder = mine
    shutil.rmtree(folder.path)
    with pytest.raises(LostRunError):
        folder.append_history([{"step": 1}])
    assert not folder.path.exists()


# --- swaps that were cut off ----------------------------------------------------------------------------------------


def finished(path, accuracy):
    folder = RunFolder(path)
    folder.mark_finished({"accuracy": accuracy, "status": "successful"})
    return folder


@pytest.mark.parametrize(("renames", "left"), [(1, 1.0), (2, 1.0)])
def test_a_swap_that_was_killed_is_brought_to_its_end(run_of, tmp_path, monkeypatch, renames, left):
    """Killed after its first or its second rename: no copy is stranded."""
    run = run_of()
    old, new = finished(tmp_path / usual_path(run), 0.5), finished(replacement_for(run).path, 1.0)
    rename, done = type(old.path).rename, []

    def killed(self, target):
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(target)
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(old.path), "rename", killed)
        if renames == 2:
            patch.setattr("shutil.rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            swap_in(new, old)
    recover(run)
    assert folder_of(run).metrics["accuracy"] == left
    assert list((tmp_path / "runs" / ".replacements").iterdir()) == []


def test_the_old_run_comes_back_where_its_replacement_is_gone(run_of, tmp_path):
    run = run_of()
    old, new = finished(tmp_path / usual_path(run), 0.5), replacement_for(run)
    new.path.parent.mkdir(parents=True)
    old.path.rename(new.path.with_name(f"{run.id}.old"))
    recover(run)
    assert folder_of(run).metrics["accuracy"] == 0.5


# --- look-ups -------------------------------------------------------------------------------------------------------


def test_a_look_up_does_not_list_the_store(run_of, tmp_path, monkeypatch):
    """A run under another label is found, and one that is not there is not looked for."""
    run, same, missing = run_of("method=dsgd"), run_of("method=fft", "loss=dsgd"), run_of("method=dsgd", "seed=7")
    folder_of(run).mark_running()

    def listed(*_):
        raise AssertionError

    monkeypatch.setattr("dsgd.runs.scan", listed)
    assert folder_of(same) == folder_of(run) == find(tmp_path, run.id)
    assert folder_of(missing).path == tmp_path / usual_path(missing)


def test_a_store_of_an_earlier_version_is_indexed_by_the_first_who_writes(run_of, tmp_path):
    run, same, other = run_of("method=dsgd"), run_of("method=fft", "loss=dsgd"), run_of("method=fft")
    folder_of(run).mark_running()
    shutil.rmtree(tmp_path / "runs" / ".ids")
    assert folder_of(same) == folder_of(run)
    assert not (tmp_path / "runs" / ".ids").exists()
    folder_of(other).mark_running()
    assert folder_of(same) == folder_of(run)
    assert len(list((tmp_path / "runs" / ".ids").iterdir())) == 2
