"""Whole runs of tiny checkpoints from a local folder, through the real training, and what refuses one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_models import EVERY, checkpoint

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.messages import ConfigErrors
from shared import losses

QUESTIONS = {
    "premise": ["w1 w2", "w3", "w4 w5 w6", "w7", "w8 w9", "w3 w1"],
    "choice1": ["w2", "w4 w4", "w1", "w9 w3", "w5", "w6"],
    "choice2": ["w3 w8 w1", "w5", "w2 w2", "w6", "w1", "w7 w4"],
    "question": ["cause", "effect"] * 3,
    "label": [0, 1, 1, 0, 0, 1],
}
CARD = """---
configs:
- config_name: copa
  data_files:
  - {split: train, path: copa/train-*}
  - {split: validation, path: copa/validation-*}
---
"""


@pytest.fixture
def copa(tmp_path):
    """A mirror with a few questions of COPA's form."""
    folder = tmp_path / "mirror/aps/super_glue/copa"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        pq.write_table(pa.table(QUESTIONS), folder / f"{split}-00000-of-00001.parquet")
    (folder.parent / "README.md").write_text(CARD)
    return ("task=copa", f"data.root={tmp_path / 'mirror'}", "task.max_length=32")


def local(path, *overrides):
    return ("model=local", f"model.path={path}", "model.layers=null", "debug.max_steps=2", *overrides)


@pytest.mark.parametrize("name", EVERY)
def test_multiple_choice_trains(train, copa, name):
    """Two scores an example from one scorer; the run's table holds both."""
    folder = train(*local(checkpoint(name)), *copa, "diagnostics=representations")
    assert folder.metrics["n_train"] == 6
    assert np.isfinite(losses(folder)).all()
    found = np.load(folder.path / "representations.npz")
    assert found["labels"].tolist() == [0] * 5 + [1] * 5, "five questions' wrong choices and right ones"
    assert np.bincount(found["rows"]).max() == 2


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("llama", ("method=lnsr", "adapter=lora")),
        ("qwen3", ("method=lnsr", "adapter=lora")),
        ("roberta", ("method=lp_ft",)),
        ("llama", ("method=r3f",)),
    ],
)
def test_parts_of_methods_train_it(train, copa, name, method):
    folder = train(*local(checkpoint(name)), *copa, *method)
    assert np.isfinite(losses(folder)).all()


def test_a_local_folder_trains_on_a_task_of_one_text(train):
    folder = train(*local(checkpoint("llama")))
    assert folder.metrics["model"].startswith("llama-"), "the folder's name and digits of its content"
    assert np.isfinite(losses(folder)).all()


def test_two_folders_are_two_runs():
    """By id, by cell and by the model's name in tables."""
    one, other = (
        expand(read_command(["model=local", f"model.path={checkpoint(name)}"]))[0] for name in ("llama", "qwen3")
    )
    assert one.id != other.id
    assert one.cell_id != other.cell_id
    assert one.config.model.shown != other.config.model.shown


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["model=local"], "model.path = null: model=local needs the folder of a saved model"),
        (["model=local", "model.path=/no/where"], "model.path = /no/where: no such folder"),
        (["model=roberta_large", "model.layers=25"], "model.layers = 25: model=roberta_large has 24"),
        (["model=roberta_base", "task.max_length=513"], "task.max_length = 513: model=roberta_base takes 512"),
    ],
)
def test_what_cannot_run_is_refused_before_it_does(overrides, problem):
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(overrides))
    (found,) = caught.value.problems
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("model", "lr", "weight_decay", "betas", "eps"),
    [
        ("roberta_large", 2e-5, 0.1, (0.9, 0.98), 1e-6),
        ("roberta_base", 2e-5, 0.1, (0.9, 0.98), 1e-6),
        ("llama_3_2_1b", 2e-5, 0.01, (0.9, 0.999), 1e-8),
        ("qwen3_0_6b", 2e-5, 0.01, (0.9, 0.999), 1e-8),
        ("modernbert_base", 2e-5, 0.01, (0.9, 0.999), 1e-8),
        ("deberta_v3_base", 2e-5, 0.01, (0.9, 0.999), 1e-8),
    ],
)
def test_a_model_brings_its_recipe(model, lr, weight_decay, betas, eps):
    (run,) = expand(read_command([f"model={model}"]))
    trainer = run.config.trainer
    assert (trainer.lr, trainer.batch_size, trainer.weight_decay) == (lr, 20, weight_decay)
    assert ((trainer.beta1, trainer.beta2), trainer.eps) == (betas, eps)
