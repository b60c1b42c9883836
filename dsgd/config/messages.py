"""How a mistake in a config is told: one line with the key, the value, what is allowed, and what may be meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

#: Characters of a wrong value that a message repeats.
LONGEST = 300


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
    text = str(value)
    near = nearest(text, known) if len(text) <= LONGEST else None
    hint = f" (did you mean {near}?)" if near else ""
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return f"{key} = {shown}: {allowed}{hint}"


def choose_one_of(value: str, options: Sequence[str], most: int = 8) -> str:
    """Name the options, the nearest to ``value`` first and at most ``most`` of them, with the count of the others."""
    if len(options) <= most:
        return "choose one of " + ", ".join(options)
    near = difflib.get_close_matches(value.lower(), options, n=most, cutoff=0.3)
    shown = [*near, *(option for option in options if option not in near)][:most]
    return f"choose one of {', '.join(shown)}, … ({len(options)} in all)"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known spelling nearest to ``word``, or None where nothing is near."""
    spellings = {spelling.lower(): spelling for spelling in known}
    matches = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.6)
    return spellings[matches[0]] if matches else None
