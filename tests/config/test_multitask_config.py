"""Tasks that are trained together, as a command line names them."""

from copy import deepcopy

import pytest

from dsgd.config import joined, tree
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.identity import cell_id
from dsgd.config.messages import ConfigErrors
from dsgd.config.schema import MultiTask
from dsgd.execution import identity_of
from dsgd.runs import folder_of


def run_of(tasks, *overrides):
    (run,) = expand(read_command(["task=multitask", f"task.tasks=[{tasks}]", *overrides]))
    return run


def problem_of(*overrides):
    with pytest.raises(ConfigErrors) as caught:
        expand(read_command(["task=multitask", *overrides]))
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("tasks", "name", "length", "train"),
    [
        ("mrpc,rte", "mrpc+rte", 512, 3668 + 2490),
        ("mrpc,cola", "mrpc+cola", 256, 3668 + 8551),
        ("rte,cola", "rte+cola", 512, 2490 + 8551),
        ("mrpc,rte,cola", "mrpc+rte+cola", 512, 3668 + 2490 + 8551),
    ],
)
def test_the_paper_s_settings(tasks, name, length, train):
    """METHODS 15: 8 epochs, 512 tokens if RTE is among them, else 256; the optimiser is the model's."""
    run = run_of(tasks, "model=roberta_large", "method=dsgd")
    config = run.config
    assert config.task.shown == identity_of(run)["task"] == folder_of(run).path.parents[1].name == name
    assert config.task.max_length == length
    assert (config.trainer.epochs, config.trainer.batch_size, config.trainer.lr) == (8, 20, 2e-5)
    assert config.task.train_examples == train
    assert config.task.tokens == (170 if "rte" in tasks else 77)
    assert run.label == "dsgd"


def test_each_task_is_as_its_own_file_says():
    task = run_of("mrpc,cola").config.task
    (single,) = expand(read_command(["task=cola"]))
    assert isinstance(task, MultiTask)
    assert list(task.joined) == ["mrpc", "cola"]
    assert task.joined["cola"] == single.config.task


def test_the_run_s_file_says_it_all(tmp_path):
    config = run_of("mrpc,rte", "task.batches=homogeneous").config
    (tmp_path / "config.yaml").write_text(tree.to_yaml(config))
    assert tree.load(tmp_path / "config.yaml") == config


@pytest.mark.parametrize("overrides", [["task.batches=homogeneous"], ["task.max_length=64"], ["task.tasks=[rte,cola]"]])
def test_tasks_batches_and_length_change_the_cell(overrides):
    assert run_of("mrpc,rte", *overrides).cell_id != run_of("mrpc,rte").cell_id


def test_the_data_of_each_task_are_part_of_the_identity_and_its_length_is_not():
    run = run_of("mrpc,rte")
    same, other = deepcopy(run.config), deepcopy(run.config)
    same.task.joined["rte"].max_length = 64  # the run's own counts
    other.task.joined["rte"].revision = "another"
    assert cell_id(same) == run.cell_id != cell_id(other)


def test_labels_tell_of_batches_and_not_of_tasks():
    assert run_of("mrpc,rte,cola", "method=fft").label == "fft"
    assert run_of("mrpc,rte", "method=fft", "task.batches=homogeneous").label == "fft[batches=homogeneous]"


def test_pairs_can_be_swept():
    runs = expand(read_command(["-m", "task=multitask", "task.tasks=[mrpc,rte],[rte,cola]", "method=fft,dsgd"]))
    assert [(run.config.task.shown, run.label) for run in runs] == [
        ("mrpc+rte", "fft"),
        ("mrpc+rte", "dsgd"),
        ("rte+cola", "fft"),
        ("rte+cola", "dsgd"),
    ]


def test_an_id_stays_as_it_is():
    """See test_identity.py."""
    assert run_of("mrpc,rte", "model=roberta_large").id == "0011489202"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ((), ["task.tasks = []", "two or more", "mrpc"]),
        (("task.tasks=[mrpc]",), ["task.tasks = ['mrpc']", "two or more"]),
        (("task.tasks=[mrpc,rte,mrpc]",), ["task.tasks = mrpc", "twice"]),
        (("task.tasks=[mrpc,rtee]",), ["task.tasks = rtee", "no such task", "did you mean rte?"]),
        (("task.tasks=[mrpc,cifar10]",), ["task.tasks = cifar10", "images"]),
        (("task.tasks=[mrpc,digits]",), ["task.tasks = digits", "images"]),
        (("task.tasks=[mrpc,copa]",), ["task.tasks = copa", "several inputs an example"]),
        (("task.tasks=[mrpc,csv]",), ["task.tasks = csv", "no data of its own"]),
        (("task.tasks=[mrpc,multitask]",), ["task.tasks = multitask", "no data of its own"]),
        (("task.tasks=[mrpc,rte]", "task.batches=mixd"), ["task.batches = mixd", "did you mean mixed?"]),
        (("task.tasks=[mrpc,rte]", "loss=ldam"), ["loss = ldam", "each class"]),
        (("task.tasks=[mrpc,rte]", "regularizer=lnsr", "regularizer.reading=head"), ["regularizer.reading = head"]),
        (("task.tasks=[mrpc,bbc_news]", "loss.label_smoothing=0.1"), ["loss.label_smoothing = 0.1", "classes"]),
        (("task.tasks=[mrpc,rte]", "task.imbalance.kind=step", "task.imbalance.factor=0.1"), ["task.imbalance.kind"]),
    ],
)
def test_one_mistake_gives_one_line(overrides, parts):
    problem = problem_of(*overrides)
    assert all(part in problem for part in parts), problem


def test_a_task_that_is_there_is_no_misspelling():
    assert "did you mean" not in problem_of("task.tasks=[mrpc,copa]")


def test_label_smoothing_suits_tasks_of_as_many_classes():
    assert run_of("mrpc,rte", "loss.label_smoothing=0.1").config.task.shown == "mrpc+rte"


def test_a_mirror_without_a_task_s_data_is_told(tmp_path):
    problem = problem_of("task.tasks=[mrpc,rte]", f"data.root={tmp_path}")
    assert "no folder nyu-mll/glue" in problem


def test_every_text_task_of_one_input_an_example_can_be_joined():
    assert joined.joinable() == ("bbc_news", "boolq", "cola", "mrpc", "multirc", "rte")
