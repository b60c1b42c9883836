"""The summary row of a finished run as ``metrics.json`` holds it: its seal, and what its values may be. Torch-free.

The seal has the checksums of the run's other files and one of the row itself. Runs of earlier versions have none.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from dsgd.evaluation import Status
from dsgd.files import DamagedError, digest_of, digest_of_json

#: The key under which the seal stands in ``metrics.json``, and one that says that there is a seal: else a single bit of
#: the first would pass a row for one of an earlier version.
SEAL, SEALED = "seal", "sealed"

#: Bytes up to which a file is checked by content where a run is skipped; larger ones by size, by content when read.
SMALL = 16 * 2**20

Row = dict[str, Any]
Seal = dict[str, Any]  # ``files``: name → ``size`` and ``sha256``; ``row``: the checksum of both


def sealed(row: Row, folder: Path, names: Iterable[str]) -> Row:
    """``row`` with its seal over these files of ``folder``."""
    row = {**json.loads(json.dumps(row)), SEALED: True}  # as it will be read: texts as keys, for one
    files = {name: {"size": (folder / name).stat().st_size, "sha256": digest_of(folder / name)} for name in names}
    return {**row, SEAL: {"files": files, "row": digest_of_json([row, files])}}


def opened(content: Row, path: Path) -> tuple[Row, Seal]:
    """The row and the seal (empty where there is none) out of the content of ``path``, a ``metrics.json``.

    Raises:
        DamagedError: the row is not what was sealed, or a value cannot be what its key says.
    """
    row = {key: value for key, value in content.items() if key != SEAL}
    seal = content.get(SEAL, {})
    if (SEAL in content or SEALED in row) and not _fits(seal, row):
        raise DamagedError(f"{path} is damaged: its checksum is another")
    row.pop(SEALED, None)
    problem = problem_of(row)
    if problem:
        raise DamagedError(f"{path} is damaged: {problem}")
    return row, seal


def damage_of(folder: Path, seal: Seal, *, by_content: bool = False, names: Iterable[str] | None = None) -> str:
    """The first of the sealed files that is gone or altered, in words; empty where all are whole.

    Args:
        folder: of the run.
        seal: of its row.
        by_content: compare contents of files up to ``SMALL`` bytes, too; of the named ones whatever their size.
        names: only these files.
    """
    files: Mapping[str, Mapping[str, Any]] = seal.get("files", {})
    for name in files if names is None else [name for name in names if name in files]:
        path, known = os.path.join(folder, name), files[name]  # noqa: PTH118 - thousands of times
        try:
            size = os.stat(path).st_size  # noqa: PTH116
            reads = by_content and (size <= SMALL or names is not None)
            if size != known["size"] or (reads and digest_of(Path(path)) != known["sha256"]):
                return f"{path} is damaged: its content is not what the run wrote"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    return ""


def problem_of(row: Row) -> str:
    """The first value that cannot be what its key says, in words; empty where there is none."""
    for key, value in row.items():
        rule = _rule_of(key)
        if rule is not None and not rule[0](value):
            return f"{key} = {str(value)[:60]}, must be {rule[1]}"
    return ""


def _fits(seal: Any, row: Row) -> bool:
    return (
        isinstance(seal, dict)
        and isinstance(seal.get("files"), dict)
        and seal.get("row") == digest_of_json([row, seal["files"]])
    )


# --- what a value may be --------------------------------------------------------------------------------------------

Rule = tuple[Callable[[Any], bool], str]


def is_number(value: Any) -> bool:
    """A finite number that is no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _within(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: is_number(value) and low <= value <= high


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_status(value: Any) -> bool:
    return value is None or value in get_args(Status)


def _each(rule: Rule) -> Rule:
    accepts, words = rule
    return (lambda value: isinstance(value, dict) and all(map(accepts, value.values()))), f"{words} for each name"


def _is_thresholds(value: Any) -> bool:
    from dsgd.config.schema import Evaluation  # imports Hydra, which readers of predictions do without

    known = {field.name for field in fields(Evaluation)}
    return isinstance(value, dict) and set(value) <= known and all(map(is_number, value.values()))


_SHARE: Rule = (_within(0, 1), "a number in [0, 1]")
_CORRELATION: Rule = (_within(-1, 1), "a number in [-1, 1]")
_AMOUNT: Rule = (_within(0, math.inf), "a finite number of at least 0")
_COUNT: Rule = (_is_count, "a whole number of at least 0")
_STATUS: Rule = (_is_status, f"null or one of {', '.join(get_args(Status))}")
_TEXT: Rule = ((lambda value: isinstance(value, str)), "text")

_RULES: dict[str, Rule] = {
    **dict.fromkeys(("accuracy", "macro_f1", "majority_rate", "predicted_share_max"), _SHARE),
    **dict.fromkeys(("recall_by_class",), _each(_SHARE)),
    "mcc": _CORRELATION,
    "status": _STATUS,
    "near_collapsed": ((lambda value: value is None or isinstance(value, bool)), "null, true or false"),
    "thresholds": (_is_thresholds, "the thresholds of a status"),
    **dict.fromkeys(("seconds", "train_seconds", "median_margin"), _AMOUNT),
    "examples_per_second": ((lambda value: is_number(value) and value > 0), "a finite number above 0"),
    **dict.fromkeys(("ties", "nonfinite", "steps", "best_step", "trainable_parameters", "seed"), _COUNT),
    **dict.fromkeys(("n_eval", "n_train"), ((lambda value: _is_count(value) and value > 0), "at least 1")),
    **dict.fromkeys(("id", "cell_id", "model", "task", "method", "preset", "precision", "device"), _TEXT),
}


def _rule_of(key: str) -> Rule | None:
    """Of ``accuracy_swa3`` that of ``accuracy``, of ``accuracy_by_task`` the same a task; None for others."""
    if key in _RULES:
        return _RULES[key]
    if key.endswith("_by_task") and key.removesuffix("_by_task") in _RULES:
        return _each(_RULES[key.removesuffix("_by_task")])
    stem = key.partition("_")[0]
    return _RULES[stem] if stem in ("accuracy", "status") else None
