"""A command that cannot write its files says so in one line, before it does any work."""

import subprocess
import sys

import pytest

from experiments import plan
from shared import ROOT

COMMANDS = ("table1", "figure1", "claims", "report", "audit", "theory")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_cannot_be_made_is_refused(name, tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", f"experiments.{name}", "--out", str(tmp_path / "file" / "out")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "file/out: no folder can be made there: Not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_results_folder_without_runs_is_told(tmp_path, capsys):
    assert plan.main(["laptop/smoke", "--results-dir", str(tmp_path / "reslts")]) == 0
    assert "reslts holds no runs, so all are missing" in capsys.readouterr().err
    (tmp_path / "runs").mkdir()
    assert plan.main(["laptop/smoke", "--results-dir", str(tmp_path)]) == 0
    assert not capsys.readouterr().err
