"""What a task's rows must satisfy whatever they come from: one line names the rows that do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsgd.models.sources import SourceError

#: A surrogate by itself, which is no character.
HALF_A_PAIR = re.compile("[\ud800-\udfff]")

#: Of unusable rows a message names no more than this.
MOST_NAMED = 10


def require_two_classes(labels: np.ndarray, classes: Sequence[str], where: str) -> None:
    """Labels (n,) of the rows to evaluate on.

    Raises:
        SourceError: all are of one class, so that always to answer with it would be right.
    """
    present = np.unique(labels)
    if len(present) == 1:
        only = classes[int(present[0])]
        raise SourceError(f"{where}: all {len(labels)} are of class {only}, which cannot judge a classifier")


def require_labels(labels: Sequence[Any], classes: int, where: str) -> None:
    """Labels as a data set stores them.

    Raises:
        SourceError: some are no whole number in [0, ``classes``).
    """
    bad = [row for row, label in enumerate(labels, start=1) if not _is_label(label, classes)]
    if bad:
        example = labels[bad[0] - 1]
        hidden = "; its labels are hidden, give another split" if len(bad) == len(labels) and example == -1 else ""
        allowed = f"labels are 0 to {classes - 1}"
        raise SourceError(f"{where}: label {shown(example)} in {rows_text(bad, len(labels))}; {allowed}{hidden}")


def require(values: Sequence[Any], accepts: Callable[[Any], bool], where: str) -> None:
    """A column of a data set.

    Raises:
        SourceError: ``accepts`` is false of some values.
    """
    bad = [row for row, value in enumerate(values, start=1) if not accepts(value)]
    if bad:
        example = shown(values[bad[0] - 1])
        raise SourceError(f"{where} has no usable value ({example}) in {rows_text(bad, len(values))}")


def is_text(value: Any) -> bool:
    """Whether it is text of whole characters; JSON can spell half a surrogate pair, which is none."""
    return isinstance(value, str) and (value.isascii() or not HALF_A_PAIR.search(value))


def rows_text(rows: Sequence[int], count: int) -> str:
    """``row 3 of 10``, or ``rows 3, 7 of 10``."""
    named = ", ".join(map(str, rows[:MOST_NAMED]))
    more = f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else ""
    return f"row{'s' if len(rows) > 1 else ''} {named}{more} of {count}"


def shown(value: Any) -> str:
    """A cell as a message shows it: ``null``, or its beginning."""
    return "null" if value is None else f"{value}"[:40]


def _is_label(label: Any, classes: int) -> bool:
    return isinstance(label, int | np.integer) and bool(0 <= label < classes)
