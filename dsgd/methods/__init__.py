"""The parts that fill the slots of a method: one folder a slot, one small file a part (see ``contracts.py``)."""

from __future__ import annotations

import inspect
from dataclasses import fields
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgd.config.parts import Part  # importing it for real would need Hydra


def build(slot: str, config: Part, **context: object) -> Any:
    """The part that ``config`` describes: the class of the same name in ``dsgd/methods/<slot>/<config.name>.py``.

    The class is called with the dataclass's fields except ``name`` (of an enum, its value) and with those items of
    ``context`` that its ``__init__`` names, so a part asks for what only the run knows by naming it. What comes back
    fulfils the slot's protocol in ``contracts.py``.

    Raises:
        ModuleNotFoundError: no file of that name.
        AttributeError: the file holds no class of that name.
        TypeError: the class does not take a field, lacks a context item, or a context item bears a field's name.
    """
    part = getattr(import_module(f"dsgd.methods.{slot}.{config.name}"), type(config).__name__)
    settings = {field.name: getattr(config, field.name) for field in fields(config) if field.name != "name"}
    settings = {key: value.value if isinstance(value, Enum) else value for key, value in settings.items()}
    accepted = inspect.signature(part).parameters
    return part(**settings, **{key: value for key, value in context.items() if key in accepted})
