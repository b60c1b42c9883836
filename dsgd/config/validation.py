"""What a composed config must satisfy before anything is imported or loaded. Torch-free.

Ranges stand in the schema beside the fields; here are the walk over them and the rules that look at several keys.
Every problem is one line that names the key, the value, what is allowed and, where there is one, the nearest spelling.
"""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dsgd.config import joined, tree
from dsgd.config.data import FORMATS, DataFileError, column_names, how_to_get
from dsgd.config.fields import Allowed
from dsgd.config.parts import (
    DSGD,
    EMA,
    LDAM,
    LNSR,
    SWA,
    AdaLoRA,
    Backend,
    ClassBalanced,
    Correctness,
    CrossEntropy,
    Focal,
    Full,
    LNSRReading,
    LogitAdjustment,
    Loss,
    ReinitTop,
    Spikes,
)
from dsgd.config.schema import Config, ImbalanceKind, Modality, MultiTask, Task, TaskForm

#: The forms that a task of the hub can take, its own first; any other task has the single one.
FORMS = {
    **dict.fromkeys(("cola", "mrpc", "rte", "boolq", "multirc"), (TaskForm.single,)),
    "copa": (TaskForm.multiple_choice, TaskForm.binary_concat, TaskForm.flat),
}


class ConfigErrors(ValueError):  # noqa: N818 - it holds all of them
    """Every problem of a command line or config, one line each in ``problems``."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))

    def __str__(self) -> str:
        count = len(self.problems)
        head = "1 error in the configuration" if count == 1 else f"{count} errors in the configuration"
        return "\n".join([f"{head}; nothing was trained.", *(f"  {problem}" for problem in self.problems)])


def describe(key: str, value: Any, allowed: str, known: Iterable[str] = ()) -> str:
    """One problem as one line; ``known`` are the spellings among which the nearest is looked for."""
    near = nearest(str(value), known)
    hint = f" (did you mean {near}?)" if near else ""
    return f"{key} = {value}: {allowed}{hint}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known spelling nearest to ``word``, or None where nothing is near."""
    spellings = {spelling.lower(): spelling for spelling in known}
    matches = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.6)
    return spellings[matches[0]] if matches else None


def problems(config: Config) -> list[str]:
    """All problems of one composed config, ranges first, then the rules over several keys."""
    found = list(_out_of_range(config, ""))
    for rule in RULES:
        found += rule(config)
    return found


def allowed_text(schema: type[Any], name: str) -> str:
    """What may stand in field ``name`` of the dataclass ``schema``, in words."""
    field = {field.name: field for field in dataclasses.fields(schema)}[name]
    kind, optional = _without_none(typing.get_type_hints(schema)[name])
    text = field.metadata["allowed"].text if "allowed" in field.metadata else _type_text(kind)
    if kind is int:
        text = text.replace("a number", "a whole number")
    return f"give {text}" + (" or null" if optional else "")


def _out_of_range(node: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(node):
        key, value = prefix + field.name, getattr(node, field.name)
        allowed: Allowed | None = field.metadata.get("allowed")
        if dataclasses.is_dataclass(value):
            yield from _out_of_range(value, key + ".")
        elif allowed is not None and value is not None and not allowed.accepts(value):
            yield describe(key, value, allowed_text(type(node), field.name))


def _without_none(kind: Any) -> tuple[Any, bool]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        rest = [part for part in typing.get_args(kind) if part is not type(None)]
        return rest[0], len(rest) < len(typing.get_args(kind))
    return kind, False


def _type_text(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(member.value for member in kind)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(kind, "a list" if typing.get_origin(kind) is list else "a group of keys")


# --- rules over several keys ----------------------------------------------------------------------------------------


def _window_rules_see_the_whole_window(config: Config) -> list[str]:
    if not (isinstance(config.loss, Loss) and config.loss.needs_whole_window()):
        return []
    reason = f"loss={config.loss.name} as set weighs by sums over the whole window, so it must be 1"
    return [
        describe(f"trainer.{name}", value, reason)
        for name in ("accumulation", "processes")
        if (value := getattr(config.trainer, name)) != 1
    ]


def _lists_hold_what_their_parts_read(config: Config) -> list[str]:
    """A list's type says nothing of its length or its values."""
    found: list[str] = []
    if isinstance(config.averaging, SWA):
        most = config.averaging.checkpoints
        wanted = f"give different whole numbers from 1 to averaging.checkpoints = {most}"
        found += _list_problem("averaging.last", config.averaging.last, lambda value: 1 <= value <= most, wanted)
        if len(set(config.averaging.last)) < len(config.averaging.last):
            found.append(describe("averaging.last", config.averaging.last, wanted))
    if isinstance(config.gradient, Spikes):
        wanted = "give optimiser steps, whole numbers from 1"
        found += _list_problem("gradient.steps", config.gradient.steps, lambda value: value >= 1, wanted)
    if isinstance(config.regularizer, LNSR):
        wanted = "give a number of at least 0 for each of the last layers"
        found += _list_problem("regularizer.weights", config.regularizer.weights, lambda value: value >= 0, wanted)
    if isinstance(config.loss, Focal) and config.loss.alpha_by_class is not None:
        wanted = "give a number in [0, 1] for each class, or null"
        values = config.loss.alpha_by_class
        found += _list_problem("loss.alpha_by_class", values, lambda value: 0 <= value <= 1, wanted)
    return found


def _list_problem(key: str, values: list[Any], accepts: Callable[[Any], bool], wanted: str) -> list[str]:
    """One line where the list is empty or a value of it is not accepted."""
    return [] if values and all(map(accepts, values)) else [describe(key, values, wanted)]


def _alpha_is_given_once(config: Config) -> list[str]:
    if not isinstance(config.loss, Focal) or None in (config.loss.alpha, config.loss.alpha_by_class):
        return []
    reason = f"loss.alpha_by_class = {config.loss.alpha_by_class} says it already; set one of the two to null"
    return [describe("loss.alpha", config.loss.alpha, reason)]


def _model_is_deep_and_long_enough(config: Config) -> list[str]:
    """Against the facts that a model's YAML states of its checkpoint; without them, loading will tell."""
    model, found = config.model, []
    if model.blocks is not None and (model.layers or 0) > model.blocks:
        found.append(
            describe("model.layers", model.layers, f"model={model.name} has {model.blocks} transformer blocks")
        )
    if model.max_length is not None and config.task.max_length > model.max_length:
        takes = f"model={model.name} takes {model.max_length} tokens at most"
        found.append(describe("task.max_length", config.task.max_length, takes))
    return found


def _model_has_a_place(config: Config) -> list[str]:
    model = config.model
    if not (model.package or model.path or model.hub_id or model.scratch.patch_size):
        return [describe("model.path", "null", f"model={model.name} needs the folder of a saved model")]
    if model.path and not model.package and not Path(model.path).expanduser().is_dir():
        return [describe("model.path", model.path, "no such folder; give that of a saved model")]
    return []


def _blocks_are_there(config: Config) -> list[str]:
    """A part that reaches for the last blocks needs as many."""
    there, found = config.model.layers or config.model.blocks, []
    if there is None:
        return []
    reason = f"the model has {there} transformer block{'' if there == 1 else 's'} as configured"
    if isinstance(config.initialization, ReinitTop) and config.initialization.blocks > there:
        found.append(describe("initialization.blocks", config.initialization.blocks, reason))
    if isinstance(config.regularizer, LNSR) and config.regularizer.reading is LNSRReading.blocks:
        weights = config.regularizer.weights
        found += [describe("regularizer.weights", weights, reason)] if len(weights) > there else []
    return found


def _convolutional_nets_have_no_blocks(config: Config) -> list[str]:
    """Besides the parts that count blocks: what grows with depth, sits in blocks, or is measured there."""
    if config.model.blocks != 0:
        return []
    reason = f"model={config.model.name} is convolutional and has no transformer blocks; give"
    asked = {
        "trainer.layer_decay": (config.trainer.layer_decay, 1.0),
        "diagnostics": (config.diagnostics.name, "none"),
    }
    return [describe(key, value, f"{reason} {plain}") for key, (value, plain) in asked.items() if value != plain]


def _adapters_know_their_places(config: Config) -> list[str]:
    adapter, model = config.adapter, config.model
    if isinstance(adapter, Full) or model.modality is not Modality.image:
        return []
    return [
        describe("adapter", adapter.name, f"has its places in models of text, not in model={model.name}; give full")
    ]


def _images_have_one_layer_above_the_blocks(config: Config) -> list[str]:
    regularizer = config.regularizer
    if config.model.modality is not Modality.image or not isinstance(regularizer, LNSR):
        return []
    if regularizer.reading is LNSRReading.blocks or len(regularizer.weights) == 1:
        return []
    reason = f"reading=head has one layer in model={config.model.name}; give one weight, or reading=blocks"
    return [describe("regularizer.weights", regularizer.weights, reason)]


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


def _an_image_folder_is_there(config: Config) -> list[str]:
    task = config.task
    if task.name != "image_folder":
        return []
    wanted = "give a folder with train/<class>/<image> in it"
    if task.path is None:
        return [describe("task.path", "null", wanted)]
    root = Path(task.path).expanduser()
    if not root.is_dir():
        return [describe("task.path", task.path, f"no such folder; {wanted}")]
    return [] if (root / "train").is_dir() else [describe("task.path", task.path, f"has no folder train; {wanted}")]


def _patches_tile_the_image(config: Config) -> list[str]:
    """Of a model from scratch; a checkpoint's patches are known when it is loaded."""
    model, found = config.model, []
    patch, heads = model.scratch.patch_size, model.scratch.heads
    if patch is None:
        return []
    if (model.image_size or patch) % patch:
        wanted = f"give a multiple of model.scratch.patch_size = {patch}"
        found.append(describe("model.image_size", model.image_size, wanted))
    if model.scratch.width % heads:
        found.append(describe("model.scratch.width", model.scratch.width, f"give a multiple of heads = {heads}"))
    return found


def _fresh_blocks_train(config: Config) -> list[str]:
    if isinstance(config.adapter, Full) or not isinstance(config.initialization, ReinitTop):
        return []
    reason = f"adapter={config.adapter.name} freezes the blocks, so fresh ones would stay random; use adapter=full"
    return [describe("initialization", "reinit_top", reason)]


def _adalora_has_ranks_to_cut_and_time_for_it(config: Config) -> list[str]:
    adapter, found = config.adapter, []
    if not isinstance(adapter, AdaLoRA):
        return []
    if adapter.target_r >= adapter.initial_r:
        reason = f"must be below adapter.initial_r = {adapter.initial_r}; to cut nothing, use adapter=lora"
        found.append(describe("adapter.target_r", adapter.target_r, reason))
    if adapter.warmup + adapter.final >= 1:
        reason = f"with adapter.warmup = {adapter.warmup:g} no step is left to cut ranks in; their sum must be below 1"
        found.append(describe("adapter.final", f"{adapter.final:g}", reason))
    return found


def _averages_keep_adalora_s_budget(config: Config) -> list[str]:
    """An average with weights from before the last cut has more ranks than the budget: cut ones come back."""
    adapter, averaging = config.adapter, config.averaging
    if not isinstance(adapter, AdaLoRA):
        return []
    if isinstance(averaging, EMA):
        reason = "adapter=adalora cuts ranks, and an average with earlier weights brings them back; use averaging=last"
        return [describe("averaging", "ema", reason)]
    if isinstance(averaging, SWA) and averaging.last:
        k, share = max(averaging.last), adapter.final
        if (k - 1) / averaging.checkpoints >= share:
            reason = (
                f"of {averaging.checkpoints} checkpoints the last {k} begin before adapter=adalora has cut the last "
                f"rank, which averaging would bring back; take those of the last adapter.final = {share:g} of the steps"
            )
            return [describe("averaging.last", averaging.last, reason)]
    return []


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
    tasks = list(task.joined.values()) if isinstance(task, MultiTask) else [task]
    absent = [task for task in tasks if root and task.hub_id and not (Path(root).expanduser() / task.hub_id).is_dir()]
    if not root or not absent:
        return []
    if not Path(root).expanduser().is_dir():
        return [describe("data.root", root, "no such folder; give one laid out as the hub, or null for the hub itself")]
    missing = {task.hub_id: how_to_get(task, root) for task in absent}
    return [describe("data.root", root, f"no folder {hub_id} in it; {how}") for hub_id, how in missing.items()]


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


def _parts_know_of_joined_tasks(config: Config) -> list[str]:
    """What counts classes, or means one head, has no meaning over several tasks' heads."""
    task, loss, found = config.task, config.loss, []
    if not isinstance(task, MultiTask):
        return []
    if isinstance(loss, LDAM | ClassBalanced | LogitAdjustment):
        reason = "goes by the training examples of each class, and every joined task has classes of its own"
        found.append(describe("loss", loss.name, reason))
    smoothing = getattr(loss, "label_smoothing", 0.0)
    if smoothing and len({part.classes for part in task.joined.values()}) > 1:
        found.append(
            describe("loss.label_smoothing", smoothing, "the joined tasks differ in their number of classes; give 0")
        )
    if isinstance(config.regularizer, LNSR) and config.regularizer.reading is LNSRReading.head:
        found.append(describe("regularizer.reading", "head", "task=multitask has a head for each task; give blocks"))
    if task.imbalance.kind is not ImbalanceKind.none:
        kind = task.imbalance.kind.value
        found.append(describe("task.imbalance.kind", kind, "joined tasks are as their own files say; give none"))
    return found


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
    try:
        names = column_names(Path(path).expanduser())
    except DataFileError as error:
        return [describe(key, path, str(error))]
    wanted = [("task.text", column) for column in task.text] + [("task.label", task.label)] * bool(task.label)
    columns = f"{Path(path).name} has the columns {', '.join(names)}"
    return [describe(name, column, columns, names) for name, column in wanted if column not in names]


def _imbalance_factor_is_used(config: Config) -> list[str]:
    imbalance = config.task.imbalance
    if imbalance.kind is not ImbalanceKind.none and imbalance.factor == 1:
        return [describe("task.imbalance.factor", 1, f"kind={imbalance.kind.value} needs a number below 1")]
    return []


def _processes_match_the_launcher(config: Config) -> list[str]:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if config.trainer.processes == world:
        return []
    how = f"this launch has {world}; start with `torchrun --nproc_per_node {config.trainer.processes} run.py …`"
    return [describe("trainer.processes", config.trainer.processes, how)]


def _results_have_a_place(config: Config) -> list[str]:
    return [] if config.results_dir.strip() else [describe("results_dir", repr(config.results_dir), "give a folder")]


def _a_timeout_needs_a_child(config: Config) -> list[str]:
    if config.runtime.isolate or config.runtime.timeout is None:
        return []
    reason = "with runtime.isolate=false nothing can stop the run; give null"
    return [describe("runtime.timeout", f"{config.runtime.timeout:g}", reason)]


def _device_exists(config: Config) -> list[str]:
    device = config.runtime.device
    forms = ("auto", "cpu", "cuda", "mps")
    match = re.fullmatch(r"(auto|cpu|mps|cuda)|cuda:(\d+)", device)
    if match is None:
        return [describe("runtime.device", device, "give auto, cpu, cuda, cuda:N or mps", forms)]
    if device == "mps" and sys.platform != "darwin":
        return [describe("runtime.device", device, "this machine is no Mac; give auto, cpu, cuda or cuda:N")]
    if device.startswith("cuda"):
        count, wanted = cuda_device_count(), int(match[2] or 0)
        if wanted >= count:
            there = f"cuda:0 to cuda:{count - 1}" if count else "none"
            return [
                describe("runtime.device", device, f"CUDA devices on this machine: {there}; auto takes what is there")
            ]
    return []


def _cuda_s_settings_have_cuda(config: Config) -> list[str]:
    """And the number of runs that share a device is one."""
    runtime, found = config.runtime, []
    shared = runtime.seeds_per_device
    if shared != "auto" and not (shared.isdecimal() and int(shared) >= 1):
        return [describe("runtime.seeds_per_device", shared, "give a whole number of at least 1, or auto", ("auto",))]
    if _computes_on_cuda(runtime.device):
        return []
    if shared != "1":  # a CPU is shared by the launcher's workers
        reason = "the run has no CUDA device; give 1, and hydra/launcher=joblib for several runs at a time"
        found.append(describe("runtime.seeds_per_device", shared, reason))
    if runtime.tf32:
        found.append(describe("runtime.tf32", "true", "the run has no CUDA device; give false"))
    return found


def _ranks_share_no_device(config: Config) -> list[str]:
    if config.trainer.processes == 1 or config.runtime.seeds_per_device == "1":
        return []
    reason = f"trainer.processes = {config.trainer.processes} gives each process a device of its own; give 1"
    return [describe("runtime.seeds_per_device", config.runtime.seeds_per_device, reason)]


def _compiled_code_is_what_runs(config: Config) -> list[str]:
    """Compiled modules pass over hooks, and a new length of text would be compiled anew."""
    if not config.runtime.compile:
        return []
    obstacles = []
    if config.model.modality is not Modality.image:
        obstacles.append(f"model={config.model.name} reads texts, and each length would be compiled by itself")
    hooked = {"gradient": ("plain", "sam", "spikes"), "regularizer": ("none",), "diagnostics": ("none",)}
    obstacles += [
        f"{group}={name} looks into the layers, which compiled code does not let it"
        for group, allowed in hooked.items()
        if (name := getattr(config, group).name) not in allowed
    ]
    return [describe("runtime.compile", "true", f"{obstacle}; give false") for obstacle in obstacles]


def _the_fused_kernel_can_serve(config: Config) -> list[str]:
    loss = config.loss
    if not isinstance(loss, CrossEntropy | DSGD) or loss.backend is not Backend.triton:
        return []
    ways_out, obstacles = "give auto or reference", []
    if find_spec("triton") is None:
        obstacles.append("Triton is not installed")
    if not _computes_on_cuda(config.runtime.device) and os.environ.get("TRITON_INTERPRET") != "1":
        obstacles.append("the run has no CUDA device, and TRITON_INTERPRET=1 is not set")
    if isinstance(loss, DSGD) and loss.correctness is Correctness.evaluation:
        obstacles.append("the kernel cannot take loss.correctness = evaluation")
    if loss.needs_whole_window():
        obstacles.append("the kernel knows only loss.normalization = full_m")
    return [describe("loss.backend", "triton", f"{obstacle}; {ways_out}") for obstacle in obstacles]


def _computes_on_cuda(device: str) -> bool:
    return device.startswith("cuda") or (device == "auto" and cuda_device_count() > 0)


def _observers_are_known(config: Config) -> list[str]:
    known = {"tracking": ("wandb", "none"), "diagnostics": ("none", "gradients", "representations", "all")}
    return [
        describe(f"{group}.name", name, f"give one of {', '.join(names)}", names)
        for group, names in known.items()
        if (name := getattr(config, group).name) not in names
    ]


#: Each rule returns its problems as lines.
RULES: tuple[Callable[[Config], list[str]], ...] = (
    _model_and_task_have_one_modality,
    _model_has_a_place,
    _model_is_deep_and_long_enough,
    _window_rules_see_the_whole_window,
    _lists_hold_what_their_parts_read,
    _alpha_is_given_once,
    _blocks_are_there,
    _convolutional_nets_have_no_blocks,
    _adapters_know_their_places,
    _images_have_one_layer_above_the_blocks,
    _patches_tile_the_image,
    _an_image_folder_is_there,
    _fresh_blocks_train,
    _adalora_has_ranks_to_cut_and_time_for_it,
    _averages_keep_adalora_s_budget,
    _form_is_one_of_the_task,
    _a_mirror_has_the_data,
    _joined_tasks_can_share_a_model,
    _parts_know_of_joined_tasks,
    _a_table_has_the_columns,
    _imbalance_factor_is_used,
    _processes_match_the_launcher,
    _results_have_a_place,
    _a_timeout_needs_a_child,
    _device_exists,
    _cuda_s_settings_have_cuda,
    _ranks_share_no_device,
    _compiled_code_is_what_runs,
    _the_fused_kernel_can_serve,
    _observers_are_known,
)


def cuda_device_count() -> int:
    """CUDA devices that this process may use, asked of the driver, so that torch need not be imported.

    The driver itself honours ``CUDA_VISIBLE_DEVICES``.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
