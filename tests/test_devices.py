"""Device slots: two processes never hold one device, and a dead process gives its device back."""

import subprocess
import sys

CODE = "import sys; from pathlib import Path; from dsgd.devices import claim_device\n"
CODE += "print(claim_device(2, Path(sys.argv[1]), poll=0.05), flush=True); input()"


def claim(folder):
    return subprocess.Popen(
        [sys.executable, "-c", CODE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_processes_take_different_devices_and_a_killed_one_frees_its_own(tmp_path):
    first, second = claim(tmp_path), claim(tmp_path)
    taken = {int(process.stdout.readline()): process for process in (first, second)}
    assert sorted(taken) == [0, 1]
    third = claim(tmp_path)
    taken[1].kill()
    assert third.stdout.readline() == "1\n"
    for process in (first, second, third):
        process.kill()
        process.communicate()
