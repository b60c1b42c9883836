"""Texts as token ids: a template's rows rendered, cut to length where they may be cut, and remembered."""

from __future__ import annotations

import hashlib
import json
import zlib
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import pyarrow as pa
import tokenizers

from dsgd.cache import cached
from dsgd.data.corpus import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Fields = dict[str, list[str]]  # field → the text of each row
Encoded = dict[str, list[list[int]]]  # input name → the values of each row

_CHECKSUM = b"crc32"

#: Characters; of a text that has more, the tokenizer is given a beginning only.
VERY_LONG = 20_000

#: Tokens at the end of a beginning that the missing rest could change.
MARGIN = 16


def tokens(fields: Fields, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int) -> pa.Table:
    """What :func:`tokenize` gives, from the cache where the same texts were tokenised in the same way before."""
    name = f"tokens/{_digest(fields, template, tokenizer, max_length)}.arrow"
    return cached(name, lambda: tokenize(fields, template, tokenizer, max_length), _save, _load)


def tokenize(fields: Fields, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int) -> pa.Table:
    """The rows of ``fields`` as inputs of at most ``max_length`` tokens, special ones included.

    Returns:
        a row for each row, a column of int32 lists for each input of the model but the attention mask.

    Raises:
        ValueError: what may not be cut is longer than ``max_length`` in some row.
    """
    fields = {
        name: _beginnings(texts, tokenizer, max_length) if name in template.cut else texts
        for name, texts in fields.items()
    }
    if _tokenizer_cuts(template, tokenizer):
        encoded = _encode(fields, template, tokenizer, max_length)
    else:
        encoded = _encode(fields, template, tokenizer, None)
        _shorten(encoded, fields, template, tokenizer, max_length)
    return pa.table({name: pa.array(rows, pa.list_(pa.int32())) for name, rows in encoded.items()})


def _beginnings(texts: list[str], tokenizer: PreTrainedTokenizerBase, max_length: int) -> list[str]:
    """``texts``, of those that are very long only a beginning, which has more tokens than are ever kept.

    Tokenising what is then cut off would take seconds and gigabytes for a text of megabytes.
    """
    if tokenizer.truncation_side != "right":
        return texts
    shortened = list(texts)
    kept = {row: 16 * max_length for row, text in enumerate(texts) if len(text) > VERY_LONG}
    while kept:
        beginnings = [texts[row][:count] for row, count in kept.items()]
        encoded = tokenizer(beginnings, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for (row, count), ids in zip(list(kept.items()), encoded["input_ids"], strict=True):
            if len(ids) > max_length + MARGIN or count >= len(texts[row]):
                shortened[row] = texts[row][:count]
                del kept[row]
            else:
                kept[row] = 8 * count
    return shortened


def pair_separator(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The special tokens between the two texts of a pair, or None where the tokenizer has no form for pairs.

    Decoders' tokenizers have none; Llama's begins the second text with a second start-of-text token.
    """
    if tokenizer.sep_token is None:
        return None
    pair = tokenizer("a", "b", return_special_tokens_mask=True)
    texts = [place for place, special in enumerate(pair["special_tokens_mask"]) if not special]
    between = [range(here + 1, there) for here, there in pairwise(texts) if there > here + 1]
    ids = [pair["input_ids"][place] for place in between[0]] if between else []
    return "".join(tokenizer.convert_ids_to_tokens(ids)) or None


def _encode(fields: Fields, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> Encoded:
    """Every row as the tokenizer makes it, cut by itself after ``max_length`` tokens where that is given."""
    encoded = tokenizer(
        *_render(fields, template, tokenizer),
        truncation=max_length is not None,
        max_length=max_length,
        return_attention_mask=False,
        verbose=False,  # of rows that are too long as yet
    )
    return dict(encoded)


def _render(fields: Fields, template: Template, tokenizer: PreTrainedTokenizerBase) -> list[list[str]]:
    """The texts of each row: one list, or two for a tokenizer of pairs."""
    rows = [dict(zip(fields, texts, strict=True)) for texts in zip(*fields.values(), strict=True)]
    parts = [[part.format_map(row) for row in rows] for part in template.parts]
    separator = pair_separator(tokenizer) if len(parts) > 1 else None
    if separator is None:
        return [["\n".join(texts) for texts in zip(*parts, strict=True)]]
    return [parts[0], [separator.join(texts) for texts in zip(*parts[1:], strict=True)]]


def _tokenizer_cuts(template: Template, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer's own truncation, at the end of the longest text, is what the template asks for."""
    fields = [name for part in template.parts for _, name, _, _ in Formatter().parse(part) if name]
    one_field_a_text = len(template.parts) == 1 or (len(template.parts) == 2 and pair_separator(tokenizer) is not None)
    return one_field_a_text and len(fields) == len(template.parts) and set(fields) == set(template.cut)


# --- cutting what may be cut ----------------------------------------------------------------------------------------


def _shorten(
    encoded: Encoded, fields: Fields, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
    """Replace the rows of ``encoded`` that are too long by ones whose fields were cut.

    The texts are cut, where a token begins, and tokenised again: so the inputs have the form that the tokenizer gives
    them. As tokens may join otherwise then, one more round can be needed.
    """
    long = [row for row, ids in enumerate(encoded["input_ids"]) if len(ids) > max_length]
    texts = {name: [column[row] for row in long] for name, column in fields.items()}
    while long:
        _cut(texts, template, tokenizer, [len(encoded["input_ids"][row]) for row in long], max_length)
        again = _encode(texts, template, tokenizer, None)
        for name, rows in again.items():
            for row, values in zip(long, rows, strict=True):
                encoded[name][row] = values
        still = [place for place, ids in enumerate(again["input_ids"]) if len(ids) > max_length]
        texts = {name: [column[place] for place in still] for name, column in texts.items()}
        long = [long[place] for place in still]


def _cut(
    texts: Fields, template: Template, tokenizer: PreTrainedTokenizerBase, lengths: list[int], max_length: int
) -> None:
    """Take from the fields that may be cut as many tokens as each row has beyond ``max_length``."""
    starts = {name: _token_starts(texts[name], tokenizer) for name in template.cut}
    fixed = [length - sum(len(starts[name][row]) for name in template.cut) for row, length in enumerate(lengths)]
    if max(fixed) > max_length:
        cut = " and ".join(template.cut)
        raise ValueError(
            f"task.max_length = {max_length}: beside {cut}, of which all may be cut, a row has {max(fixed)} tokens"
        )
    for row, length in enumerate(lengths):
        kept = _without_the_longest_ends([len(starts[name][row]) for name in template.cut], length - max_length)
        for name, count in zip(template.cut, kept, strict=True):
            if count < len(starts[name][row]):
                # A character of several tokens starts where each of them does, so it goes as a whole.
                texts[name][row] = texts[name][row][: starts[name][row][count]].rstrip()


def _token_starts(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Where in its text each token begins."""
    offsets = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    return [[start for start, _ in row] for row in offsets]


def _without_the_longest_ends(counts: list[int], excess: int) -> list[int]:
    """``counts`` less ``excess`` in all, always taken from the largest."""
    left = list(counts)
    for _ in range(excess):
        left[left.index(max(left))] -= 1
    return left


# --- the cache ------------------------------------------------------------------------------------------------------


def _digest(fields: Fields, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int) -> str:
    """Of all that the tokens depend on: the texts themselves, so that no revision need be trusted."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # else what an earlier call has left there counts; every call sets both anew
    backend.no_padding()
    digest = hashlib.sha256(backend.to_str().encode())
    rest = (fields, template.parts, template.cut, tokenizer.model_input_names, tokenizer.special_tokens_map, max_length)
    digest.update(json.dumps([tokenizers.__version__, *rest], default=str).encode())
    return digest.hexdigest()[:32]


def _save(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink:
        checked = table.replace_schema_metadata({_CHECKSUM: str(_checksum(table))})
        with pa.ipc.new_file(sink, checked.schema) as writer:
            writer.write_table(checked)


def _load(path: Path) -> pa.Table:
    """Mapped, not copied: runs side by side share it.

    Raises:
        ValueError: the file is cut off or altered.
    """
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    if str(_checksum(table)).encode() != (table.schema.metadata or {}).get(_CHECKSUM):
        raise ValueError(f"{path}: the checksum is another")
    return table


def _checksum(table: pa.Table) -> int:
    checksum = 0
    for column in table.columns:
        for chunk in column.chunks:
            for array in (chunk.offsets, chunk.flatten()):
                checksum = zlib.crc32(array.to_numpy(), checksum)
    return checksum
