"""Device slots: two processes never hold one device, and a dead process gives its device back."""

import subprocess
import sys

CODE = "import sys; from pathlib import Path; from dsgd.devices import claim_device\n"
CODE += "print(claim_device(2, int(sys.argv[2]), Path(sys.argv[1]), poll=0.05), flush=True); input()"


def claim(folder, slots=1):
    words = [sys.executable, "-c", CODE, str(folder), str(slots)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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


def test_devices_are_shared_only_when_each_has_a_run_and_then_up_to_their_slots(tmp_path):
    """Two devices of two slots: 0, 1, 0, 1; the fifth waits, says so, and gets the place of the one that ends."""
    taken, processes = [], []
    for _ in range(4):
        processes.append(claim(tmp_path, slots=2))
        taken.append(processes[-1].stdout.readline())
    assert taken == ["0\n", "1\n", "0\n", "1\n"]
    fifth = claim(tmp_path, slots=2)
    assert "waiting" in fifth.stderr.readline()
    processes[2].kill()
    assert fifth.stdout.readline() == "0\n"
    for process in (*processes, fifth):
        process.kill()
        process.communicate()
