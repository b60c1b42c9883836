"""Pretrained text encoders with a fresh classification head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from dsgd.models.classifier import ARCHITECTURES, Classifier, require_fp32
from dsgd.models.sources import ModelSource, SourceError, locate, resolve

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from dsgd.config.schema import Model


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to ``model``.

    Raises:
        SourceError: it is not there.
    """
    source = locate(model)
    with _loading(source):
        return AutoTokenizer.from_pretrained(source.location, revision=source.revision, trust_remote_code=False)


def build_text_model(model: Model, num_classes: int, seed: int, choices: int = 1) -> Classifier:
    """The pretrained encoder, on the CPU in fp32 and training mode, under a head that only ``seed`` decides.

    The head is the same whatever ``model.layers`` is, and the global random state is left as it was.

    Args:
        model: names the weights and what is changed of them: depth, dropout, frozen embeddings.
        num_classes: K.
        seed: of the head's initialization.
        choices: input rows of one example; more than 1 asks for a shared scorer with one output.

    Raises:
        SourceError: the weights are missing, altered or incomplete.
        ValueError: an unknown architecture, or more layers than the checkpoint has.
    """
    source = resolve(model)
    with _loading(source):
        network, report = AutoModelForSequenceClassification.from_pretrained(
            source.location,
            config=_config(model, source, num_classes),
            revision=source.revision,
            dtype=torch.float32,  # transformers >= 5 takes the checkpoint's, and bf16 loses AdamW's small updates
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            ignore_mismatched_sizes=True,  # a head of another task; anything else is refused below
            output_loading_info=True,
        )
    classifier = Classifier(network, choices=choices)
    _refuse_gaps(report, classifier.architecture.head, source)
    _initialize_head(classifier, seed)
    if model.freeze_embeddings:
        classifier.embeddings.requires_grad_(False)
    require_fp32(classifier)
    return classifier.train()


def _config(model: Model, source: ModelSource, num_classes: int) -> PretrainedConfig:
    """The checkpoint's configuration with what ``model`` changes of it."""
    config = AutoConfig.from_pretrained(
        source.location, revision=source.revision, num_labels=num_classes, trust_remote_code=False
    )
    if config.model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"model {model.name} is a {config.model_type}: the known architectures are {known}")
    if model.layers is not None:
        if model.layers > config.num_hidden_layers:
            there = config.num_hidden_layers
            raise ValueError(f"model.layers = {model.layers}: the checkpoint has {there} transformer blocks")
        config.num_hidden_layers = model.layers
    if model.dropout is not None:
        config.update(dict.fromkeys(ARCHITECTURES[config.model_type].dropouts, model.dropout))
    return config


def _refuse_gaps(report: dict[str, Any], head: str, source: ModelSource) -> None:
    """Only the head may be absent from the checkpoint; weights beyond the model's own are simply not used."""
    absent = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    gaps = sorted(name for name in absent if not name.startswith(f"{head}."))
    if gaps:
        some = ", ".join(gaps[:3])
        raise SourceError(f"{source.location}: {len(gaps)} pretrained weights missing or of another shape: {some}")


def _initialize_head(classifier: Classifier, seed: int) -> None:
    """As transformers does, normal weights and zero biases, but from a stream of its own and over any saved head."""
    generator = torch.Generator().manual_seed(seed)
    for module in classifier.head.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=classifier.initializer_range, generator=generator)
            nn.init.zeros_(module.bias)


@contextmanager
def _loading(source: ModelSource) -> Iterator[None]:
    """Load quietly, without a trace in the global random state, and report what is missing as ``SourceError``.

    Quietly, because transformers reports the missing head at length although a fresh one is what is asked for.
    """
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):  # everything is built on the CPU
            yield
    except OSError as error:
        advice = "check the name and the connection, or set model.path to a local copy"
        raise SourceError(f"cannot load {source.location} ({advice}): {error}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
