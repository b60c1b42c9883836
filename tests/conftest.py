"""Shared means: compose the real config, shrink it, and run it in a folder of the test's own."""

import os
import subprocess
import sys

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: see dsgd.execution

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.cuda import cuda_device_count
from dsgd.execution import execute
from dsgd.runs import folder_of
from shared import ROOT, TINY

if cuda_device_count() == 0:  # before Triton, which decides when it is imported: see test_triton_loss.py
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _no_dashboard_account(monkeypatch):
    """Nobody's key or mode reaches a test."""
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """The user's own is left alone; the tests of one session share one."""
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def run_of(tmp_path):
    """A function from overrides to the one tiny run that they name, under the test's own results."""

    def make(*overrides):
        (run,) = expand(read_command([f"results_dir={tmp_path}", *TINY, *overrides]))
        return run

    return make


@pytest.fixture
def train(run_of):
    """A function from overrides to the folder of the tiny run, trained and finished."""

    def make(*overrides):
        run = run_of(*overrides)
        outcome = execute(run)
        folder = folder_of(run)
        assert outcome == "finished", folder.reason
        return folder

    return make


@pytest.fixture
def command(tmp_path):
    """A function that calls ``run.py`` as a person would, with the test's own results, and returns what came of it."""

    def call(*arguments, timeout=300):
        everything = [sys.executable, str(ROOT / "run.py"), *arguments, f"results_dir={tmp_path}"]
        return subprocess.run(
            everything, cwd=tmp_path, capture_output=True, text=True, timeout=timeout, check=False, env=os.environ
        )

    return call
