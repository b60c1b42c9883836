"""Where a run computes, and what is recorded about it."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState

from dsgd.devices import claim_device

if TYPE_CHECKING:
    from dsgd.config.schema import Config, Runtime

#: ``mallopt``'s numbers (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

PACKAGES = ("dsgd", "torch", "transformers", "accelerate", "datasets", "timm", "hydra-core", "numpy", "wandb")


def make_accelerator(runtime: Runtime) -> Accelerator:
    """Accelerate's device, precision and processes for this run.

    CUDA runs ask for deterministic kernels, so that the same config gives the same numbers on the same machine.
    """
    device = _device(runtime)
    if device.type == "cpu":
        keep_freed_memory()
    if device.type == "cuda":
        set_tf32(runtime.tf32)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        if device.index is not None:
            torch.cuda.set_device(device)
    AcceleratorState._reset_state()  # an earlier run of this process may have had another precision
    return Accelerator(cpu=device.type == "cpu", mixed_precision=_precision(runtime.precision.value, device))


def make_process_group(config: Config) -> PartialState:
    """Join the other processes of the launch, on the device that the run will use.

    Raises:
        RuntimeError: their number is not ``trainer.processes``; each would train on a part of every window alone.
    """
    state = PartialState(cpu=_device(config.runtime).type == "cpu")
    if state.num_processes != config.trainer.processes:
        expected, found = config.trainer.processes, state.num_processes
        raise RuntimeError(f"trainer.processes = {expected}, but {found} joined: start run.py with torchrun")
    return state


def describe_environment(accelerator: Accelerator, threads: int) -> dict[str, Any]:
    """Versions, device, git state: what ``environment.json`` holds."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "device": _device_name(accelerator.device),
        "processes": accelerator.num_processes,
        "precision": accelerator.mixed_precision,
        "threads": threads,
        "cores": os.cpu_count(),
        **git_state(),
    }


def code_version() -> dict[str, str | None]:
    """Which code runs: the package's version, and the commit of its checkout where there is one."""
    return {"version": _version("dsgd"), "git_commit": _commit()}


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the checkout that the package runs from; nulls outside of one."""
    commit = _commit()
    return {"git_commit": commit, "git_dirty": None if commit is None else bool(_git("status", "--porcelain"))}


def keep_freed_memory() -> None:
    """Let glibc keep what a step frees for the next one, instead of giving it back to the kernel and asking again.

    A step frees and takes hundreds of megabytes, and each page that comes from the kernel costs a fault. Where there is
    another C library, nothing changes.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 2**30)
        library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def set_tf32(allowed: bool) -> None:
    """Whether fp32 matrices and convolutions on CUDA may be multiplied with 10 bits of mantissa."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory_share(device: torch.device) -> float:
    """The share of the device's memory that all its processes hold; 0 for a CPU, whose memory is not divided."""
    if device.type != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info(device)
    return 1 - free / total


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bf16 in hardware (AMX, AVX-512 BF16), without which autocast is slower than fp32."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags


def _device(runtime: Runtime) -> torch.device:
    if runtime.device != "auto":
        return torch.device(runtime.device)
    if torch.cuda.is_available():
        count = torch.cuda.device_count() if "LOCAL_RANK" not in os.environ else 1  # a launcher has given ranks theirs
        slots = int(runtime.seeds_per_device) if runtime.seeds_per_device != "auto" else 1
        # A single device is not held where nothing was said: who starts two runs on it wants them both.
        return torch.device("cuda", claim_device(count, slots)) if count > 1 or slots > 1 else torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _precision(wanted: str, device: torch.device) -> str:
    """Accelerate's word for it: ``bf16`` (autocast) or ``no``."""
    if wanted == "auto":
        bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else device.type == "cpu" and cpu_has_bf16()
        return "bf16" if bf16 else "no"
    return "no" if wanted == "fp32" else wanted


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}: {platform.machine()}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
