"""Rules about data: what a task needs, and whether it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import OmegaConf

from dsgd.config import joined, tree
from dsgd.config.contents import task_fingerprint
from dsgd.config.data import FORMATS, DataFileError, column_names, how_to_get, place_of
from dsgd.config.files import FilesError, digest, is_folder, local_path
from dsgd.config.folders import image_folder
from dsgd.config.messages import describe, nearest
from dsgd.config.schema import Config, ImbalanceKind, Modality, MultiTask, Task, TaskForm

#: The forms that a task of the hub can take, its own first; any other task has the single one.
FORMS = {
    **dict.fromkeys(("cola", "mrpc", "rte", "boolq", "multirc"), (TaskForm.single,)),
    "copa": (TaskForm.multiple_choice, TaskForm.binary_concat, TaskForm.flat),
}


def _model_and_task_have_one_modality(config: Config) -> list[str]:
    model, task = config.model, config.task
    if model.modality is task.modality:
        return []
    fitting = ", ".join(_models_of(task.modality))
    reason = (
        f"reads {model.modality.value}s, and task={task.name} is of {task.modality.value}s; choose one of {fitting}"
    )
    return [describe("model", model.name, reason)]


def _models_of(modality: Modality) -> list[str]:
    """The options of the group ``model`` that read it; a file that builds on another states what differs alone."""
    paths = sorted((tree.CONF / "model").glob("*.yaml"))
    files: dict[str, Any] = {path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in paths}

    def own_or_inherited(name: str) -> str:
        parents = [default for default in files[name].get("defaults", []) if default in files]
        inherited = own_or_inherited(parents[0]) if parents else Modality.text.value
        return str(files[name].get("modality", inherited))

    return [name for name in files if own_or_inherited(name) == modality.value]


def _form_is_one_of_the_task(config: Config) -> list[str]:
    task = config.task
    allowed = FORMS.get(task.name, (TaskForm.single,))
    if task.form in allowed:
        return []
    names = [form.value for form in allowed]
    return [describe("task.form", task.form.value, f"with task={task.name} give {' or '.join(names)}", names)]


def _a_mirror_has_the_data(config: Config) -> list[str]:
    """What the hub has will be seen when it is asked; a folder can be looked at now."""
    root, task = config.data.root, config.task
    tasks = [task for task in joined_or_alone(task) if task.hub_id]
    if not root or not tasks:
        return []
    if not is_folder(local_path(root)):
        return [describe("data.root", root, "no such folder; give one laid out as the hub, or null for the hub itself")]
    absent = [task for task in tasks if not is_folder(local_path(root) / str(task.hub_id))]
    missing = {task.hub_id: how_to_get(task, root) for task in absent}
    return [describe("data.root", root, f"no folder {hub_id} in it; {how}") for hub_id, how in missing.items()]


def joined_or_alone(task: Task) -> list[Task]:
    """The tasks that a run reads."""
    return list(task.joined.values()) if isinstance(task, MultiTask) else [task]


def _joined_tasks_can_share_a_model(config: Config) -> list[str]:
    task = config.task
    if not isinstance(task, MultiTask):
        return []
    known = joined.joinable()
    wanted = f"join two or more of {', '.join(known)}"
    found = [
        describe("task.tasks", name, f"{reason}; {wanted}", known if reason == joined.UNKNOWN else ())
        for name in task.tasks
        if (reason := joined.why_not(name)) is not None
    ]
    if len(task.tasks) < 2:
        found.append(describe("task.tasks", task.tasks, wanted))
    twice = [name for name in dict.fromkeys(task.tasks) if task.tasks.count(name) > 1]
    return found + [describe("task.tasks", name, "is named twice") for name in twice]


def _a_table_has_the_columns(config: Config) -> list[str]:
    """As far as the beginning of the file tells."""
    task = config.task
    if task.name != "csv":
        return []
    found = [] if task.label else [describe("task.label", "null", "give the column of labels")]
    if task.label in task.text:
        found.append(describe("task.text", task.text, f"task.label = {task.label} would be read along with the texts"))
    if not 1 <= len(set(task.text)) == len(task.text) <= 2:
        found.append(describe("task.text", task.text, "give one column of texts, or two: task.text=[a,b]"))
    if task.path is None:
        return [*found, describe("task.path", "null", f"give a file that ends in {', '.join(FORMATS)}")]
    for key, path in (("task.path", task.path), ("task.evaluation_path", task.evaluation_path)):
        found += [] if path is None else _table_problems(key, path, task)
    return found


def _table_problems(key: str, path: str, task: Task) -> list[str]:
    file = local_path(path)
    try:
        names = column_names(file, task.quotes)
        digest(path)  # which reads it whole
    except FilesError as error:
        return [describe(key, path, str(error))]
    wanted = [("task.text", column) for column in task.text] + [("task.label", task.label)] * bool(task.label)
    found = []
    for name, column in wanted:
        try:
            place_of(str(column), names)
        except DataFileError as error:
            near = nearest(str(column), names)
            hint = f" (did you mean {near}?)" if near else ""
            found.append(describe(name, column, f"{file.name}: {error}{hint}"))
    return found


def _an_image_folder_is_there(config: Config) -> list[str]:
    task = config.task
    if task.name != "image_folder":
        return []
    if task.path is None:
        return [describe("task.path", "null", "give a folder with train/<class>/<image> in it")]
    try:
        image_folder(local_path(task.path))
        task_fingerprint(config)
    except FilesError as error:
        return [describe("task.path", task.path, str(error).removeprefix(str(local_path(task.path))).lstrip(": "))]
    return []


def _imbalance_factor_is_used(config: Config) -> list[str]:
    imbalance = config.task.imbalance
    if imbalance.kind is not ImbalanceKind.none and imbalance.factor == 1:
        return [describe("task.imbalance.factor", 1, f"kind={imbalance.kind.value} needs a number below 1")]
    return []


def _evaluation_is_not_training(config: Config) -> list[str]:
    task, found = config.task, []
    if task.evaluation_split == "train":
        reason = "is what is trained on; give validation or test, or hold out a share: task.holdout=0.1"
        found.append(describe("task.evaluation_split", "train", reason))
    if _evaluates_on_the_same_content(task):
        reason = "holds what is trained on; give another file, or null for a share of it"
        found.append(describe("task.evaluation_path", task.evaluation_path, reason))
    return found


def _evaluates_on_the_same_content(task: Task) -> bool:
    if task.path is None or task.evaluation_path is None:
        return False
    try:
        return digest(task.path) == digest(task.evaluation_path)
    except FilesError:
        return False  # told by another rule


#: Each gives its problems as lines.
RULES: tuple[Callable[[Config], list[str]], ...] = (
    _model_and_task_have_one_modality,
    _an_image_folder_is_there,
    _form_is_one_of_the_task,
    _a_mirror_has_the_data,
    _joined_tasks_can_share_a_model,
    _a_table_has_the_columns,
    _imbalance_factor_is_used,
    _evaluation_is_not_training,
)
