"""Imports W&B. The folders that its modules make in the system's temporary folder when imported go at once.

Processes that are killed, or forked and left by ``os._exit``, would leave theirs there. Only media and artifacts, which
no run logs, are ever put into them.
"""

import importlib
import tempfile
from contextlib import suppress

#: What ``wandb.init`` imports late, in some versions.
LATE = ("wandb.sdk.artifacts.artifact", "wandb.sdk.data_types._private", "wandb.sdk.launch")

with tempfile.TemporaryDirectory(prefix="dsgd-") as _folder:
    _usual, tempfile.tempdir = tempfile.tempdir, _folder
    try:
        import wandb

        for _name in LATE:
            with suppress(ImportError):
                importlib.import_module(_name)
    finally:
        tempfile.tempdir = _usual

__all__ = ["wandb"]
