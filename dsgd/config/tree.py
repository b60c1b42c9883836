"""The config tree ``conf/`` through Hydra's own loader, and configs as typed objects and files. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dsgd.config import joined, schema
from dsgd.config.parts import PARTS
from dsgd.config.schema import Config

#: Of the YAML of tasks that are trained together.
for _of_names in (
    joined.definitions,
    joined.title,
    joined.longest,
    joined.train_examples,
    joined.evaluation_examples,
    joined.tokens,
):
    OmegaConf.register_new_resolver(f"joined_{_of_names.__name__}", _of_names, replace=True)

P = ParamSpec("P")
T = TypeVar("T")

CONF = Path(__file__).resolve().parents[2] / "conf"

#: Groups whose options set nothing outside their own node.
NODES = ("model", "task")

#: ``trainer.lr=1e-5``, and neither a group, nor an addition, nor a key of Hydra's own.
_VALUE = re.compile(r"(?!hydra\.)\w+(\.\w+)+=")


#: What was composed, to be forgotten when the config folders change.
_memories: list[_lru_cache_wrapper[Any]] = []
_known_folder: str | None = None


def remember(function: Callable[P, T]) -> Callable[P, T]:
    """Cache what ``function`` composes until a command line brings another ``--config-dir``."""
    cached = cache(function)
    _memories.append(cached)
    return cast("Callable[P, T]", cached)


@contextmanager
def loader(config_dir: str | None = None) -> Iterator[ConfigLoaderImpl]:
    """Give Hydra's loader over ``conf/``: the running application's own, else one made for this context.

    Args:
        config_dir: a further folder of configs (``--config-dir``); ``conf/`` wins where both have a name.
    """
    schema.register()
    if GlobalHydra.instance().is_initialized():
        yield _current_loader()
        return
    with initialize_config_dir(str(CONF), version_base="1.3"):
        _search(config_dir)
        yield _current_loader()


def _search(config_dir: str | None) -> None:
    """Let the current loader look into ``config_dir`` too, in the place where Hydra's own command line puts it."""
    global _known_folder
    folder = None if config_dir is None else str(Path(config_dir).resolve())
    if folder != _known_folder:
        for memory in _memories:
            memory.cache_clear()
        _known_folder = folder
    if folder is not None:
        hydra, search_path = GlobalHydra.instance().hydra, _current_loader().get_search_path()
        assert hydra is not None
        search_path.prepend(provider="command-line", path=f"file://{folder}", anchor="schema")
        hydra.config_loader = ConfigLoaderImpl(search_path)


def _current_loader() -> ConfigLoaderImpl:
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    return loader


def compose(overrides: Iterable[str]) -> DictConfig:
    """The composed config, Hydra's node included; remembered, so it must not be changed in place."""
    return _remembered(tuple(overrides))


@remember
def _remembered(overrides: tuple[str, ...]) -> DictConfig:
    composed: DictConfig = hydra_compose("config", overrides=list(overrides), return_hydra_config=True)
    return composed


def assemble(overrides: Iterable[str]) -> DictConfig:
    """What :func:`compose` gives, without Hydra's node, and quicker for a sweep over models and tasks; remembered too.

    A model and a task are nodes by themselves, and what depends on them interpolates. So a product over both needs one
    composition for each model, each task and each rest of the line, not one for each combination. Where only one of
    them is named, or the rest of the line sets something inside these nodes too, the line is composed whole.
    """
    return _assembled(tuple(overrides))


@remember
def _assembled(overrides: tuple[str, ...]) -> DictConfig:
    chosen = {node: [text for text in overrides if _key(text) == node] for node in NODES}
    rest = tuple(text for text in overrides if _key(text) not in NODES)
    own = {node: [text for text in rest if _key(text).startswith(f"{node}.")] for node in NODES}
    frame = tuple(text for text in rest if text not in own["model"] + own["task"])
    if not all(chosen.values()) or any(_frame(frame)[node] != compose(())[node] for node in NODES):
        return _frame(overrides)
    assembled = _frame(frame).copy()
    for node in NODES:
        assembled[node] = compose(chosen[node] + own[node])[node]
    return assembled


@remember
def _frame(overrides: tuple[str, ...]) -> DictConfig:
    """The groups composed by Hydra, and single values set afterwards as it does: a sweep over values composes once."""
    values = [text for text in overrides if _VALUE.match(text)]
    frame = _without_hydra(compose(text for text in overrides if text not in values))
    try:
        for override in OverridesParser.create().parse_overrides(values):
            OmegaConf.update(frame, override.key_or_group, override.value())
    except OmegaConfBaseException:
        return _without_hydra(compose(overrides))  # raises in Hydra's words
    return frame


def _without_hydra(composed: DictConfig) -> DictConfig:
    """Copy a composed config without Hydra's node, the top-level keys with their types: ``seed=042`` is 42."""
    copy: DictConfig = OmegaConf.structured(Config)
    for name in Config.__dataclass_fields__:
        copy[name] = composed._get_node(name)
    return copy


def _key(override: str) -> str:
    return override.split("=", 1)[0]


def groups(tree: ConfigLoaderImpl) -> dict[str, list[str]]:
    """Every group with its options; an option in a subfolder is ``folder/option``."""
    repository = tree.repository  # its own questions copy the whole repository each time
    found: dict[str, list[str]] = {}

    def visit(group: str) -> list[str]:
        options = repository.get_group_options(group, ObjectType.CONFIG)
        for folder in repository.get_group_options(group, ObjectType.GROUP):
            options += [f"{folder}/{option}" for option in visit(f"{group}/{folder}")]
        found[group] = sorted(options)
        return found[group]

    for group in repository.get_group_options("", ObjectType.GROUP):
        if group != "schema":
            visit(group)
    return found


def typed(composed: DictConfig) -> Config:
    """The dataclasses of a composed config, interpolations resolved."""
    values = {name: composed[name] for name in Config.__dataclass_fields__}
    return Config(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    return OmegaConf.to_object(value) if isinstance(value, DictConfig) else value


def load(path: Path) -> Config:
    """The config that a run folder keeps (``config.yaml``)."""
    saved = OmegaConf.load(path)
    assert isinstance(saved, DictConfig)
    base = OmegaConf.structured(Config)
    for slot, parts in PARTS.items():
        kinds = {part().name: part for part in parts}
        base[slot] = OmegaConf.structured(kinds[saved[slot].name])
    for group in schema.GROUPS:
        base[group] = OmegaConf.structured(schema.GROUPS[group])
    if "tasks" in saved.task:
        base["task"] = OmegaConf.structured(schema.MultiTask)
    base["method"] = OmegaConf.structured(schema.Method)
    result = OmegaConf.to_object(OmegaConf.merge(base, saved))
    assert isinstance(result, Config)
    return result


def to_yaml(config: Config) -> str:
    """The text that :func:`load` reads back to an equal config."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))
