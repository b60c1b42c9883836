"""Rules over several keys: each takes a whole config and gives its problems, one line each. Torch-free."""

from __future__ import annotations

from collections.abc import Callable

from dsgd.config.rules import method, model, runtime, task
from dsgd.config.schema import Config

RULES: tuple[Callable[[Config], list[str]], ...] = (*task.RULES, *model.RULES, *method.RULES, *runtime.RULES)
