"""What was read, in numbers: for one line before training, and for the summary row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from dsgd.data.corpus import Corpus
    from dsgd.data.text import Split

#: From this share on, unknown tokens and cut texts are worth a warning.
NOTABLE = 0.2

#: Near copies are looked for in texts of no more characters than this in all, a second or two.
MOST_CHARACTERS = 50_000_000

#: A line names no more classes than this.
MOST_NAMED = 8


@dataclass(frozen=True)
class Facts:
    """What a task's source holds, whatever is left of it for training.

    Attributes:
        dropped: rows that are in neither split.
        dropped_as: what they are, in words.
        copies: training rows that are copies of others.
        shared: evaluation rows that are copies of training rows.
        near_copies: evaluation rows that differ from training rows in nothing but case and blanks.
        cut: share of the inputs that fill ``max_length``, where texts are cut; 0 for images.
        unknown: share of the tokens that stand for what the tokenizer does not know; the same.
    """

    dropped: int = 0
    dropped_as: str = "copies"
    copies: int = 0
    shared: int = 0
    near_copies: int = 0
    cut: float = 0.0
    unknown: float = 0.0


def facts_of_texts(corpus: Corpus, split: Split, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Facts:
    """Of a corpus and its tokens, ``split``."""
    texts = _rows(corpus)
    characters = sum(len(text) for inputs in texts for text in inputs)
    train, evaluation = ([texts[row] for row in rows] for rows in (corpus.train, corpus.evaluation))
    there = set(train)
    shared = [text in there for text in evaluation]
    near = 0
    if characters <= MOST_CHARACTERS:
        plain = set(map(_plain, train))
        near = sum(_plain(text) in plain for text, copy in zip(evaluation, shared, strict=True) if not copy)
    return Facts(
        dropped=corpus.dropped,
        dropped_as=corpus.dropped_as,
        copies=len(train) - len(there),
        shared=sum(shared),
        near_copies=near,
        cut=float((split.sizes >= max_length).any(axis=1).mean()),
        unknown=_unknown(split, tokenizer),
    )


def facts_of_images(contents: Sequence[Hashable], train: np.ndarray, evaluation: np.ndarray) -> Facts:
    """Of images by what makes one a copy of another; nothing where that is not known."""
    if not contents:
        return Facts()
    of_train = [contents[row] for row in train]
    there = set(of_train)
    shared = sum(contents[row] in there for row in evaluation)
    return Facts(copies=len(of_train) - len(there), shared=shared)


def joined_facts(parts: Sequence[Facts]) -> Facts:
    """Of several tasks: counts of all together, and of the shares the largest."""
    names = ("dropped", "copies", "shared", "near_copies")
    counts = {name: sum(getattr(part, name) for part in parts) for name in names}
    return Facts(**counts, cut=max(part.cut for part in parts), unknown=max(part.unknown for part in parts))


def summary(facts: Facts, classes: Sequence[str], train: np.ndarray, evaluation: np.ndarray) -> dict[str, Any]:
    """The column ``data`` of a run's summary row.

    Args:
        facts: of the source.
        classes: names in the order of the labels.
        train: (n,) labels of the examples that are trained on.
        evaluation: (m,) labels of those that are evaluated.
    """
    counts = (np.bincount(labels, minlength=len(classes)).tolist() for labels in (train, evaluation))
    by_class = {name: list(pair) for name, pair in zip(classes, zip(*counts, strict=True), strict=True)}
    return {"train": len(train), "evaluation": len(evaluation), "classes": by_class, **vars(facts)}


def line(data: dict[str, Any], max_length: int) -> str:
    """``data``, which ``summary`` gives, in one line; parts that say nothing are left out."""
    classes = [f"{name} {train} + {evaluation}" for name, (train, evaluation) in data["classes"].items()]
    more = f", … {len(classes) - MOST_NAMED} more" if len(classes) > MOST_NAMED else ""
    parts = [
        f"data: {data['train']} examples to train on + {data['evaluation']} to evaluate on",
        f"{len(classes)} classes: {', '.join(classes[:MOST_NAMED])}{more}",
        f"{data['dropped']} {data['dropped_as']} left out" if data["dropped"] else "",
        f"{data['copies']} copies among those to train on" if data["copies"] else "",
        f"{data['cut']:.0%} of the texts reach task.max_length = {max_length} and are cut" if data["cut"] else "",
        f"{data['unknown']:.1%} of the tokens are unknown to the model" if data["unknown"] >= 0.0005 else "",
    ]
    return "; ".join(part for part in parts if part)


def warnings(data: dict[str, Any], max_length: int, own: bool) -> list[str]:
    """What a reader of the results should know, a line each; a published task is cut as its publication says."""
    return [
        text
        for holds, text in (
            (
                data["unknown"] > NOTABLE,
                f"warning: the model does not know {data['unknown']:.0%} of the tokens and cannot read these texts; "
                "choose one of their language",
            ),
            (
                own and data["cut"] > NOTABLE,
                f"warning: {data['cut']:.0%} of the texts are cut at task.max_length = {max_length}; raise it to have "
                "more of them read",
            ),
            (
                data["shared"] > 0,
                f"warning: {data['shared']} of the examples to evaluate on are trained on too",
            ),
            (
                data["near_copies"] > 0,
                f"warning: {data['near_copies']} of the examples to evaluate on differ from ones to train on in case "
                "and blanks alone",
            ),
        )
        if holds
    ]


def _rows(corpus: Corpus) -> list[tuple[str, ...]]:
    """Each example's texts, those of its choices one after the other."""
    names = [name for part in corpus.template.parts for _, name, _, _ in Formatter().parse(part) if name]
    inputs = list(zip(*(corpus.fields[name] for name in dict.fromkeys(names)), strict=True))
    if corpus.choices == 1:
        return inputs
    groups = zip(*[iter(inputs)] * corpus.choices, strict=True)
    return [tuple(text for row in group for text in row) for group in groups]


def _plain(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(" ".join(text.casefold().split()) for text in texts)


def _unknown(split: Split, tokenizer: PreTrainedTokenizerBase) -> float:
    """Of all tokens but special ones; 0 where the tokenizer knows every byte and has no token for what it does not."""
    ids = split.flat["input_ids"]
    unknown = tokenizer.unk_token_id
    special = set(tokenizer.all_special_ids) - {unknown}
    others = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    if unknown is None or unknown in others:
        return 0.0
    counted = len(ids) - int(np.isin(ids, list(special)).sum())
    return int((ids == unknown).sum()) / max(counted, 1)
