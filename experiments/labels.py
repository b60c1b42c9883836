"""Method labels, taken apart: what sets a row of a table apart from the others, and what all of its rows share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd


class Label(NamedTuple):
    """``dsgd+lora[tau=0.5,r=4]``: the preset and its exchanged parts, and the changed keys."""

    name: str
    settings: tuple[str, ...]

    def __str__(self) -> str:
        return self.name + (f"[{','.join(self.settings)}]" if self.settings else "")


def parse(text: str) -> Label:
    """What :func:`dsgd.config.identity.method_label` wrote; a value may hold commas of its own."""
    name, _, settings = text.partition("[")
    return Label(name, tuple(re.split(r",(?=[\w.]+=)", settings.removesuffix("]"))) if settings else ())


def settings_of(text: str) -> dict[str, str]:
    """The changed keys of a label and their values."""
    return {key: value for key, _, value in (setting.partition("=") for setting in parse(text).settings)}


def shared_settings(frame: pd.DataFrame) -> dict[tuple[str, str], tuple[str, ...]]:
    """(model, task) → the settings that all its runs have, as a laptop's variant of an experiment does.

    A setting of one preset alone, such as τ, is never among them: it takes two presets to share one.
    """
    return {
        (str(model), str(task)): _shared([parse(text) for text in runs["method"].unique()], runs["preset"].nunique())
        for (model, task), runs in frame.groupby(["model", "task"], sort=False)
    }


def _shared(labels: Sequence[Label], presets: int) -> tuple[str, ...]:
    if presets < 2:
        return ()
    return tuple(setting for setting in labels[0].settings if all(setting in label.settings for label in labels))


def without(text: str, settings: Sequence[str]) -> str:
    """The label without these settings."""
    label = parse(text)
    return str(label._replace(settings=tuple(own for own in label.settings if own not in settings)))
