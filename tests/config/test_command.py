"""What Hydra's flags and grammar make of a command line, and what the plan of runs makes of it, are the same."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from dsgd.config.command import PATH_KEYS, literal_path, quoted, read_command
from dsgd.config.compose import expand, is_multirun
from dsgd.config.messages import ConfigErrors, choose_one_of


def runs(*arguments):
    return expand(read_command(arguments))


def problem(*arguments):
    with pytest.raises(ConfigErrors) as caught:
        runs(*arguments)
    (only,) = caught.value.problems
    return only


def value_of(text):
    (parsed,) = OverridesParser.create().parse_overrides([text])
    value = parsed.value()
    return getattr(value, "text", value)


# --- flags ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ("--config-name", "mine"),
        ("-cn", "mine"),
        ("--config-path", "conf"),
        ("--experimental-rerun", "job.pickle"),
        ("--package", "trainer"),
        ("--resolve",),
        ("--config-dir", "no such folder"),
    ],
)
def test_a_flag_that_the_plan_does_not_follow_is_refused_in_one_line(flags, capsys):
    with pytest.raises(SystemExit, match="2"):
        read_command(flags)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("run.py: --")


@pytest.fixture
def own_configs(tmp_path):
    """A folder with an experiment of one's own, and a method whose name conf/ lacks."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ntrainer:\n  lr: 0.123\n")
    return tmp_path


def test_a_config_folder_of_one_s_own_is_planned_as_hydra_composes_it(own_configs):
    (run,) = runs("--config-dir", str(own_configs), "experiment=mine", "seed=7")
    assert run.config.trainer.lr == 0.123
    assert run.config.seed == 7
    assert run.label == "dsgd[lr=0.123]"


def test_a_config_folder_is_forgotten_with_its_command(own_configs):
    runs("--config-dir", str(own_configs), "experiment=mine")
    assert problem("experiment=mine").startswith("experiment = mine: choose one of")
    (usual,) = runs()
    assert usual.config.trainer.lr == 2e-4


def test_an_own_experiment_may_be_a_sweep(own_configs):
    grid = "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 1,2\n"
    (own_configs / "experiment" / "grid.yaml").write_text(grid)
    command = read_command(["--config-dir", str(own_configs), "experiment=grid"])
    assert is_multirun(command)
    assert [run.config.seed for run in expand(command)] == [1, 2]


@pytest.mark.slow
def test_a_run_trains_with_the_config_folder_s_values(command, own_configs, tmp_path):
    done = command("--config-dir", str(own_configs), "experiment=mine", "debug=tiny", "model.layers=1", "tracking=none")
    assert done.returncode == 0, done.stderr
    assert "dsgd[debug=tiny,lr=0.123,layers=1]" in done.stdout


# --- sweeps ---------------------------------------------------------------------------------------------------------


def test_two_spellings_of_a_seed_are_one_run():
    assert [run.id for run in runs("-m", "seed=042,42")] == [run.id for run in runs("seed=42")]


@pytest.mark.parametrize(("spelling", "value"), [("0x1F", None), ("1_0", 10), ("'7'", 7), ("010", 10)])
def test_a_seed_is_a_whole_number_before_it_is_hashed(spelling, value):
    if value is None:
        assert problem(f"seed={spelling}").startswith("seed = 0x1F: give a whole number")
    else:
        (run,) = runs(f"seed={spelling}")
        assert run.config.seed == value
        assert run.id == runs(f"seed={value}")[0].id


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ("seed=glob(*)", "seed is a single value"),
        ("method=glob(nothing*)", "fits no option"),
        ("seed=range(1,1)", "holds no value"),
        ("seed=range(5,1)", "holds no value"),
        ("seed=range(1,5,0)", "must not be 0"),
        ("seed=range(1,1000000)", "999,999 values"),
        ("seed=range(1,100000000000000)", "a sweep takes 20,000 runs"),
        ("experiment=laptop/smoke,laptop/table2", "one at a time"),
    ],
)
def test_a_sweep_without_values_or_with_far_too_many_is_one_line(sweep, words):
    assert words in problem("-m", sweep)


def test_a_product_of_sweeps_is_counted_before_it_is_composed():
    told = problem("-m", "seed=range(1,1000)", "trainer.lr=range(1,100)")
    assert "seed (999) × trainer.lr (99) is 98,901 runs" in told


def test_a_glob_sweeps_over_the_options_of_a_group():
    labels = [run.label for run in runs("-m", "method=glob(dsgd_*)")]
    assert "dsgd_random" in labels
    assert "dsgd" not in labels


def test_a_launcher_without_workers_is_refused():
    assert problem("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0").startswith("hydra.launcher.n_jobs = 0")


# --- paths and quotes -----------------------------------------------------------------------------------------------

ODD_PATHS = [
    "andré/x",
    "results/runs/minilm/bbc_news/dsgd,schedule=cosine,tau=0.5/seed42-98f24de622",
    "with space",
    'with "quotes"',
    "back\\slash",
    "trailing\\",
    "a(b)",
    "ünï/コ",
    "semi;colon",
    "a{b}",
    "a#b",
    "[list]",
    "null/x",
]


@pytest.mark.parametrize("key", PATH_KEYS)
@pytest.mark.parametrize("path", ODD_PATHS)
def test_a_path_is_taken_as_it_is_written(key, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if path == "[list]" or "," in path:  # Hydra's grammar reads these as lists: they are paths where they exist
        (tmp_path / path).mkdir(parents=True)
    assert value_of(literal_path(f"{key}={path}")) == path


@pytest.mark.parametrize("spelling", ["~/x", '"~/x"', "'~/x'"])
def test_the_home_folder_is_expanded_whatever_the_quotes(spelling, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert value_of(literal_path(f"results_dir={spelling}")) == str(tmp_path / "x")


def test_a_sweep_over_paths_stays_a_sweep(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert literal_path("task.path=a.csv,b.csv", multirun=True) == "task.path=a.csv,b.csv"
    swept = literal_path("task.path=~/a.csv,~/b.csv", multirun=True)
    assert swept == f'task.path="{tmp_path}/a.csv","{tmp_path}/b.csv"'


@pytest.mark.parametrize("text", ["results_dir=", "model.path=null", "task.label=~/x", "seed=1"])
def test_other_overrides_are_left_alone(text):
    assert literal_path(text) == text


@pytest.mark.parametrize("value", ["é", "a=b", "[a, é]", "{x"])
def test_an_unreadable_value_is_answered_with_the_line_to_type(value):
    told = problem(f"task.label={value}")
    typed = told.partition("; type ")[2].removeprefix("'").removesuffix("'")
    assert typed.startswith("task.label=")
    assert OverridesParser.create().parse_overrides([typed])


def test_quotes_survive_the_grammar():
    for text in ("plain", 'with "double"', "with 'single'", "end\\", '\\"', "x" * 1000):
        assert value_of(f"task.label={quoted(text)}") == text


# --- long, deep, endless --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override",
    [
        "seed=" + "9" * 10_000,
        "task.text=" + "[" * 1500 + "]" * 1500,
        "task.label=" + "x" * 100_000 + "é",
        "model=" + "x" * 100_000,
        "schedule.tau=" + "9" * 300,
    ],
)
def test_a_monstrous_override_is_one_short_line(override):
    told = problem(override)
    assert len(told) < 1000
    assert told.startswith(override.partition("=")[0])


@pytest.mark.parametrize(
    "override",
    [
        "seed=10000000000000000",
        "model.layers=1000000000",
        "averaging.checkpoints=1000000000",
        "trainer.batch_size=10000000000",
        "runtime.threads=1000000",
        "trainer.max_steps=99999999999",
        "task.max_length=100000000",
    ],
)
def test_every_whole_number_has_an_upper_end(override):
    told = problem("method=swa", override)
    assert told.startswith(override.replace("=", " = "))
    assert "at most" in told


def test_a_results_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    assert problem(f"results_dir={tmp_path}/file/x").endswith("file is no folder")
    assert "too long" in problem(f"results_dir={'x' * 300}")


def test_a_choice_among_many_names_the_nearest_first_and_at_most_eight():
    options = [f"option_{number}" for number in range(28)] + ["dsgd"]
    told = choose_one_of("dsg", options)
    assert told.startswith("choose one of dsgd, ")
    assert told.count(",") == 8
    assert told.endswith("… (29 in all)")
    assert choose_one_of("x", ["a", "b"]) == "choose one of a, b"
