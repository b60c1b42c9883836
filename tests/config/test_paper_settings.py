"""What ``model=… task=…`` resolves to, against the paper's settings as METHODS 0.1 and 2 put them together."""

import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand

#: Table 4 by hand: length, epochs, optimiser steps of an epoch at 20 examples a step times epochs, rows of the splits.
TASKS = {
    "multirc": (512, 6, 8178, 27243, 4848),
    "rte": (512, 10, 1250, 2490, 277),
    "copa": (256, 10, 200, 400, 100),
    "boolq": (512, 10, 4720, 9427, 3270),
    "cola": (256, 3, 1284, 8551, 1043),
    "mrpc": (256, 3, 552, 3668, 408),
}

#: lr, AdamW's beta1, beta2, eps and weight decay. The paper gives a grid of rates; 2e-5 is the starting value.
MODELS = {
    "roberta_large": (2e-5, 0.9, 0.98, 1e-6, 0.1),
    "llama_3_2_1b": (2e-5, 0.9, 0.999, 1e-8, 0.01),
}


def config_of(*arguments):
    (run,) = expand(read_command(arguments))
    return run.config


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_and_task_resolve_to_the_paper_s_settings(model, task):
    length, epochs, steps, train, evaluation = TASKS[task]
    config = config_of(f"model={model}", f"task={task}", "method=dsgd", "seed=42")
    trainer = config.trainer
    assert (config.task.max_length, trainer.epochs) == (length, epochs)
    assert (trainer.lr, trainer.beta1, trainer.beta2, trainer.eps, trainer.weight_decay) == MODELS[model]
    assert (trainer.batch_size, trainer.accumulation, trainer.processes) == (20, 1, 1)
    assert (config.task.train_examples, config.task.evaluation_examples) == (train, evaluation)
    assert epochs * -(-train // 20) == steps
    assert (trainer.warmup, trainer.clip, config.schedule.name.value, config.schedule.tau) == (0.1, 1.0, "linear", 1.0)
    assert config.loss.name == "dsgd"


def test_copa_is_multiple_choice_and_the_others_are_pairs_or_sentences():
    assert config_of("task=copa").task.form.value == "multiple_choice"
    assert {config_of(f"task={task}").task.form.value for task in TASKS if task != "copa"} == {"single"}


def test_revisions_of_the_data_are_pinned():
    """Whole commit hashes of the hub's repositories."""
    found = {task: config_of(f"task={task}").task for task in TASKS}
    assert {len(task.revision) for task in found.values()} == {40}
    assert {task.hub_id for task in found.values()} == {"nyu-mll/glue", "aps/super_glue"}
    assert all(task.subset == name for name, task in found.items())


def test_the_command_line_has_the_last_word():
    config = config_of("model=roberta_large", "task=rte", "trainer.lr=1e-5", "trainer.epochs=2", "task.max_length=128")
    assert (config.trainer.lr, config.trainer.epochs, config.task.max_length) == (1e-5, 2, 128)
