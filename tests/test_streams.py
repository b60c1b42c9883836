"""What a screen cannot show, or a screen that is gone, never ends a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsgd.streams import GuardedStream
from shared import ROOT

TINY_RUN = ("debug=tiny", "debug.max_steps=2", "model.layers=1", "task.max_length=16", "tracking=none", "method=dsgd")


def python(code, **more):
    code = f"from dsgd.streams import guard_streams; guard_streams()\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60, **more)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin1"])
def test_a_character_that_the_encoding_lacks_is_replaced(encoding):
    done = python("print('γ 0.5 ± コ')", env={**os.environ, "PYTHONIOENCODING": encoding})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"? 0.5")


def test_a_full_disk_behind_the_output_ends_nothing():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from dsgd.streams import guard_streams as g; g(); print('x' * 100000); print('y')"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_went_away_ends_nothing():
    reader, writer = os.pipe()
    os.close(reader)
    code = "from dsgd.streams import guard_streams as g; g()\nfor _ in range(9): print('x' * 100000, flush=True)"
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_descriptors_are_not_given_to_the_next_file(closed, tmp_path):
    """A file that got number 1 would receive what the process prints."""
    code = (
        "from dsgd.streams import guard_streams; guard_streams()\n"
        f"file = open({str(tmp_path / 'file')!r}, 'w'); assert file.fileno() > 2\n"
        "import os, sys; print('told'); os.write(1, b'raw'); sys.stderr.write('told'); file.close()"
    )
    shell = " ".join(f"{number}>&-" if number else "0<&-" for number in closed)
    done = subprocess.run(["bash", "-c", f'"$0" -c "$1" {shell}', sys.executable, code], check=False)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == ""


def test_guarding_twice_wraps_once():
    done = python("import sys; before = sys.stdout; guard_streams(); assert sys.stdout is before")
    assert done.returncode == 0, done.stderr


def test_a_guarded_stream_is_the_stream_otherwise(capsys):
    stream = GuardedStream(sys.stdout)
    print("seen", file=stream, flush=True)
    assert stream.encoding == sys.stdout.encoding
    assert capsys.readouterr().out == "seen\n"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("sweep", [(), ("-m", "seed=1,2")])
def test_a_run_s_greek_letters_cannot_fail_it(tmp_path, encoding, sweep):
    call = [sys.executable, str(ROOT / "run.py"), *sweep, *TINY_RUN, f"results_dir={tmp_path}"]
    done = subprocess.run(
        call, capture_output=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert done.returncode == 0, done.stderr
    assert b"finished" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["| head -1", ">/dev/full", ">&-", ">&- 2>&-"])
def test_a_run_outlives_its_screen(tmp_path, ending):
    call = f'"{sys.executable}" "{ROOT / "run.py"}" {" ".join(TINY_RUN)} results_dir="{tmp_path}" {ending}'
    done = subprocess.run(["bash", "-o", "pipefail", "-c", call], check=False, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/*/*/*/metrics.json"))) == 1


@pytest.mark.parametrize("arguments", [("run.py", "--methods"), ("-m", "experiments.audit")])
def test_listings_need_no_greek(arguments, tmp_path):
    out = ["--out", str(tmp_path)] if "-m" in arguments else []
    done = subprocess.run(
        [sys.executable, *arguments, *out],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"?" in done.stdout
