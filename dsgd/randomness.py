"""The random streams of a run, each derived from ``seed`` and, but for the bootstrap's, each settable by itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsgd.config.schema import Config


@dataclass(frozen=True)
class Streams:
    """One seed per source of variation (Dodge et al. 2020, arXiv:2002.06305, vary the first two)."""

    initialization: int  # the fresh head, and noise that an initialization adds
    data_order: int
    dropout: int  # and whatever else draws while training
    subset: int  # the imbalanced subset of the training split; the same for every ``seed`` unless set
    bootstrap: int | None  # the resample of that subset, for bagging; None where the task asks for none


def streams(config: Config) -> Streams:
    """The seeds of ``config``: those set under ``seeds``, the others derived from ``seed``."""
    seeds = config.seeds
    return Streams(
        initialization=_chosen(seeds.initialization, "initialization", config.seed),
        data_order=_chosen(seeds.data_order, "data_order", config.seed),
        dropout=_chosen(seeds.dropout, "dropout", config.seed),
        subset=config.task.imbalance.subset_seed if seeds.subset is None else seeds.subset,
        bootstrap=_chosen(None, "bootstrap", config.seed) if config.task.bootstrap else None,
    )


def _chosen(seed: int | None, stream: str, run_seed: int) -> int:
    """A hash and not ``run_seed + constant``, so that no stream of one run equals a stream of another."""
    if seed is not None:
        return seed
    return int.from_bytes(hashlib.sha256(f"{stream}:{run_seed}".encode()).digest()[:4], "little")
