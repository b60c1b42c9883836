"""Rules about where and how a run executes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from dsgd.config.cuda import cuda_device_count
from dsgd.config.messages import describe
from dsgd.config.parts import DSGD, Backend, Correctness, CrossEntropy
from dsgd.config.schema import Config, Modality


def _processes_match_the_launcher(config: Config) -> list[str]:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if config.trainer.processes == world:
        return []
    how = f"this launch has {world}; start with `torchrun --nproc_per_node {config.trainer.processes} run.py …`"
    return [describe("trainer.processes", config.trainer.processes, how)]


def _results_have_a_place(config: Config) -> list[str]:
    """Whether the folder is there or can be made, as far as names tell; what may be written is seen when it is."""
    folder = config.results_dir
    if not folder.strip():
        return [describe("results_dir", repr(folder), "give a folder")]
    try:
        nearest = next(path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.exists())
    except (OSError, ValueError) as error:  # too long a name, or a null character
        return [describe("results_dir", folder, f"give a folder ({getattr(error, 'strerror', None) or error})")]
    return [] if nearest.is_dir() else [describe("results_dir", folder, f"{nearest} is no folder")]


def _a_timeout_needs_a_child(config: Config) -> list[str]:
    if config.runtime.isolate or config.runtime.timeout is None:
        return []
    reason = "with runtime.isolate=false nothing can stop the run; give null"
    return [describe("runtime.timeout", f"{config.runtime.timeout:g}", reason)]


def _device_exists(config: Config) -> list[str]:
    device = config.runtime.device
    forms = ("auto", "cpu", "cuda", "mps")
    match = re.fullmatch(r"(auto|cpu|mps|cuda)|cuda:(\d+)", device)
    if match is None:
        return [describe("runtime.device", device, "give auto, cpu, cuda, cuda:N or mps", forms)]
    if device == "mps" and sys.platform != "darwin":
        return [describe("runtime.device", device, "this machine is no Mac; give auto, cpu, cuda or cuda:N")]
    if device.startswith("cuda"):
        count, wanted = cuda_device_count(), int(match[2] or 0)
        if wanted >= count:
            there = f"cuda:0 to cuda:{count - 1}" if count else "none"
            return [
                describe("runtime.device", device, f"CUDA devices on this machine: {there}; auto takes what is there")
            ]
    return []


def _cuda_s_settings_have_cuda(config: Config) -> list[str]:
    """And the number of runs that share a device is one."""
    runtime, found = config.runtime, []
    shared = runtime.seeds_per_device
    if shared != "auto" and not (shared.isdecimal() and int(shared) >= 1):
        return [describe("runtime.seeds_per_device", shared, "give a whole number of at least 1, or auto", ("auto",))]
    if _computes_on_cuda(runtime.device):
        return []
    if shared != "1":  # a CPU is shared by the launcher's workers
        reason = "the run has no CUDA device; give 1, and hydra/launcher=joblib for several runs at a time"
        found.append(describe("runtime.seeds_per_device", shared, reason))
    if runtime.tf32:
        found.append(describe("runtime.tf32", "true", "the run has no CUDA device; give false"))
    return found


def _ranks_share_no_device(config: Config) -> list[str]:
    if config.trainer.processes == 1 or config.runtime.seeds_per_device == "1":
        return []
    reason = f"trainer.processes = {config.trainer.processes} gives each process a device of its own; give 1"
    return [describe("runtime.seeds_per_device", config.runtime.seeds_per_device, reason)]


def _compiled_code_is_what_runs(config: Config) -> list[str]:
    """Compiled modules pass over hooks, and a new length of text would be compiled anew."""
    if not config.runtime.compile:
        return []
    obstacles = []
    if config.model.modality is not Modality.image:
        obstacles.append(f"model={config.model.name} reads texts, and each length would be compiled by itself")
    hooked = {"gradient": ("plain", "sam", "spikes"), "regularizer": ("none",), "diagnostics": ("none",)}
    obstacles += [
        f"{group}={name} looks into the layers, which compiled code does not let it"
        for group, allowed in hooked.items()
        if (name := getattr(config, group).name) not in allowed
    ]
    return [describe("runtime.compile", "true", f"{obstacle}; give false") for obstacle in obstacles]


def _parts_of_a_batch_can_be_computed_alone(config: Config) -> list[str]:
    if not config.runtime.split_by_length:
        return []
    obstacles = []
    if config.model.modality is not Modality.text:
        obstacles.append(f"model={config.model.name} reads images, which have no padding")
    if config.loss.needs_whole_window():
        obstacles.append(f"loss={config.loss.name} as set weighs by sums over the whole window")
    return [describe("runtime.split_by_length", "true", f"{obstacle}; give null or false") for obstacle in obstacles]


def _the_fused_kernel_can_serve(config: Config) -> list[str]:
    loss = config.loss
    if not isinstance(loss, CrossEntropy | DSGD) or loss.backend is not Backend.triton:
        return []
    ways_out, obstacles = "give auto or reference", []
    if find_spec("triton") is None:
        obstacles.append("Triton is not installed")
    if not _computes_on_cuda(config.runtime.device) and os.environ.get("TRITON_INTERPRET") != "1":
        obstacles.append("the run has no CUDA device, and TRITON_INTERPRET=1 is not set")
    if isinstance(loss, DSGD) and loss.correctness is Correctness.evaluation:
        obstacles.append("the kernel cannot take loss.correctness = evaluation")
    if loss.needs_whole_window():
        obstacles.append("the kernel knows only loss.normalization = full_m")
    return [describe("loss.backend", "triton", f"{obstacle}; {ways_out}") for obstacle in obstacles]


def _computes_on_cuda(device: str) -> bool:
    return device.startswith("cuda") or (device == "auto" and cuda_device_count() > 0)


def _observers_are_known(config: Config) -> list[str]:
    known = {"tracking": ("wandb", "none"), "diagnostics": ("none", "gradients", "representations", "all")}
    return [
        describe(f"{group}.name", name, f"give one of {', '.join(names)}", names)
        for group, names in known.items()
        if (name := getattr(config, group).name) not in names
    ]


#: Each gives its problems as lines.
RULES: tuple[Callable[[Config], list[str]], ...] = (
    _processes_match_the_launcher,
    _results_have_a_place,
    _a_timeout_needs_a_child,
    _device_exists,
    _cuda_s_settings_have_cuda,
    _ranks_share_no_device,
    _compiled_code_is_what_runs,
    _parts_of_a_batch_can_be_computed_alone,
    _the_fused_kernel_can_serve,
    _observers_are_known,
)
