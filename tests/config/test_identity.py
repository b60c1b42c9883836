"""Ids, cells and labels: what makes two command lines the same run."""

import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.identity import changed_keys


def run(*arguments):
    (found,) = expand(read_command(arguments))
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["method=dsgd"], ["method=fft", "loss=dsgd"]),
        (["method=fft"], ["method=fft", "schedule.tau=0.5"]),
        (["method=dsgd"], ["method=dsgd", "schedule.gamma=0.5"]),
        (["schedule=static"], ["schedule=static", "schedule.tau=0.5"]),
        ([], ["runtime.device=cpu", "runtime.threads=1", "runtime.timeout=9", "tracking=none"]),
        ([], ["loss.backend=reference"]),
        ([], ["results_dir=elsewhere", "force=true", "evaluation.near_tie=0.1"]),
        (["trainer.max_steps=5"], ["trainer.max_steps=5", "trainer.epochs=9"]),
        (["task.imbalance.kind=none"], ["task.imbalance.kind=none", "seeds.subset=3"]),
        (["model.recipe.lr=3e-5"], ["trainer.lr=3e-5"]),
    ],
)
def test_keys_that_nothing_reads_do_not_change_the_run(one, other):
    assert run(*one).id == run(*other).id


@pytest.mark.parametrize(
    "argument",
    [
        "method=fft",
        "schedule=cosine",
        "schedule.tau=0.5",
        "trainer.lr=3e-5",
        "trainer.clip=0",
        "trainer.accumulation=2",
        "runtime.precision=fp32",
        "task.max_length=64",
        "task.imbalance.factor=0.9",
        "task.imbalance.subset_seed=1",
        "model.layers=2",
        "model.dropout=0",
        "debug=tiny",
        "loss.ties=argmax",
        "loss.label_smoothing=0.1",
    ],
)
def test_keys_that_change_numbers_change_the_cell(argument):
    assert run(argument).cell_id != run().cell_id


@pytest.mark.parametrize("argument", ["seed=52", "seeds.data_order=7", "seeds.subset=3"])
def test_seeds_change_the_run_and_not_the_cell(argument):
    assert run(argument).id != run().id
    assert run(argument).cell_id == run().cell_id
    assert run(argument).label == "dsgd"


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ([], "dsgd"),
        (["method=fft"], "fft"),
        (["schedule.tau=0.5"], "dsgd[tau=0.5]"),
        (["schedule=cosine", "schedule.tau=0.5"], "dsgd[schedule=cosine,tau=0.5]"),
        (["method=fft", "debug=tiny"], "fft[debug=tiny]"),
        (["debug=tiny", "debug.full_evaluation=true"], "dsgd[debug=tiny,full_evaluation=true]"),
        (["method=fft", "loss=dsgd"], "fft+dsgd"),
        (["method=dsgd", "loss=focal"], "fft+focal"),
        (["method=pcgrad", "gradient=plain"], "fft"),
        (["trainer.clip=0"], "dsgd[clip=0]"),
        (["trainer.lr=3e-5", "model.layers=2"], "dsgd[layers=2,lr=3e-05]"),
        (["runtime.threads=1", "tracking=none"], "dsgd"),
    ],
)
def test_the_label_says_what_differs_from_the_preset(arguments, label):
    assert run(*arguments).label == label


def test_a_key_at_its_default_is_no_part_of_the_identity():
    """So that adding a key to the schema never orphans a finished run."""
    assert "trainer.warmup" not in changed_keys(run().config)
    assert changed_keys(run("trainer.warmup=0.2").config)["trainer.warmup"] == 0.2


@pytest.mark.parametrize(
    ("arguments", "pinned"),
    [
        ("", "a940e7bcba"),
        ("method=fft", "b498330c73"),
        ("method=focal", "9ec7a88d59"),
        ("method=lnsr", "e81974e5b8"),
        ("method=noisytune", "1662d115b9"),
        ("method=pcgrad", "a2f1042e8c"),
        ("method=swa", "611e8d6223"),
        ("method=gradient_stabilizer", "7967aebbeb"),
        ("method=lora", "0d5419f855"),
        ("method=adalora", "36eac74e49"),
        ("method=ia3", "2c1cf17bdd"),
        ("method=sam", "2aea6785e9"),
        ("method=dsgd adapter=lora", "1bcf1419fb"),
        ("method=dsgd averaging=swa transform=gradient_stabilizer", "e75ba3400c"),
        ("schedule=cosine schedule.tau=0.5", "7144c73013"),
        ("schedule=static schedule.gamma=0.3", "498d627c95"),
        ("seed=52", "05ad756182"),
        ("seeds.data_order=7", "f4153c23b2"),
        ("trainer.batch_size=10 trainer.accumulation=2", "3bd85ee655"),
        ("debug=tiny", "3a7e7c1e1b"),
        ("task.imbalance.kind=none", "62d2dfd4a7"),
        ("model.layers=3 model.dropout=0", "7d4abc965b"),
    ],
)
def test_ids_stay_as_they_are(arguments, pinned):
    """An id that changes orphans finished runs. Where numbers change on purpose, raise SCHEMA_VERSION and pin anew."""
    assert run(*arguments.split()).id == pinned
