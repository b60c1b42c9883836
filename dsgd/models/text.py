"""Pretrained text encoders with a fresh classification head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from dsgd.models.sources import ModelSource, SourceError, locate, resolve

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from dsgd.config.schema import Model


@dataclass(frozen=True)
class Architecture:
    """Where a transformers model keeps the modules that parts of a method reach for, and its dropout settings."""

    embeddings: str
    blocks: str
    head: str
    dropouts: tuple[str, ...]
    pooler: str | None = None
    below_head: tuple[str, ...] = ()  # called between the last block and the head, in this order


_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")

#: By ``model_type`` of the checkpoint's config.json.
ARCHITECTURES = {
    "bert": Architecture(
        "bert.embeddings", "bert.encoder.layer", "classifier", _DROPOUTS, "bert.pooler", ("bert.pooler", "dropout")
    ),
    "roberta": Architecture("roberta.embeddings", "roberta.encoder.layer", "classifier", _DROPOUTS),
}


class Classifier(nn.Module):
    """A transformers classification model behind one interface: tensors in, logits out, named places inside."""

    def __init__(self, network: PreTrainedModel) -> None:
        super().__init__()
        self.network = network
        self.architecture = ARCHITECTURES[network.config.model_type]

    def forward(self, **inputs: Tensor) -> Tensor:
        """Logits (n, K), in the dtype of the compute precision.

        ``inputs`` are (n, length) int64: ``input_ids``, ``attention_mask`` and, where the tokenizer makes them,
        ``token_type_ids``.
        """
        logits: Tensor = self.network(**inputs).logits
        return logits

    @property
    def embeddings(self) -> nn.Module:
        """What comes before the first transformer block."""
        return self._at(self.architecture.embeddings)

    @property
    def blocks(self) -> nn.ModuleList:
        """The transformer blocks, the lowest first."""
        blocks = self._at(self.architecture.blocks)
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    @property
    def head(self) -> nn.Module:
        """What is not pretrained. BERT's pooler is pretrained, so it belongs to the rest."""
        return self._at(self.architecture.head)

    @property
    def pooler(self) -> nn.Module | None:
        """The pretrained layer between the last block and the head, where there is one."""
        return None if self.architecture.pooler is None else self._at(self.architecture.pooler)

    @property
    def top(self) -> list[nn.Module]:
        """What leads from the last block's output to the logits, in the order of the calls; the head is last."""
        return [self._at(path) for path in (*self.architecture.below_head, self.architecture.head)]

    @property
    def token_embeddings(self) -> nn.Module:
        """What the tokens' ids become first; positions and types are added later."""
        module: nn.Module = self.network.get_input_embeddings()
        return module

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.network.config.num_labels)

    def _at(self, path: str) -> nn.Module:
        module: nn.Module = self.network.get_submodule(path)
        return module


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to ``model``.

    Raises:
        SourceError: it is not there.
    """
    source = locate(model)
    with _loading(source):
        return AutoTokenizer.from_pretrained(source.location, revision=source.revision, trust_remote_code=False)


def build_model(model: Model, num_classes: int, seed: int) -> Classifier:
    """The pretrained encoder, on the CPU in fp32 and training mode, under a head that only ``seed`` decides.

    The head is the same whatever ``model.layers`` is, and the global random state is left as it was.

    Args:
        model: names the weights and what is changed of them: depth, dropout, frozen embeddings.
        num_classes: K.
        seed: of the head's initialization.

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
    classifier = Classifier(network)
    _refuse_gaps(report, classifier.architecture.head, source)
    _initialize_head(classifier, seed)
    if model.freeze_embeddings:
        classifier.embeddings.requires_grad_(False)
    require_fp32(classifier)
    return classifier.train()


def require_fp32(module: nn.Module) -> None:
    """Check the dtype of every parameter.

    Raises:
        RuntimeError: one is not fp32.
    """
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise RuntimeError(f"{name} is {parameter.dtype}: AdamW's small updates round away unless it is float32")


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
            nn.init.normal_(module.weight, std=classifier.network.config.initializer_range, generator=generator)
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
