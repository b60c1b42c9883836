"""The audit of the paper's printed numbers: its arithmetic by brute force, its findings by name."""

import subprocess
import sys
from fractions import Fraction
from itertools import combinations_with_replacement
from statistics import pstdev, stdev

import pytest

from dsgd.imbalance import class_counts
from experiments import audit
from experiments.audit import Cell, imbalanced_total, possible_ddofs, possible_totals, trainable_parameters


def cell(mean, std, size):
    return Cell("Table", "task", "model method", mean, std, size)


def printed(values, spread):
    return f"{sum(values) / len(values):.2f}", f"{spread(values):.2f}"


@pytest.fixture(scope="module")
def findings():
    return audit.audit()


def test_whatever_ten_runs_give_is_called_possible():
    """Every multiset of 10 counts out of 4, printed as Python rounds it: 1001 cells, none may be refused."""
    for counts in combinations_with_replacement(range(5), 10):
        values = [100 * count / 4 for count in counts]
        for ddof, spread in ((0, pstdev), (1, stdev)):
            assert ddof in possible_ddofs(cell(*printed(values, spread), 4)), counts


def test_only_what_ten_runs_can_give_is_called_possible():
    """Every mean that 10 counts out of 4 have, with every STD on a grid: possible exactly where brute force finds it.

    The conditions are necessary; they are also sufficient except close to the greatest spread, which no cell nears.
    """
    reachable = {
        printed([100 * count / 4 for count in counts], stdev) for counts in combinations_with_replacement(range(5), 10)
    }
    for mean in sorted({mean for mean, _ in reachable}):
        widest = max(float(std) for other, std in reachable if other == mean)
        for hundredths in range(0, int(60 * widest), 29):
            pair = (mean, f"{hundredths / 100:.2f}")
            assert (1 in possible_ddofs(cell(*pair, 4))) == (pair in reachable), pair


def test_the_mean_of_ten_runs_on_277_examples_jumps_over_74_90():
    """2074/2770 = 74.874 %, 2075/2770 = 74.910 %: nothing rounds to 74.90."""
    assert list(possible_totals(cell("74.90", "2.70", 277))) == []
    assert list(possible_totals(cell("74.87", "2.70", 277))) == [2074]


def test_the_std_of_ten_runs_on_100_examples_jumps_over_5_51():
    """Sum 555, so Q - 30802.5 = 9 s²: s in [5.505, 5.515] asks for Q in [31075.25, 31076.23], and Q = 31076 is even."""
    assert possible_ddofs(cell("55.50", "5.51", 100)) == []
    assert possible_ddofs(cell("55.50", "5.50", 100)) == [0, 1]  # Q = 31105: 10 s² = 302.5, s = 5.500


def test_impossible_cells(findings):
    impossible = {f"{finding.place}: {finding.printed}" for finding in findings if finding.verdict == "impossible"}
    assert impossible == {
        "Table 1, rte: llama_3_2_1b lnsr 74.90 ± 2.70",
        "Table 1, mrpc: llama_3_2_1b noisytune 84.76 ± 2.08",
        "Table 1, copa: llama_3_2_1b swa 55.50 ± 5.51",
        "Table 6, mrpc of mrpc+cola: roberta_large noisytune 70.80 ± 6.76",
    }


def test_the_standard_deviations_divide_by_n_minus_1(findings):
    (finding,) = [finding for finding in findings if finding.check == "one divisor for all STDs"]
    assert finding.follows == "only n - 1 is possible in 17 cells, only n in 0"


def test_averages_that_do_not_follow_from_their_cells(findings):
    wrong = {
        finding.printed: finding.follows
        for finding in findings
        if finding.check == "average of the row" and finding.verdict != "consistent"
    }
    assert wrong == {
        "roberta_large focal 81.10 ± 4.53": "80.44 ± 4.53",
        "roberta_large fft ×3 82.82 ± 4.35": "82.73 ± 4.39",
        "roberta_large fft ×5 82.79 ± 4.71": "83.11 ± 4.42",
        "roberta_large fft ×7 84.85 ± 1.94": "84.25 ± 1.95",
        "roberta_large swa 77.68 ± 9.59": "77.70 ± 9.60",  # of Table 6
    }


def test_the_text_misquotes_one_number_of_a_table(findings):
    wrong = [
        finding for finding in findings if finding.check == "text repeats a table" and finding.verdict != "consistent"
    ]
    assert [(finding.printed, finding.follows) for finding in wrong] == [
        ("roberta_large pcgrad on copa: 69.06", "Table 1: 69.60")
    ]


def test_fifty_to_one_is_two_to_one(findings):
    totals = [finding for finding in findings if finding.check == "total from the ratio"]
    assert len(totals) == 8
    for finding in totals:
        assert finding.verdict == ("contradiction" if "50:1" in finding.printed else "consistent")
        if "50:1" in finding.printed:
            assert f"2:1 (factor 0.5) gives {finding.printed.split()[2]}" in finding.follows


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
@pytest.mark.parametrize("imbalance", ["longtail", "step"])
@pytest.mark.parametrize("factor", [0.01, 0.02, 0.5])
def test_exact_totals_equal_those_that_runs_train_on(dataset, imbalance, factor):
    classes = int(dataset.removeprefix("cifar"))
    expected = sum(class_counts(imbalance, factor, classes, 50_000 // classes))
    assert imbalanced_total(dataset, imbalance, Fraction(str(factor))) == expected


def test_parameter_counts():
    """LoRA 24·2·8·2048, AdaLoRA 24·2·64·2049, IA3 24·(3·1024 + 4096), each + 1025; RoBERTa-large without its pooler."""
    counts = trainable_parameters()
    assert counts["lora"]["rank 8 on query, value + Linear(1024, 1)"] == 787_457
    assert counts["adalora"]["rank 64 on query, value + Linear(1024, 1)"] == 6_295_553
    assert counts["ia3"]["key, value, both output.dense + Linear(1024, 1)"] == 173_057
    assert counts["fft"]["encoder + Linear(1024, 1)"] == 354_310_144 + 1_025


def test_adapters_counts_name_the_head_with_one_output(findings):
    follows = {finding.printed: finding.follows for finding in findings if finding.check == "trainable parameters"}
    assert follows["lora ∼787.5K"] == "rank 8 on query, value + Linear(1024, 1) = 787,457"
    assert follows["ia3 ∼173K"] == "key, value, both output.dense + Linear(1024, 1) = 173,057"


def test_cells_without_spread_are_the_majority_class(findings):
    flat = [finding for finding in findings if finding.check == "no spread: all runs collapsed"]
    assert sorted(finding.printed for finding in flat) == [
        "llama_3_2_1b focal 62.17 ± 0.00",
        "llama_3_2_1b focal 68.38 ± 0.00",
        "llama_3_2_1b focal 69.13 ± 0.00",
        "llama_3_2_1b noisytune 55.00 ± 0.00",
        "roberta_large noisytune 55.00 ± 0.00",
    ]
    assert {finding.verdict for finding in flat} == {"consistent"}


def test_exit_codes_and_files(tmp_path, capsys):
    assert audit.main(["--out", str(tmp_path)]) == 0
    assert audit.main(["--strict"]) == 1
    assert "69.06" in capsys.readouterr().out
    assert "impossible" in (tmp_path / "audit.md").read_text()
    assert (tmp_path / "audit.csv").read_text().startswith("place,check,printed,follows,verdict")


def test_the_audit_needs_no_torch():
    code = "import experiments.audit, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
