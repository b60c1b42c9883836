"""What a run will take before it has been tried: time, memory and disk, by arithmetic. All of it is an estimate.

Time: a forward pass takes 2 operations a parameter and token, the backward pass twice that (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1); lookup tables take none. Divided by what a device sustains (``devices.yaml``). Where a
task's YAML does not say how long its inputs are, they count with the full length, which makes it an upper bound.

Memory: 16 bytes a trained parameter (fp32 weight, gradient and AdamW's two moments), 4 a frozen one, and 17 activation
values of the block's width a token and block (Korthikanti et al. 2022, arXiv:2205.05198, equation 2, at 2 bytes each,
without the attention matrix, which fused attention does not keep).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from experiments.grid import Facts

#: Passes of the whole network, forward and backward, that a step takes beside plain training's one.
EXTRA_PASSES = {"gradient=sam": 1.0, "regularizer=r3f": 1.0, "gradient=pcgrad": 0.2, "gradient=cagrad": 0.2}

#: Measured on run folders of minilm × bbc_news: bytes of one history line, and of everything else but predictions.
HISTORY_BYTES, OTHER_BYTES = 350, 5_000


@dataclass(frozen=True)
class Device:
    """One entry of ``devices.yaml``."""

    name: str
    tflops: float
    least_step: float
    bytes: int
    memory_gib: float | None


@cache
def devices() -> dict[str, Device]:
    """All devices by their short names."""
    table = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("devices.yaml")))
    assert isinstance(table, dict)
    return {str(key): Device(**entry) for key, entry in table.items()}


def steps(facts: Facts) -> int | None:
    """Optimiser steps of the run."""
    if facts.max_steps is not None or facts.train_examples is None:
        return facts.max_steps
    return facts.epochs * math.ceil(facts.train_examples / facts.window)


def seconds(facts: Facts, device: Device) -> float | None:
    """Training and evaluations of one run; None where the YAMLs lack the facts."""
    total, forward = steps(facts), _forward_tflop(facts)
    if total is None or forward is None or facts.evaluation_examples is None:
        return None
    backward = 1.0 if "adapter=full" in facts.parts else 0.5  # frozen weights need no gradients of their own
    passes = (1 + 2 * backward) * (1 + sum(EXTRA_PASSES.get(part, 0.0) for part in facts.parts))
    step = max(device.least_step, facts.window * forward * passes / device.tflops)
    each = total if facts.train_examples is None else math.ceil(facts.train_examples / facts.window)
    evaluations = 1 + math.ceil(total / each)  # one before the first step, one after each epoch
    return total * step + evaluations * facts.evaluation_examples * forward / device.tflops


def memory_bytes(facts: Facts, device: Device) -> float | None:
    """Weights, gradients, optimiser and activations while training; None where the YAMLs lack the facts."""
    if facts.parameters is None or facts.blocks is None:
        return None
    states = facts.parameters * (16 if "adapter=full" in facts.parts else 4)
    width = math.sqrt((facts.parameters - (facts.embeddings or 0)) / (12 * facts.blocks))
    return states + facts.micro_batch * facts.inputs * facts.tokens * facts.blocks * 17 * width * device.bytes


def disk_bytes(facts: Facts) -> float | None:
    """One run folder: a row a prediction with its probabilities, a line a step."""
    total = steps(facts)
    if total is None or facts.evaluation_examples is None:
        return None
    row = 24 + 12 * (facts.classes or 2)
    return facts.evaluation_examples * row + total * HISTORY_BYTES + OTHER_BYTES


def _forward_tflop(facts: Facts) -> float | None:
    """One example's forward pass, in 10¹² operations."""
    if facts.gflops is not None:
        return facts.inputs * facts.gflops / 1e3
    if facts.parameters is None:
        return None
    return facts.inputs * facts.tokens * 2 * (facts.parameters - (facts.embeddings or 0)) / 1e12
