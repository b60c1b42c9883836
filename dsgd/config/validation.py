"""What a composed config must satisfy before anything is imported or loaded. Torch-free.

Ranges stand in the schema beside the fields; here is the walk over them. Rules that look at several keys are in
``rules/``, by what they are about.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from dsgd.config.fields import Allowed
from dsgd.config.messages import describe
from dsgd.config.rules import RULES
from dsgd.config.schema import Config


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
