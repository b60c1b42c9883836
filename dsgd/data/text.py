"""Texts as token arrays: tokenised once, cut into padded batches without a loop over examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from dsgd.data.corpus import Corpus
from dsgd.data.tokens import tokens
from dsgd.methods.contracts import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Split:
    """n labelled examples of ``choices`` token sequences each.

    The sequences of the whole source lie end to end in ``flat``, which every part of it shares; choice c of row i is
    ``flat[name][starts[i, c] : starts[i, c] + sizes[i, c]]``.

    Attributes:
        labels: (n,) int64.
        index: (n,) int64, each example's row number in the source.
        starts: (n, choices) int64, positions in the arrays of ``flat``.
        sizes: (n, choices) int64, tokens, special ones included.
        flat: input name to (tokens of the source,) int32.
        padding: input name to the value behind a sequence's end.
    """

    labels: np.ndarray
    index: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    flat: dict[str, np.ndarray]
    padding: dict[str, int]

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64, tokens of each example's longest sequence."""
        longest: np.ndarray = self.sizes.max(axis=1)
        return longest

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Split:
        """The examples at ``rows`` (k,), in that order; nothing is copied but their numbers."""
        chosen = {name: getattr(self, name)[rows] for name in ("labels", "index", "starts", "sizes")}
        return replace(self, **chosen)

    def batch(self, rows: np.ndarray, _augmentation: np.random.Generator | None = None) -> Batch:
        """The examples at ``rows`` (b,); all tensors int64.

        Inputs are (b · choices, longest), an example's choices in adjacent rows, padded on the right.
        """
        sizes = self.sizes[rows].reshape(-1, 1)
        columns = np.arange(sizes.max())
        inside = columns < sizes  # (b · choices, longest)
        positions = np.where(inside, self.starts[rows].reshape(-1, 1) + columns, 0)
        inputs = {
            name: torch.from_numpy(np.where(inside, values[positions], self.padding[name]).astype(np.int64))
            for name, values in self.flat.items()
        }
        inputs["attention_mask"] = torch.from_numpy(inside.astype(np.int64))
        return Batch(inputs, torch.from_numpy(self.labels[rows]))


def encode(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Split:
    """All examples of ``corpus`` as one split.

    Args:
        corpus: texts, labels and the template that joins them.
        tokenizer: a fast one, which takes all texts in one call.
        max_length: tokens of a sequence, special ones included.

    Raises:
        ValueError: ``max_length`` is more than the model takes, or less than what may not be cut.
    """
    if max_length > tokenizer.model_max_length:
        raise ValueError(f"task.max_length = {max_length}: the model takes {tokenizer.model_max_length} tokens at most")
    table = tokens(corpus.fields, corpus.template, tokenizer, max_length)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    offsets = columns["input_ids"].offsets.to_numpy().astype(np.int64)
    shape = (len(corpus.labels), corpus.choices)
    return Split(
        labels=corpus.labels,
        index=corpus.index,
        starts=offsets[:-1].reshape(shape),
        sizes=np.diff(offsets).reshape(shape),
        flat={name: column.values.to_numpy() for name, column in columns.items()},
        padding={"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id},
    )
