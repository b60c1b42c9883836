"""The ledger on runs made up for the purpose: each verdict from numbers that call for it, each test against scipy."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from make_runs import RESULTS, planned
from omegaconf.errors import ConfigKeyError

from experiments.cells import Column
from experiments.claim_tests import TESTS
from experiments.claims import Claim, comparisons, judged, main, read_claims, said_by_the_paper
from experiments.collect import collect, gather
from experiments.samples import Place, Sample, pools, printed_values, samples_of, without_common_changes

COLUMN = Column("rte")


def sample(*accuracies, failures=0, seconds=(), planned=None):
    ended = len(accuracies)
    return Sample(planned or ended, accuracies, failures, ended, tuple(seconds))


def normal(mean, std, seed, n=10):
    return sample(*np.random.default_rng(seed).normal(mean, std, n))


def at(method, model="minilm", column=COLUMN):
    return Place(model, column, method)


def claim(test="higher_mean", of=("dsgd",), than=("fft",), **fields):
    return Claim("a claim", "a source", "an experiment", test, list(of), list(than), **fields)


# ------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [(90, 80, "supported"), (80, 90, "refuted"), (85, 85.2, "undecided")],
)
def test_verdict_on_means(ours, theirs, expected):
    verdict, numbers, runs = judged(claim(), {at("dsgd"): normal(ours, 2, 0), at("fft"): normal(theirs, 2, 1)})
    assert (verdict, runs) == (expected, "20 of 20")
    assert "dsgd against fft" in numbers


def test_one_baseline_that_wins_refutes_a_claim_about_all():
    samples = {at("dsgd"): normal(85, 1, 0), at("fft"): normal(75, 1, 1), at("focal"): normal(95, 1, 2)}
    verdict, numbers, _ = judged(claim(than=["fft", "focal"]), samples)
    assert verdict == "refuted"
    assert numbers.startswith("1 for, 1 against, of 2: MiniLM on RTE, dsgd against focal: -")


def test_a_comparison_without_runs_keeps_a_claim_undecided():
    samples = {at("dsgd"): normal(90, 1, 0), at("fft"): normal(75, 1, 1), at("focal"): Sample(10, (), 0, 0)}
    verdict, _, runs = judged(claim(than=["fft", "focal"]), samples)
    assert (verdict, runs) == ("undecided", "20 of 30")


def test_a_method_that_is_not_planned_keeps_a_claim_undecided_and_is_named():
    samples = {at("dsgd"): normal(90, 1, 0), at("fft"): normal(75, 1, 1)}
    verdict, numbers, _ = judged(claim(than=["fft", "focal"]), samples)
    assert verdict == "undecided"
    assert numbers.endswith("(not planned: focal)")


def test_nothing_run_and_nothing_planned_are_told_apart():
    dsgd, fft = Sample(2, (), 0, 0), Sample(3, (), 0, 0)
    assert judged(claim(), {at("dsgd"): dsgd, at("fft"): fft}) == ("not run", "no run has ended", "0 of 5")
    assert judged(claim(), {at("dsgd"): dsgd}) == ("not run", "not planned: fft", "none planned")


def test_one_run_a_side_decides_nothing():
    verdict, numbers, _ = judged(claim(), {at("dsgd"): sample(90.0), at("fft"): sample(10.0)})
    assert verdict == "undecided"
    assert "too few runs" in numbers


def test_holm_corrects_over_the_claim():
    """p = 0.04 alone is significant; beside three comparisons without effect it becomes 0.16."""
    samples = {at("dsgd"): normal(85, 2, 0)}
    samples[at("fft")] = sample(*(np.array(samples[at("dsgd")].accuracies) - 1.75))
    p = scipy.stats.ttest_ind(samples[at("dsgd")].accuracies, samples[at("fft")].accuracies, equal_var=False).pvalue
    assert 0.0125 < p < 0.05
    same = {at(name): samples[at("dsgd")] for name in ("focal", "lnsr", "pcgrad")}
    assert judged(claim(), samples)[0] == "supported"
    verdict, numbers, _ = judged(claim(than=["fft", "focal", "lnsr", "pcgrad"]), samples | same)
    assert verdict == "undecided"
    assert numbers.startswith("0 for, 0 against, of 4")


def test_claims_about_other_models_are_carried_over_and_say_so():
    samples = {at("dsgd"): normal(90, 1, 0), at("fft"): normal(75, 1, 1)}
    assert judged(claim(models=["roberta_large"]), samples)[2] == "20 of 20, carried over to MiniLM"
    assert judged(claim(models=["minilm"]), samples)[2] == "20 of 20"


def test_claims_about_other_tasks_are_not_carried_over():
    samples = {at("dsgd"): normal(90, 1, 0), at("fft"): normal(75, 1, 1)}
    assert judged(claim(tasks=["*_longtail_100"]), samples)[0] == "not run"
    assert judged(claim(tasks=["r*"]), samples)[0] == "supported"


# ------------------------------------------------------------------ tests


def test_welch_of_one_task_is_scipys():
    of, than = normal(85, 1, 0, n=8), normal(84, 4, 1, n=5)
    expected = scipy.stats.ttest_ind(of.accuracies, than.accuracies, equal_var=False)
    outcome = TESTS["higher_mean"]([of], [than], 1.0)
    assert outcome.p == pytest.approx(expected.pvalue, rel=1e-12)
    assert outcome.effect == pytest.approx(of.mean - than.mean)


def test_an_average_over_tasks_is_decided_though_no_task_is():
    """Six tasks with one standard error of difference each: together √6 = 2.4 of them."""
    values = np.array([-1.5, -0.5, 0.5, 1.5]) * 10
    samples = {}
    for number in range(6):
        column = Column(f"task{number}")
        samples |= {at("fft", column=column): sample(*values), at("dsgd", column=column): sample(*(values + 9.2))}
    assert judged(claim(), samples)[0] == "undecided"
    verdict, numbers, _ = judged(claim(scope="average"), samples)
    assert verdict == "supported"
    assert "MiniLM, dsgd against fft: +9.20 points" in numbers


def test_brown_forsythe_is_scipys_and_task_levels_do_not_count():
    of, than = normal(85, 1, 0), normal(84, 9, 1)
    outcome = TESTS["smaller_spread"]([of], [than], 1.0)
    assert outcome.p == pytest.approx(scipy.stats.levene(of.accuracies, than.accuracies, center="median").pvalue)
    assert outcome.effect == pytest.approx(than.std - of.std)
    shifted = [sample(*(np.array(side.accuracies) - 40)) for side in (of, than)]
    together = TESTS["smaller_spread"]([of, shifted[0]], [than, shifted[1]], 1.0)
    assert together.p < outcome.p


def test_a_spread_that_one_far_run_decides_speaks_for_neither_side():
    """STD 10.1 against 5.27, but mean distances from the median of 3.2 against 5: the two disagree."""
    far = sample(*[80.0] * 9, 48.0)
    wide = sample(*[75.0, 85.0] * 5)
    outcome = TESTS["smaller_spread"]([wide], [far], 1.0)
    assert outcome.effect == pytest.approx(32 / 10**0.5 - (250 / 9) ** 0.5)
    assert (outcome.effect > 0, outcome.p) == (True, 1.0)


def test_fisher_on_failures():
    """0 of 10 against 6 of 10: both tables as extreme have C(10, 6)/C(20, 6), so p = 2 · 210/38760 = 0.0108."""
    of, than = sample(*[90.0] * 10), sample(*[60.0] * 10, failures=6)
    outcome = TESTS["fewer_failures"]([of], [than], 1.0)
    assert outcome.p == pytest.approx(2 * 210 / 38760)
    assert (outcome.effect, outcome.text) == (pytest.approx(0.6), "0/10 against 6/10 failed")


@pytest.mark.parametrize(
    ("failures", "planned", "none", "some"),
    [(0, 10, "supported", "refuted"), (1, 10, "refuted", "supported"), (0, 12, "undecided", "undecided")],
)
def test_claims_of_no_failure_need_every_run_and_one_failure_decides(failures, planned, none, some):
    samples = {at("dsgd"): sample(*[90.0] * 10, failures=failures, planned=planned)}
    assert judged(claim("none_fails", than=()), samples)[0] == none
    assert judged(claim("some_fail", than=()), samples)[0] == some


def test_two_runs_without_a_failure_are_too_few():
    """Of 0 in 2 the exact 95 % interval reaches to 1 - 0.025^(1/2) = 84 %."""
    samples = {at("dsgd"): sample(90.0, 91.0)}
    assert judged(claim("none_fails", than=()), samples)[0] == "undecided"
    assert judged(claim("some_fail", than=()), samples)[0] == "undecided"


def test_times_are_compared_with_a_limit():
    fft = sample(80.0, 81.0, 82.0, seconds=(100, 101, 102))
    twice = sample(80.0, 81.0, 82.0, seconds=(190, 200, 210))
    samples = {at("pcgrad"): twice, at("fft"): fft}
    assert judged(claim("at_least_times_as_slow", of=["pcgrad"], limit=1.6), samples)[0] == "supported"
    assert judged(claim("at_most_times_as_slow", of=["pcgrad"], limit=1.6), samples)[0] == "refuted"
    assert judged(claim("at_least_times_as_slow", of=["pcgrad"], limit=1.98), samples)[0] == "undecided"


# ------------------------------------------------------------------ names and samples


def test_what_all_labels_change_is_no_part_of_a_methods_name():
    assert without_common_changes(["fft[debug=tiny]", "dsgd[tau=0.5,debug=tiny]"]) == {
        "fft[debug=tiny]": "fft",
        "dsgd[tau=0.5,debug=tiny]": "dsgd[tau=0.5]",
    }
    spikes = ["fft+spikes[steps=[20, 40],clip=0]", "fft+spikes+gradient_stabilizer[steps=[20, 40]]"]
    assert list(without_common_changes(spikes).values()) == ["fft[clip=0]", "fft+gradient_stabilizer"]


def test_a_changed_key_makes_another_method():
    assert without_common_changes(["dsgd", "dsgd[tau=0.5]"]) == {"dsgd": "dsgd", "dsgd[tau=0.5]": "dsgd[tau=0.5]"}
    assert without_common_changes(["dsgd[tau=0.5]"]) == {"dsgd[tau=0.5]": "dsgd[tau=0.5]"}


def test_a_pool_holds_a_name_s_changed_keys_and_neither_other_slots_nor_ensembles():
    samples = {
        at("fft"): sample(1.0),
        at("fft[lr=0.1]"): sample(2.0),
        at("fft ×3"): sample(9.0),
        at("fft[lr=0.1] ×3"): sample(9.0),
        at("fft+gradient_stabilizer"): sample(9.0),
        at("dsgd"): sample(3.0),
    }
    assert pools(samples, ["fft*", "dsgd"]) == {at("fft*"): sample(1.0, 2.0)}


def test_each_average_of_one_training_is_compared():
    samples = {at("dsgd"): sample(1.0), at("swa/swa3"): sample(2.0), at("swa/swa5"): sample(3.0)}
    names = [one.name for one in comparisons(claim(than=["swa"]), samples)]
    assert names == ["MiniLM on RTE, dsgd against swa/swa3", "MiniLM on RTE, dsgd against swa/swa5"]


def test_samples_of_run_folders():
    """The committed miniature runs: as many planned as their makers plan, and failed ones among the failures."""
    frame = gather(planned("table1"), RESULTS)
    samples = samples_of(frame)
    for place, found in samples.items():
        if "×" in place.method or "/" in place.method:
            continue
        runs = frame[(frame.task == place.column.task) & (frame.method == place.method)]
        done = runs[runs.state == "finished"]
        bad = int((runs.state == "failed").sum()) + int(done.status.isin(["collapsed", "degenerate"]).sum())
        assert (found.planned, len(found.accuracies), found.failures) == (len(runs), len(done), bad)
    assert {"fft", "dsgd", "dsgd[tau=0.5]", "swa/swa3", "swa/swa5", "fft ×3"} <= {place.method for place in samples}


# ------------------------------------------------------------------ the ledger itself


@pytest.fixture(scope="module")
def papers_words():
    return {entry.claim: said_by_the_paper(entry, printed_values(entry.table)) for entry in read_claims()}


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [
        ("DSGD is consistently more accurate", "its tables agree (60 of 60)"),
        ("DSGD has consistently lower STD", "its tables contradict it in 14 of 60: "),
        ("The ensemble of DSGD models is the best", "its tables contradict it in 2 of 48: RoBERTa-large on MultiRC, "),
        ("On imbalance 100:1 DSGD is more accurate", "its tables contradict it in 1 of 20: ViT-base on CIFAR-10 long"),
        (
            "Noise (LNSR, NoisyTune) costs accuracy on MultiRC",
            "its tables contradict it in 1 of 6: RoBERTa-large on RTE",
        ),
        ("With Llama-3.2-1B PCGrad raises the STD", "its tables contradict it in 2 of 6: "),
        ("SWA does not help", "its tables contradict it in 5 of 12: RoBERTa-large on COPA, fft against swa -13.00"),
        ("On pairs of tasks DSGD has the highest", "its tables agree (5 of 5)"),
        ("PCGrad nearly doubles", "its tables do not say"),
    ],
)
def test_what_the_papers_own_tables_say(papers_words, beginning, expected):
    (words,) = [words for name, words in papers_words.items() if name.startswith(beginning)]
    assert words.startswith(expected)


def test_every_claim_names_its_source_and_methods():
    for entry in read_claims():
        assert entry.source.startswith(("DSGD, ", "GradientStabilizer, "))
        assert entry.of
        assert bool(entry.than) == (entry.test not in ("none_fails", "some_fail"))


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("test: better", ValueError, "a claim: test = better: give one of higher_mean, "),
        ("{test: higher_mean, scope: all}", ValueError, "scope = all: give one of every, average"),
        ("{test: higher_mean, methods: [dsgd]}", ConfigKeyError, "methods"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path, line, error, message):
    file = tmp_path / "claims.yaml"
    inner = line.strip("{}")
    file.write_text(f"- {{claim: a claim, source: s, experiment: e, {inner}}}\n")
    with pytest.raises(error, match=message.replace("[", r"\[")):
        read_claims(file)


def test_the_ledger_of_an_experiment_without_runs(tmp_path, capsys):
    assert main(["--experiment", "laptop/smoke", "--results-dir", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert f"{len(read_claims())} not run" in capsys.readouterr().out
    written = pd.read_csv(tmp_path / "claims.csv")
    assert list(written.columns) == ["claim", "source", "ours", "numbers", "runs", "paper"]
    assert "--experiment laptop/smoke" in (tmp_path / "claims.md").read_text()


def test_overrides_choose_other_runs(tmp_path, capsys):
    """With ``debug=tiny`` the four runs are others by id, but what they all change is no part of a method's name."""
    assert main(["--experiment", "laptop/smoke", "--results-dir", str(tmp_path), "debug=tiny"]) == 0
    assert "| DSGD fails less often than fine-tuning | DSGD, section 1 | not run | no run has ended | 0 of 4 |" in (
        capsys.readouterr().out
    )


@pytest.mark.slow
@pytest.mark.parametrize("experiment", sorted({entry.experiment for entry in read_claims()}))
def test_an_experiment_plans_the_methods_of_its_claims(experiment, tmp_path):
    samples = samples_of(collect(experiment, tmp_path))
    for entry in (entry for entry in read_claims() if entry.experiment == experiment):
        assert judged(entry, samples)[:2] == ("not run", "no run has ended"), entry.claim


def test_an_unknown_experiment_is_refused(tmp_path, capsys):
    assert main(["--experiment", "laptop/smok", "--results-dir", str(tmp_path)]) == 2
    assert "laptop/smok" in capsys.readouterr().err


def test_the_ledger_needs_no_torch():
    code = "import experiments.claims, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
