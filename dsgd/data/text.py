"""Texts as token arrays: tokenised once, cut into padded batches without a loop over examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from dsgd.methods.contracts import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Split:
    """n labelled token sequences.

    The sequences of the whole source lie end to end in ``flat``, which every part of it shares; row i is
    ``flat[name][starts[i] : starts[i] + lengths[i]]``.

    Attributes:
        labels: (n,) int64.
        index: (n,) int64, each example's row number in the source.
        lengths: (n,) int64, tokens, special ones included.
        starts: (n,) int64, positions in the arrays of ``flat``.
        flat: input name to (tokens of the source,) int32.
        padding: input name to the value behind a sequence's end.
    """

    labels: np.ndarray
    index: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    flat: dict[str, np.ndarray]
    padding: dict[str, int]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Split:
        """The examples at ``rows`` (k,), in that order; nothing is copied but their numbers."""
        chosen = {name: getattr(self, name)[rows] for name in ("labels", "index", "lengths", "starts")}
        return replace(self, **chosen)

    def batch(self, rows: np.ndarray, _augmentation: np.random.Generator | None = None) -> Batch:
        """The examples at ``rows`` (b,), padded on the right to the longest of them; all tensors int64."""
        lengths = self.lengths[rows][:, None]
        columns = np.arange(lengths.max())
        inside = columns < lengths  # (b, longest)
        positions = np.where(inside, self.starts[rows][:, None] + columns, 0)
        inputs = {
            name: torch.from_numpy(np.where(inside, tokens[positions], self.padding[name]).astype(np.int64))
            for name, tokens in self.flat.items()
        }
        inputs["attention_mask"] = torch.from_numpy(inside.astype(np.int64))
        return Batch(inputs, torch.from_numpy(self.labels[rows]))


def encode(
    texts: list[str], labels: np.ndarray, index: np.ndarray, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Split:
    """All texts as one split, each cut after ``max_length`` tokens.

    Args:
        texts: n texts.
        labels: (n,) int64.
        index: (n,) int64, row numbers in the source.
        tokenizer: a fast one, which takes all texts in one call.
        max_length: tokens, special ones included.

    Raises:
        ValueError: ``max_length`` is more than the model takes.
    """
    if max_length > tokenizer.model_max_length:
        raise ValueError(f"task.max_length = {max_length}: the model takes {tokenizer.model_max_length} tokens at most")
    encoded = tokenizer(texts, truncation=True, max_length=max_length, return_attention_mask=False)
    lengths = np.array([len(tokens) for tokens in encoded["input_ids"]], dtype=np.int64)
    flat = {name: np.fromiter(chain.from_iterable(rows), np.int32, lengths.sum()) for name, rows in encoded.items()}
    padding = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
    return Split(labels, index, lengths, np.cumsum(lengths) - lengths, flat, padding)
