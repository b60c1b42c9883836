"""Every preset of ``conf/method/``, one row each: it composes, builds, trains, accumulates and resumes as it should.

A preset without a row fails. Runs are shared between the checks, so the first check of a method pays for its training.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dsgd.config import tree
from dsgd.config.command import read_command
from dsgd.config.compose import Run, expand
from dsgd.config.parts import SLOTS
from dsgd.config.validation import problems
from dsgd.data import load_task
from dsgd.evaluation import Predictions
from dsgd.execution import execute
from dsgd.methods import build
from dsgd.runs import folder_of
from dsgd.schedules import LinearSchedule
from shared import TINY, losses


@dataclass(frozen=True)
class Row:
    """What is particular about a method."""

    statistic: str  # its own key in the history or the metrics
    overrides: tuple[str, ...] = ()  # what a tiny run needs so that the method can act in it
    noiseless: dict[str, Any] = field(default_factory=dict)  # stills what it draws, to compare micro-batches by
    whole_window: bool = False  # accumulation is refused
    resumes: bool = False  # a part of it has a state of its own


TWO_BLOCKS = ("model.layers=2",)

ROWS = {
    "adagn": Row("adagn/scale_median", resumes=True),
    "adagn_adaclip": Row("adagn/clipped_share", resumes=True),
    "adagn_momentum_reset": Row("adagn/reset", ("transform.reset_every=3",), resumes=True),
    "adalora": Row("adalora/rank_sum", resumes=True),
    "cagrad": Row("cagrad/cosine"),
    "class_balanced": Row("class_balanced/weight"),
    "dsgd": Row("train/gamma"),
    "dsgd_confidence": Row("confidence/weight"),
    "dsgd_evaluation_mode": Row("train/gamma"),
    "dsgd_random": Row("random_correct/chosen_correct", whole_window=True),
    "dsgd_static_third": Row("train/gamma"),
    "dsgd_uniform": Row("uniform_shrink/weight", whole_window=True),
    "ema": Row("averaging/relative_change", resumes=True),
    "fft": Row("train/gradient_norm"),
    "focal": Row("focal/weight"),
    "gradient_stabilizer": Row("stabilizer/scale_median", resumes=True),
    "ia3": Row("ia3/scale_deviation"),
    "label_smoothing": Row("train/loss_wrong"),
    "ldam_drw": Row("ldam/within_margin"),
    "lnsr": Row("train/regularizer", (*TWO_BLOCKS, "regularizer.rho=1.0"), {"regularizer": {"rho": 0.0}}, resumes=True),
    "logit_adjustment": Row("logit_adjustment/wrong"),
    "lora": Row("lora/update_norm"),
    "lp_ft": Row("initialization/relative_change"),
    "noisytune": Row("initialization/relative_change"),
    "noisytune_literal": Row(
        "initialization/relative_change"
    ),  # five classes: no tensor has one element, so nothing is NaN
    "ohem": Row("ohem/kept", whole_window=True),
    "pcgrad": Row("pcgrad/cosine"),
    "r3f": Row(
        "train/regularizer",
        ("regularizer.epsilon=0.1", "regularizer.weight=1e3"),
        {"regularizer": {"epsilon": 0.0}},
        resumes=True,
    ),
    "reinit": Row("initialization/relative_change", TWO_BLOCKS),
    "sam": Row("sam/gradient_norm"),
    "swa": Row("accuracy_swa3", resumes=True),
}

#: Overrides, the label they make, and what the history or the metrics must hold.
COMBINATIONS = [
    (
        ("method=dsgd", "averaging=swa", "transform=gradient_stabilizer"),
        "dsgd+gradient_stabilizer+swa",
        {"train/gamma", "stabilizer/scale_median", "accuracy_swa3"},
    ),
    (
        ("method=dsgd", "adapter=lora", "gradient=pcgrad"),
        "dsgd+lora+pcgrad",
        {"train/gamma", "lora/update_norm", "pcgrad/cosine"},
    ),
    (
        ("method=focal", "adapter=ia3", "gradient=sam", "averaging=ema"),
        "focal+ia3+sam+ema",
        {"focal/weight", "ia3/scale_deviation", "sam/gradient_norm"},
    ),
    (
        ("method=adalora", "gradient=cagrad", "regularizer=r3f", "initialization=noisytune"),
        "adalora+noisytune+cagrad+r3f",
        {"adalora/rank_sum", "cagrad/cosine", "train/regularizer"},
    ),
    (
        ("method=fft", "gradient=spikes", "gradient.steps=[2]", "transform=gradient_stabilizer"),
        "fft+spikes+gradient_stabilizer",
        {"spikes/factor", "stabilizer/scale_median"},
    ),
]

every_method = pytest.mark.parametrize("name", ROWS)

#: Windows of 20 and 14 examples, exact numbers, and no evaluation in between.
EXACT = (
    "debug.examples=34",
    "runtime.precision=fp32",
    "model.dropout=0",
    "trainer.batch_size=20",
    "trainer.evaluate_every=100",
)


@cache
def tiny(name):
    """The method's run as the command line names it, shrunk."""
    (run,) = expand(read_command([f"method={name}", *TINY, *EXACT, *ROWS[name].overrides]))
    return run


def altered(run, **groups):
    """``run`` with other values in some groups of its config; composing anew would take most of a test's time."""
    changed = {group: replace(getattr(run.config, group), **values) for group, values in groups.items()}
    return Run(replace(run.config, **changed), run.label)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function from a run to its finished folder; the same run is trained once."""
    results = str(tmp_path_factory.mktemp("runs"))

    def get(run):
        placed = Run(replace(run.config, results_dir=results), run.label)
        outcome = execute(placed)
        assert outcome in ("finished", "skipped"), folder_of(placed).reason
        return folder_of(placed)

    return get


@pytest.fixture(scope="module", autouse=True)
def _tokenized_once():
    """All runs here read the same data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsgd.training.load_task", remembered(load_task))
        yield


def remembered(function):
    results = {}

    def call(task, data, tokenizer, *seeds):
        key = (repr(task), repr(data), seeds)
        if key not in results:
            results[key] = function(task, data, tokenizer, *seeds)
        return results[key]

    return call


def scores(folder):
    return Predictions.load(folder.path / "predictions.parquet").scores


def test_every_preset_has_a_row():
    assert set(ROWS) == {path.stem for path in (tree.CONF / "method").glob("*.yaml")}


@every_method
def test_it_composes_under_its_own_label_and_builds_all_its_parts(name):
    """Its row says truly what the parts are like: so none with a state goes without the check of a resumed run."""
    run, row = tiny(name), ROWS[name]
    assert run.label.split("[")[0] == name
    context = {
        "schedule": LinearSchedule(10),
        "total_steps": 10,
        "class_counts": [30, 20, 10],
        "adapter_seed": 1,
        "noise_seed": 2,
    }
    parts = [build(slot, getattr(run.config, slot), **context) for slot in SLOTS]
    assert row.resumes == any(hasattr(part, "state_dict") for part in parts)
    assert row.whole_window == run.config.loss.needs_whole_window()


@every_method
def test_it_trains_to_the_end_and_tells_what_it_did(name, trained):
    folder = trained(tiny(name))
    steps = [record for record in folder.history if "train/loss" in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    assert np.isfinite(losses(folder)).all()
    assert np.isfinite(scores(folder)).all()
    told = [row[ROWS[name].statistic] for row in (*folder.history, folder.metrics) if ROWS[name].statistic in row]
    assert told
    assert np.isfinite(told).all()


@pytest.mark.parametrize("name", [name for name in ROWS if name != "fft"])
def test_it_is_not_full_fine_tuning(name, trained):
    """A part that is chosen but does nothing would pass for a null result."""
    run = tiny(name)
    plain = altered(tiny("fft"), model={"layers": run.config.model.layers})
    assert np.abs(scores(trained(run)) - scores(trained(plain))).max() > 1e-5


@pytest.mark.parametrize(
    ("overrides", "label", "statistics"), COMBINATIONS, ids=[label for _, label, _ in COMBINATIONS]
)
def test_parts_of_different_slots_act_together(overrides, label, statistics, trained):
    (run,) = expand(read_command([*overrides, *TINY, *EXACT]))
    folder = trained(run)
    assert run.label.split("[")[0] == label
    (first,) = [record for record in folder.history if record["step"] == 1]
    assert statistics <= {*first, *folder.metrics}
    assert np.isfinite(losses(folder)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.whole_window])
def test_accumulation_changes_nothing_but_rounding(name, trained):
    """METHODS 17 (2): 20 examples at once, and 10 and 10, and 10 and 4 of the last window's 14."""
    run = altered(tiny(name), **ROWS[name].noiseless)
    whole, split = trained(run), trained(altered(run, trainer={"batch_size": 10, "accumulation": 2}))
    assert whole.path != split.path
    assert losses(split) == pytest.approx(losses(whole), rel=1e-5)
    assert scores(split) == pytest.approx(scores(whole), abs=1e-4)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.whole_window])
def test_accumulation_is_refused_where_the_whole_window_counts(name):
    (problem,) = problems(altered(tiny(name), trainer={"accumulation": 2}).config)
    assert problem.startswith("trainer.accumulation = 2")
    assert "the whole window" in problem


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.resumes])
def test_a_resumed_run_ends_as_an_uninterrupted_one(name, trained, tmp_path, monkeypatch):
    """Stopped in step 3 of 4, resumed after step 2; noise on."""
    whole = trained(tiny(name))
    run = altered(tiny(name), runtime={"checkpoint_every": 2})
    run = Run(replace(run.config, results_dir=str(tmp_path)), run.label)
    with monkeypatch.context() as patch:
        patch.setattr("dsgd.training.Training._evaluation_is_due", stop_at_3)
        assert execute(run) == "failed"
    folder = folder_of(run)
    assert (folder.path / "checkpoint" / "resume.pt").exists(), folder.reason
    assert execute(run) == "finished", folder.reason
    assert losses(folder) == losses(whole)
    assert np.array_equal(scores(folder), scores(whole))


def stop_at_3(_training, step):
    if step.number == 3:
        raise RuntimeError("stopped by the test")
    return False
