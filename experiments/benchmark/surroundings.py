"""What a measurement is worth nothing without: where and with what it was made."""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "accelerate", "numpy", "pandas")


def surroundings() -> dict[str, Any]:
    """Day, processor, Python and versions."""
    cpu = next((line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    return {
        "time": time.strftime("%Y-%m-%d"),
        "cpu": cpu or platform.processor(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
