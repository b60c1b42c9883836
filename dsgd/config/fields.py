"""Dataclass fields that know their range; the validator reads it from the field's metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class Allowed:
    """A field's range: a test and the words that say it."""

    accepts: Callable[[Any], bool]
    text: str


def ranged(default: Any, accepts: Callable[[Any], bool], text: str) -> Any:
    """A finite number that must pass ``accepts``, which ``text`` says in words."""
    return field(default=default, metadata={"allowed": Allowed(lambda value: isfinite(value) and accepts(value), text)})


def within(default: Any, low: float, high: float) -> Any:
    """A number in the closed interval [low, high]."""
    return ranged(default, lambda value: low <= value <= high, f"a number in [{low:g}, {high:g}]")


def fraction(default: Any) -> Any:
    """A number in the half-open interval [0, 1)."""
    return ranged(default, lambda value: 0 <= value < 1, "a number in [0, 1)")


def positive(default: Any) -> Any:
    """A number above zero."""
    return ranged(default, lambda value: value > 0, "a number above 0")


def at_least(default: Any, low: float, most: int | None = None) -> Any:
    """A number not below ``low``, and not above ``most`` where that is given."""
    text = f"a number of at least {low:g}" + ("" if most is None else f" and at most {most:,}")
    return ranged(default, lambda value: low <= value and (most is None or value <= most), text)
