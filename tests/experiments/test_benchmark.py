"""The arithmetic of the benchmark; its measurements need a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.benchmark import __main__ as benchmark
from experiments.benchmark.ratios import Interval, interval, paired

ROOT = Path(__file__).parents[2]


def test_the_interval_of_equal_samples_is_a_point():
    assert interval([1.5] * 7) == Interval(1.5, 1.5, 1.5)


def test_the_interval_holds_the_median_and_shrinks_with_the_samples():
    few, many = interval([1.0, 1.1, 1.3, 0.9]), interval([1.0, 1.1, 1.3, 0.9] * 25)
    assert few.median == many.median == pytest.approx(1.05)
    assert few.low < few.median < few.high
    assert many.high - many.low < few.high - few.low


def test_pairs_are_ratios_of_neighbours_and_take_turns():
    """One counts 2, 4, 6, 8, the other 1, 2, 3, 4: a ratio of 2 each, whoever is first."""
    order = []

    def counter(name, step):
        def call():
            order.append(name)
            return step * order.count(name)

        return call

    assert paired(counter("one", 2), counter("other", 1), 4) == [2.0] * 4
    assert order == ["one", "other", "other", "one"] * 2


@pytest.mark.parametrize(
    ("side", "missed"), [("≤", [False, False, True]), ("≥", [True, False, False])], ids=["at_most", "at_least"]
)
def test_a_bar_is_missed_only_beyond_the_whole_interval(side, missed):
    """A bar of 1.2 against intervals below it, around it and above it."""
    row = benchmark.Row("row", "what", side, 1.2, "", lambda folder, quick: [])
    found = [Interval(1.0, 0.9, 1.1), Interval(1.25, 1.15, 1.3), Interval(1.4, 1.3, 1.5)]
    assert [row.is_missed(each) for each in found] == missed


@pytest.mark.parametrize(
    ("samples", "verdict", "code"), [([1.0], "met", 0), ([2.0], "missed", 1), ([], "not measured", 1)]
)
def test_the_file_and_the_exit_status_say_how_it_went(tmp_path, monkeypatch, capsys, samples, verdict, code):
    row = benchmark.Row("row", "some step", "≤", 1.5, " s", lambda folder, quick: samples)
    monkeypatch.setattr(benchmark, "ROWS", (row,))
    assert benchmark.main(["--only", "row", "--out", str(tmp_path / "b.json")]) == code
    written = json.loads((tmp_path / "b.json").read_text())
    assert written["command"] == f"python -m experiments.benchmark --only row --out {tmp_path / 'b.json'}"
    assert {"torch", "numpy"} < set(written["versions"])
    assert written["rows"][0]["verdict"] == verdict
    assert "some step" in capsys.readouterr().out


def test_the_list_and_an_unknown_row_load_no_torch():
    code = "import sys, experiments.benchmark.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--only", "nothing"])
    assert benchmark.main(["--list"]) == 0


@pytest.mark.slow
def test_a_step_is_timed(tmp_path):
    assert benchmark.main(["--quick", "--only", "pcgrad_fp32", "--out", str(tmp_path / "b.json")]) in (0, 1)
    (row,) = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert len(row["samples"]) == 6
    assert all(0.5 < ratio < 5 for ratio in row["samples"])
