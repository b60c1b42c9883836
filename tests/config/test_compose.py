"""The real config tree, composed: what a command line expands to and what it is told when it is wrong."""

import subprocess
import sys

import pytest
from hydra.core.config_store import ConfigStore

from dsgd.config import parts, schema, tree
from dsgd.config.command import read_command
from dsgd.config.compose import expand, identify, is_multirun
from dsgd.config.messages import ConfigErrors


def runs(*arguments):
    return expand(read_command(arguments))


def errors(*arguments):
    with pytest.raises(ConfigErrors) as caught:
        runs(*arguments)
    return caught.value.problems


def test_the_default_is_dsgd_on_the_embedded_model_and_task():
    (run,) = runs()
    config = run.config
    assert (config.model.name, config.task.name, run.label, config.seed) == ("minilm", "bbc_news", "dsgd", 42)


def test_a_preset_fills_its_slot_and_the_command_line_has_the_last_word():
    (preset,) = runs("method=dsgd")
    (overridden,) = runs("method=dsgd", "loss=cross_entropy")
    assert isinstance(preset.config.loss, parts.DSGD)
    assert isinstance(overridden.config.loss, parts.CrossEntropy)


def test_a_sweep_expands_to_the_product_in_order():
    found = [(run.label, run.config.seed) for run in runs("-m", "method=fft,dsgd", "seed=42,52")]
    assert found == [("fft", 42), ("fft", 52), ("dsgd", 42), ("dsgd", 52)]


def test_a_range_of_seeds_sweeps():
    assert [run.config.seed for run in runs("-m", "seed=range(3)")] == [0, 1, 2]


def test_duplicates_of_a_typed_schedule_collapse():
    """γ is read by the static schedule alone, so linear × two values of γ is one run."""
    labels = [run.label for run in runs("-m", "schedule=linear,static", "schedule.gamma=.1,.3")]
    assert labels == ["dsgd", "dsgd[schedule=static,gamma=0.1]", "dsgd[schedule=static,gamma=0.3]"]


def test_overrides_may_stand_on_both_sides_of_a_flag():
    command = read_command(["method=fft", "-m", "seed=1,2", "--config-dir", ".", "debug=tiny"])
    assert command.flags == ("-m", "--config-dir", ".")
    assert command.overrides == ("method=fft", "seed=1,2", "debug=tiny")
    assert command.multirun


@pytest.mark.parametrize("shows", [("--cfg", "job"), ("--info", "config")])
def test_a_sweep_is_not_shown(shows, capsys):
    with pytest.raises(SystemExit, match="2"):
        read_command([*shows, "-m", "seed=1,2"])
    assert "leave --multirun out" in capsys.readouterr().err


def test_an_experiment_is_a_grid_without_the_flag_and_the_command_line_wins():
    command = read_command(["experiment=laptop/smoke", "seed=7"])
    assert is_multirun(command)
    assert [(run.label, run.config.seed) for run in expand(command)] == [("fft", 7), ("dsgd", 7)]


@pytest.mark.parametrize(
    ("argument", "parts"),
    [
        ("method=dsdg", ["method = dsdg", "did you mean dsgd?"]),
        ("schedule.tau=1.5", ["schedule.tau = 1.5", "[0, 1]"]),
        ("trainer.lr=abc", ["trainer.lr = abc", "a number above 0"]),
        ("trainer.lr=0", ["trainer.lr = 0", "a number above 0"]),
        ("trainer.epochs=1.5", ["trainer.epochs = 1.5", "a whole number"]),
        ("trainer.learning_rate=1", ["trainer.learning_rate", "did you mean trainer.lr?"]),
        ("lr=1", ["lr: no such key", "did you mean trainer.lr?"]),
        ("runtime.precision=fp23", ["runtime.precision = fp23", "auto, fp32, bf16", "did you mean fp32?"]),
        ("runtime.device=gpu", ["runtime.device = gpu", "cuda"]),
        ("runtime.isolate=perhaps", ["runtime.isolate = perhaps", "true or false"]),
        ("task.imbalance.kind=longtial", ["did you mean longtail?"]),
        ("task.imbalance.factor=0", ["task.imbalance.factor = 0", "(0, 1]"]),
        ("task.imbalance=0.1", ["task.imbalance", "task.imbalance.factor"]),
        ("loss.name=cross_entropy", ["loss.name", "loss=cross_entropy"]),
        ("trainer.processes=2", ["trainer.processes = 2", "torchrun"]),
        ("seed=1,2", ["seed=1,2", "-m"]),
        ("no equals sign", ["no equals sign", "key=value"]),
        ("trainer.lr=inf", ["trainer.lr = inf", "a number above 0"]),
        ("model.layers=7", ["model.layers = 7", "has 6"]),
        ("task.max_length=1000", ["task.max_length = 1000", "512"]),
        ("results_dir=", ["results_dir", "give a folder"]),
        ("method=null", ["method = null", "choose one of", "in all"]),
        ("loss=null", ["loss = null", "focal"]),
        ("model.name=foo", ["model.name = foo", "model=foo"]),
        ("+seed=3", ["+seed", "seed="]),
        ("schedule.tau=interval(0,1)", ["interval", "range"]),
        ("hydra.nonsense=1", ["nonsense"]),
        ("+trainer.momentum=1", ["trainer.momentum", "no such key"]),
    ],
)
def test_one_mistake_gives_one_line_that_names_it(argument, parts):
    (problem,) = errors(argument)
    for part in parts:
        assert part in problem


def test_a_timeout_needs_isolation():
    (problem,) = errors("runtime.isolate=false", "runtime.timeout=5")
    assert problem.startswith("runtime.timeout = 5")


def test_all_mistakes_are_reported_together():
    found = errors("task=bbc_new", "seed=x", "schedule.tau=2", "trainer.lrr=1")
    assert [problem.split(" ")[0].rstrip(":") for problem in found] == ["task", "seed", "schedule.tau", "trainer.lrr"]


def test_every_value_of_a_sweep_is_checked():
    (problem,) = errors("-m", "seed=42,x")
    assert problem.startswith("seed = x")


def test_every_combination_of_a_sweep_is_checked():
    """An ablation that divides by window sums cannot be accumulated; the plain method can."""
    found = errors("-m", "loss.normalization=full_m,sum_w", "trainer.accumulation=1,2")
    assert len(found) == 1
    assert found[0].startswith("trainer.accumulation = 2")


def test_a_config_survives_its_file(tmp_path):
    (run,) = runs("schedule=cosine", "schedule.tau=0.5", "seeds.dropout=3", "task.imbalance.kind=step")
    (tmp_path / "config.yaml").write_text(tree.to_yaml(run.config))
    assert tree.load(tmp_path / "config.yaml") == run.config


def test_every_part_has_a_yaml_and_a_schema():
    schema.register()
    for slot, kinds in parts.PARTS.items():
        stored = {name.removesuffix(".yaml") for name in ConfigStore.instance().list(f"schema/{slot}")}
        files = {path.stem for path in (tree.CONF / slot).glob("*.yaml")}
        assert stored == {part().name for part in kinds}
        assert files >= stored


@pytest.mark.parametrize("name", sorted(path.stem for path in (tree.CONF / "method").glob("*.yaml")))
def test_every_method_preset_composes_under_its_own_label(name):
    (run,) = runs(f"method={name}")
    assert run.label == name


def test_composing_imports_no_torch():
    code = (
        "import sys; from dsgd.config.command import read_command; from dsgd.config.compose import expand;"
        "from dsgd import runs, execution, console;"
        "expand(read_command(['-m', 'method=fft,dsgd']));"
        "assert not {'torch', 'transformers', 'pandas', 'wandb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_running_application_s_config_identifies_the_same_run():
    """What a Hydra job composes and what the expansion composes is one run."""
    (run,) = runs("method=fft", "trainer.clip=0.5")
    with tree.loader():
        composed = tree.compose(["method=fft", "trainer.clip=0.5"])
    assert identify(composed) == run
