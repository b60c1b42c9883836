"""W&B as a mirror of the run folder that can never fail a run.

Local files are the truth: whatever W&B raises becomes one warning, and the run goes on without its mirror.

Where the records go (``resolve_mode``): ``WANDB_MODE=disabled`` and ``WANDB_MODE=offline`` win over the config, because
a machine without network must be able to say so once for every sweep; then ``tracking.mode`` says ``online`` or
``offline``; its ``auto`` is online under ``WANDB_MODE=online`` or where ``WANDB_API_KEY`` is set, else offline. A key
stored by ``wandb login`` does not make ``auto`` go online: say ``tracking.mode=online``.

Offline files lie in ``<run folder>/wandb/offline-run-*``; ``wandb sync <run folder>/wandb/latest-run`` uploads them.

A resumed or repeated run logs its whole history again under the same id: offline into one more folder, of which
``latest-run`` points to the last; online W&B replaces the run of that id. So nothing depends on what W&B remembers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from dsgd.config.schema import Tracking

#: A module worth preloading in the server that forks the runs' processes: it starts no thread and no process, and with
#: it an offline init takes half the time.
PRELOAD = ("dsgd.wandb_import",)

_SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",  # the run's own output stays the run's own
    "reinit": "create_new",  # runs of one process never merge
    "init_timeout": 20.0,  # seconds
    "login_timeout": 20.0,  # a prompt nobody answers must not hold up a sweep
    "finish_timeout": 60.0,  # what is not uploaded by then stays on disk
    "disable_git": True,  # environment.json has the commit
    "disable_code": True,
    "disable_job_creation": True,
    "x_disable_stats": True,  # a sampling thread beside the training
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
_TAG_LENGTH = 64  # W&B refuses longer ones
_log = logging.getLogger(__name__)  # and not `warnings`, which a filter can turn into errors


class Tracker(Protocol):
    """A mirror of one run; ``make_tracker`` opens it, ``finish`` closes it, and no method raises."""

    def log(self, records: list[dict[str, Any]]) -> None:
        """Mirror lines of ``history.jsonl``.

        Args:
            records: each with an integer ``step`` and numbers, finite or not, under keys such as ``train/loss``.
                Records of one step become one; of a key given twice the last value counts. Steps must not fall
                between calls: W&B drops what lies behind its latest step.
        """

    def finish(self, summary: dict[str, Any], exit_code: int = 0) -> None:
        """Mirror the row of ``metrics.json`` and close; an exit code other than 0 marks the run as failed."""


class NoTracker:
    """No mirror."""

    def log(self, records: list[dict[str, Any]]) -> None:
        """Do nothing."""

    def finish(self, summary: dict[str, Any], exit_code: int = 0) -> None:
        """Do nothing."""


class WandbTracker:
    """One W&B run: one init, here, and one finish. The first error is its last word."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._run: Any = None
        self._failed = False
        with self._guard():
            self._run = _start(arguments)

    def log(self, records: list[dict[str, Any]]) -> None:
        """See ``Tracker``."""
        if self._run is None or self._failed:
            return
        with self._guard():
            for step, values in _by_step(records):
                self._run.log(values, step=step)

    def finish(self, summary: dict[str, Any], exit_code: int = 0) -> None:
        """See ``Tracker``; a second call does nothing."""
        run, self._run = self._run, None
        if run is None:
            return
        with self._guard():
            try:
                run.summary.update(_plain(summary))
            finally:
                run.finish(exit_code=exit_code)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._failed:
                _log.warning("W&B stopped (%s: %s); the run goes on, its local files are complete", *_describe(error))
            self._failed = True


def make_tracker(
    tracking: Tracking, *, folder: Path, run_id: str, name: str, group: str, tags: list[str], config: dict[str, Any]
) -> Tracker:
    """Open the mirror that the config and the environment ask for.

    Args:
        tracking: the config's group; its ``tags`` come before ``tags``.
        folder: the run folder, which exists.
        run_id: the run's identity, the same whenever the run is repeated.
        name: what the dashboard calls the run.
        group: what runs of one cell have in common.
        tags: cut at W&B's 64 characters.
        config: the resolved config; enums, paths and the like are written as what they stand for.
    """
    mode = resolve_mode(tracking.mode.value, os.environ)
    if tracking.name == "none" or mode == "disabled":
        return NoTracker()
    return WandbTracker(
        {
            "project": tracking.project,
            "entity": tracking.entity,
            "id": run_id,
            "name": name,
            "group": group,
            "tags": list(dict.fromkeys(tag[:_TAG_LENGTH] for tag in [*tracking.tags, *tags] if tag)),
            "config": _plain(config),
            "dir": str(folder),
            "mode": mode,
        }
    )


def resolve_mode(configured: str, environment: Mapping[str, str]) -> Literal["online", "offline", "disabled"]:
    """``configured`` is ``auto``, ``online`` or ``offline``; the module's docstring has the order of precedence."""
    wanted = environment.get("WANDB_MODE", "").lower()
    if wanted == "disabled":
        return "disabled"
    if wanted in ("offline", "dryrun") or configured == "offline":  # dryrun: W&B's old name
        return "offline"
    if configured == "online" or wanted == "online" or environment.get("WANDB_API_KEY"):
        return "online"
    return "offline"


def _start(arguments: dict[str, Any]) -> Any:
    from dsgd.wandb_import import wandb

    wandb.setup(wandb.Settings(silent=True))  # login speaks up before it reads the settings of init
    known = {
        key: value for key, value in _SETTINGS.items() if key in wandb.Settings.model_fields
    }  # x_ keys come and go
    return wandb.init(**arguments, settings=wandb.Settings(**known))


def _by_step(records: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records' values without ``step``, merged by step, steps ascending."""
    merged: dict[int, dict[str, Any]] = {}
    for record in records:
        merged.setdefault(record["step"], {}).update({key: value for key, value in record.items() if key != "step"})
    yield from sorted(merged.items())


def _plain(value: Any) -> Any:
    """``value`` out of JSON's types: enums as their values, paths and anything unknown as text."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return _plain(value.item()) if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else str(value)


def _describe(error: Exception) -> tuple[str, str]:
    """The error's type and the first line of what it says."""
    return type(error).__name__, str(error).partition("\n")[0]
