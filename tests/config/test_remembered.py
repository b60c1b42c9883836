"""Command lines whose finished runs are listed without composing them again."""

import dataclasses

import pytest

from dsgd.config.command import read_command
from dsgd.config.remembered import recall, remember


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path / "cache"))


COMMAND = read_command(["-m", "seed=1,2"])


def test_what_was_remembered_comes_back_and_nothing_else(run_of, monkeypatch):
    run = run_of()
    assert recall(COMMAND) is None
    remember(COMMAND, [run])
    (known,) = recall(COMMAND)
    assert (known, known.id, known.cell_id) == (run, run.id, run.cell_id)
    assert recall(read_command(["-m", "seed=1,3"])) is None
    monkeypatch.setenv("DSGD_DATA_ROOT", "elsewhere")
    assert recall(COMMAND) is None


@pytest.mark.parametrize("key", ["fingerprint", "path"])
def test_runs_of_files_that_may_change_are_not_remembered(run_of, key):
    run = run_of()
    task = dataclasses.replace(run.config.task, **{key: "content"})
    remember(COMMAND, [dataclasses.replace(run, config=dataclasses.replace(run.config, task=task))])
    assert recall(COMMAND) is None


def test_a_damaged_file_is_not_believed(run_of, tmp_path):
    remember(COMMAND, [run_of()])
    (file,) = (tmp_path / "cache" / "commands").glob("*.pickle")
    file.write_bytes(file.read_bytes()[:-1])
    assert recall(COMMAND) is None
