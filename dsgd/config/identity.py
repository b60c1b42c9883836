"""What a run is called: its ``id``, its table cell and its method label. Torch-free and pure.

``id`` hashes the keys whose value differs from the dataclass default, with the model, the task and the seed. Keys that
no chosen slot reads are left out, so that ``method=fft schedule.tau=0.5`` is ``method=fft``; and the preset's name is
left out, so that ``method=fft loss=dsgd`` is ``method=dsgd``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any

from dsgd.config.parts import PARTS, SLOTS, Loss, ScheduleName
from dsgd.config.schema import Config, ImbalanceKind, Modality, MultiTask, Task

#: Raised when the meaning of a key changes, so that old runs are not taken for new ones.
SCHEMA_VERSION = 1

#: Prefixes of keys that never change a run's numbers, or that reach it only through another key.
ASIDE = (
    "method",
    "tracking",
    "diagnostics",
    "evaluation",  # thresholds are applied to stored predictions
    "data",
    "results_dir",
    "force",
    "debug.name",
    "loss.backend",  # the kernel and the reference agree within rounding
    "model.recipe",  # read through trainer.*
    "model.blocks",  # facts of the checkpoint, for the validator
    "model.max_length",
    "model.parameters",  # facts for estimates of cost
    "model.embeddings",
    "model.tokens",
    "model.gflops",
    "model.modality",
    "model.title",
    "task.modality",
    "task.recipe",
    "task.shots",  # applied to predictions
    "task.package",
    "task.path",  # task.fingerprint says what is there
    "task.evaluation_path",
    "task.title",
    "task.digests",  # facts of the hub's rows
    "task.train_examples",  # facts for estimates of cost
    "task.evaluation_examples",
    "task.classes",
    "task.tokens",
    "adapter.lr",  # read through trainer.*
    "adapter.weight_decay",
    "trainer.clip",  # read through transform.clip
    "runtime.device",  # resolved device, precision and threads are recorded in environment.json instead
    "runtime.threads",
    "runtime.isolate",
    "runtime.timeout",
    "runtime.progress",
    "runtime.log_every",
    "runtime.eval_batch_size",
    "runtime.split_by_length",
    "runtime.checkpoint_every",
    "runtime.keep_checkpoint",
    "runtime.seeds_per_device",
)

#: Keys of the identity that are no setting: a label names none of them.
UNLABELLED = ("seed", "seeds", "model.fingerprint", "task.fingerprint", "task.sample")

#: Tasks over a file or a folder of one's own.
OWN_DATA = ("csv", "image_folder")

Keys = dict[str, Any]


def run_id(config: Config) -> str:
    """The run's name by content: ten hexadecimal digits."""
    return _digest(changed_keys(config))


def cell_id(config: Config) -> str:
    """The same without ``seed`` and ``seeds.*``: the runs of one entry of a table share it."""
    return _digest({key: value for key, value in changed_keys(config).items() if not _under(key, ("seed", "seeds"))})


def changed_keys(config: Config) -> Keys:
    """The identity itself: model, task, seed, and every read key that differs from its dataclass default."""
    default = dict(_leaves(_defaults_of(config)))
    changed = {key: value for key, value in identity_keys(config).items() if value != default.get(key)}
    return {"model.name": config.model.name, "task.name": config.task.name, "seed": config.seed, **changed}


def identity_keys(config: Config) -> Keys:
    """All keys that the run's numbers depend on, with their values in plain types."""
    unread = ASIDE + _unread(config)
    return {key: value for key, value in _leaves(config) if not _under(key, unread)}


def method_label(config: Config, baseline: Config, slots: dict[str, str]) -> str:
    """Preset, changed slots and changed keys: ``dsgd``, ``dsgd+lora``, ``dsgd[tau=0.5]``, ``fft[debug=tiny]``.

    ``slots`` is what :func:`changed_slots` gives; ``baseline`` is the preset composed with the same model, task and
    ``debug`` and with those slots, and otherwise untouched.
    """
    keys, usual = identity_keys(config), identity_keys(baseline)
    usual.setdefault("task.split_seed", baseline.task.split_seed)  # read as soon as something is held out
    names = _short_names([*keys, *usual])
    settings = [f"debug={config.debug.name}"] if config.debug.name != "none" else []
    for key, value in keys.items():
        if value != usual.get(key) and not _under(key, UNLABELLED):
            settings.append(f"{names[key]}={_plain_text(value)}")
    added = "".join(f"+{name}" for name in slots.values())
    return config.method.name + added + (f"[{','.join(settings)}]" if settings else "")


def changed_slots(config: Config, preset: Config) -> dict[str, str]:
    """Slot to part name where the run fills a slot otherwise than its preset does."""
    return {
        slot: getattr(config, slot).name for slot in SLOTS if getattr(config, slot).name != getattr(preset, slot).name
    }


def _unread(config: Config) -> tuple[str, ...]:
    """Prefixes that the chosen slots, or the other keys, make irrelevant."""
    unread: list[str] = []
    if not (isinstance(config.loss, Loss) and config.loss.reads_schedule):
        unread.append("schedule")
    unread.append("schedule.tau" if config.schedule.name is ScheduleName.static else "schedule.gamma")
    if config.task.imbalance.kind is ImbalanceKind.none:
        unread += ["task.imbalance", "seeds.subset"]
    elif config.seeds.subset is not None:
        unread.append("task.imbalance.subset_seed")
    if config.model.package is None:
        unread.append("model.path")  # model.fingerprint says what is there
    if config.task.name not in OWN_DATA or config.task.evaluation_path is not None:
        unread += ["task.evaluation_share", *([] if config.task.holdout > 0 else ["task.split_seed"])]
    if config.task.quotes is not False:
        unread.append("task.quotes")  # true reads as null does, or null is refused
    if config.task.modality is Modality.image:
        unread.append("task.max_length")
    if config.trainer.max_steps is not None:
        unread.append("trainer.epochs")
    if config.debug.examples is None:
        unread.append("debug.full_evaluation")
    return (*unread, *_unread_of_joined(config.task))


def _unread_of_joined(task: Task) -> list[str]:
    """Of the tasks that a run joins, what is unread of any task, and what the run decides itself."""
    if not isinstance(task, MultiTask):
        return []
    keys = [key.removeprefix("task.") for key in ASIDE if key.startswith("task.")]
    return [f"task.joined.{name}.{key}" for name in task.joined for key in (*keys, "name", "max_length", "bootstrap")]


def _defaults_of(config: Config) -> Config:
    """A config of dataclass defaults, with the parts that the slots fall back to."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        value = getattr(config, field.name)
        if field.name in PARTS:
            # Inside the chosen part, its own defaults are the reference; its name is compared with the slot's default.
            values[field.name] = dataclasses.replace(type(value)(), name=PARTS[field.name][0]().name)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            values[field.name] = type(value)()
        else:
            values[field.name] = field.default
    if isinstance(config.task, MultiTask):
        values["task"].joined = {name: Task() for name in config.task.joined}
    return Config(**values)


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(node):
        key, value = prefix + field.name, getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, key + ".")
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from _leaves(inner, f"{key}.{name}.")
        else:
            yield key, value.value if isinstance(value, Enum) else value


def _under(key: str, prefixes: tuple[str, ...]) -> bool:
    return key in prefixes or key.startswith(_with_dots(prefixes))


@cache
def _with_dots(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{prefix}." for prefix in prefixes)


def _short_names(keys: list[str]) -> dict[str, str]:
    """Each key's last word, or its last two where another key ends alike; a part's ``name`` goes by its slot."""
    last = {key: key.rsplit(".", 1)[-1] for key in dict.fromkeys(keys)}
    words = list(last.values())
    short = {key: word if words.count(word) == 1 else ".".join(key.split(".")[-2:]) for key, word in last.items()}
    return {key: key.rsplit(".", 1)[0] if key.endswith(".name") else name for key, name in short.items()}


def _plain_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_plain_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _digest(keys: Keys) -> str:
    text = json.dumps({"schema_version": SCHEMA_VERSION, **keys}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
