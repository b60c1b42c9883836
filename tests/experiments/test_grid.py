"""The grid of an experiment equals run.py's expansion, and its memory on disk is never stale or trusted when broken."""

import shutil

import pytest

from dsgd.config import tree
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from experiments import grid as module
from experiments.grid import grid


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path))
    return tmp_path / "grids"


@pytest.fixture
def compositions(monkeypatch):
    """How often something was composed."""
    calls, compose = [], module._compose
    monkeypatch.setattr(module, "_compose", lambda *arguments: calls.append(arguments) or compose(*arguments))
    return calls


def test_a_grid_is_what_run_py_would_train(cache):
    runs = expand(read_command(["experiment=laptop/smoke"]))
    found = grid("laptop/smoke")
    assert [(run.id, run.cell_id, run.label, run.config.seed) for run in runs] == [
        (run.id, run.cell_id, run.method, run.seed) for run in found
    ]


def test_each_run_s_overrides_name_it_alone(cache):
    for run in grid("laptop/gradient_spikes"):
        (again,) = expand(read_command(run.overrides))
        assert again.id == run.id


def test_a_remembered_grid_is_the_same_and_composes_nothing(cache, compositions):
    assert grid("laptop/smoke") == grid("laptop/smoke")
    assert len(compositions) == 1


def test_overrides_are_another_grid(cache, compositions):
    assert grid("laptop/smoke")[0].id != grid("laptop/smoke", ["trainer.epochs=1"])[0].id
    assert len(compositions) == 2


@pytest.mark.parametrize("content", ["", "[{", "[1]", '[{"id": "x"}]', "null", '[{"facts": {}}]'])
def test_a_damaged_memory_is_made_again(cache, content):
    whole = grid("laptop/smoke")
    (file,) = cache.iterdir()
    file.write_text(content)
    assert grid("laptop/smoke") == whole


def test_a_grid_that_cannot_be_remembered_is_composed(cache):
    cache.write_text("no folder")
    assert len(grid("laptop/smoke")) == 4


def test_an_edit_of_conf_is_seen(cache, compositions, tmp_path, monkeypatch):
    copy = tmp_path / "conf"
    shutil.copytree(tree.CONF, copy)
    monkeypatch.setattr(tree, "CONF", copy)
    before = module._key("laptop/smoke", ())
    (copy / "method" / "fft.yaml").open("a").write("# a word\n")
    assert module._key("laptop/smoke", ()) != before


def test_nodes_of_models_and_tasks_are_assembled_as_they_compose():
    """What ``assemble`` takes for granted: a model's or a task's YAML sets nothing outside its own node."""
    with tree.loader():
        for overrides in (
            ("model=minilm", "task=bbc_news", "method=lora"),
            ("method=dsgd", "task=bbc_news", "model=minilm", "model.layers=2", "task.max_length=16", "seed=1"),
            ("experiment=laptop/gradient_spikes", "task=bbc_news", "model=minilm", "debug=tiny"),
            ("method=dsgd", "schedule=static", "schedule.gamma=0.3", "seeds.dropout=3", "task=copa", "model=minilm"),
            ("task=digits", "task.imbalance.kind=step", "task.imbalance.factor=0.1"),
            ("task=multitask", "task.tasks=[mrpc,rte]", "trainer.lr=1e-5"),
        ):
            assert tree.typed(tree.assemble(overrides)) == tree.typed(tree.compose(overrides))
