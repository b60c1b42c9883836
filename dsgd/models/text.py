"""Pretrained text encoders and decoders with a fresh classification head."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForMultipleChoice, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from dsgd.config.architectures import ARCHITECTURES, Architecture, architecture_of
from dsgd.models.classifier import Classifier, require_fp32
from dsgd.models.multitask import Heads, MultiTaskClassifier
from dsgd.models.sources import ModelSource, SourceError, locate, require_trainable, resolve

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from dsgd.config.schema import Model

#: Llama 3's token that stands for nothing but padding.
LLAMA_PADDING = "<|finetune_right_pad_id|>"


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to ``model``, with a pad token, and of the inputs only those that ``model`` reads.

    Raises:
        SourceError: it is not there, is not the model's, or has no token to pad with.
    """
    source = locate(model)
    with _loading(source):
        config = _saved_config(source)
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.location, revision=source.revision, trust_remote_code=False
        )
    _refuse_foreign(tokenizer, config, source)
    if getattr(config, "type_vocab_size", 0) < 2:
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    tokenizer.pad_token = _pad_token(tokenizer, config.vocab_size, source)
    return tokenizer


def build_text_model(
    model: Model, num_classes: int, seed: int, choices: int = 1, heads: Sequence[int] = ()
) -> Classifier:
    """The pretrained network, on the CPU in fp32 and training mode, under a head that only ``seed`` decides.

    The head is the same whatever ``model.layers`` is, and the global random state is left as it was. A pooler that
    the checkpoint lacks is drawn after it.

    Args:
        model: names the weights and what is changed of them: depth, dropout, frozen embeddings.
        num_classes: K.
        seed: of the head's initialization.
        choices: input rows of one example; more than 1 asks for a shared scorer with one output, and is K then.
        heads: of several tasks each one's number of classes, K at most.

    Raises:
        SourceError: the weights are missing, altered or incomplete.
        ValueError: an unknown architecture, or more layers than the checkpoint has.
    """
    assert choices in (1, num_classes), "a shared scorer has one score a choice"
    source = resolve(model)
    with _loading(source):
        config = _config(model, source, num_classes if choices == 1 else 1)
        architecture = architecture_of(config.model_type, choices)
        network, report = _kind(architecture, choices).from_pretrained(
            source.location,
            config=config,
            revision=source.revision,
            dtype=torch.float32,  # transformers >= 5 takes the checkpoint's, and bf16 loses AdamW's small updates
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation=architecture.attention,
            ignore_mismatched_sizes=True,  # a head of another task; anything else is refused below
            output_loading_info=True,
        )
    if heads:
        network.set_submodule(architecture.head, Heads(network.get_submodule(architecture.head), heads))
    classifier = MultiTaskClassifier(network) if heads else Classifier(network, choices=choices)
    classifier.pooler_is_fresh = _lacks_pooler(report, architecture, source)
    _initialize(classifier, seed)
    if architecture.pooling == "last":
        network.config.pad_token_id = load_tokenizer(model).pad_token_id
    require_trainable(classifier, source.location)
    if model.freeze_embeddings:
        classifier.embeddings.requires_grad_(False)
    require_fp32(classifier)
    return classifier.train()


def _kind(architecture: Architecture, choices: int) -> Any:
    """The transformers class: of a decoder, a classifier with one label is the scorer of choices."""
    encodes_choices = choices > 1 and architecture.pooling != "last"
    return AutoModelForMultipleChoice if encodes_choices else AutoModelForSequenceClassification


def _config(model: Model, source: ModelSource, labels: int) -> PretrainedConfig:
    """The checkpoint's configuration with what ``model`` changes of it."""
    config = _saved_config(source, num_labels=labels)
    if config.model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"model {model.name} is a {config.model_type}: the known architectures are {known}")
    if model.layers is not None:
        _keep_layers(config, model.layers)
    if model.dropout is not None:
        config.update(dict.fromkeys(ARCHITECTURES[config.model_type].dropouts, model.dropout))
    config.use_cache = False  # of a decoder: nothing is generated, and a block that runs again would append to it
    return config


def _saved_config(source: ModelSource, **changes: Any) -> PretrainedConfig:
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(
            source.location, revision=source.revision, trust_remote_code=False, **changes
        )
    except ValueError as error:  # no model of text that transformers knows
        raise SourceError(f"cannot load {source.location}: {str(error).partition(chr(10))[0]}") from error
    return config


def _refuse_foreign(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, source: ModelSource) -> None:
    """A folder without tokenizer files gives one that knows no word; one of another model, ids that have no row."""
    vocabulary = tokenizer.get_vocab()
    if set(vocabulary) <= set(tokenizer.all_special_tokens):
        raise SourceError(f"{source.location} holds no tokenizer; tokenizer.save_pretrained() writes it")
    ids, rows = tokenizer.vocab_size, config.vocab_size  # without added tokens: see dsgd.config.checkpoints
    if ids > rows:
        raise SourceError(
            f"{source.location}: the tokenizer has {ids} tokens, and the model knows {rows}; it is another's"
        )


def _keep_layers(config: PretrainedConfig, layers: int) -> None:
    there = config.num_hidden_layers
    if layers > there:
        raise ValueError(f"model.layers = {layers}: the checkpoint has {there} transformer blocks")
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):  # one a block: which attention it has
        config.layer_types = config.layer_types[:layers]


def _pad_token(tokenizer: PreTrainedTokenizerBase, rows: int, source: ModelSource) -> str:
    """Llama 3's own, else the tokenizer's, else its end-of-text token, but never one that it ends texts with.

    A token whose id has no row of the embeddings cannot pad either, though its row would not change a number.
    """
    ends = tokenizer.convert_ids_to_tokens(tokenizer("a")["input_ids"][-1:])
    own = [token for token in (LLAMA_PADDING,) if token in tokenizer.get_vocab()]
    for token in (*own, tokenizer.pad_token, tokenizer.eos_token):
        if token is not None and token not in ends and tokenizer.convert_tokens_to_ids(token) < rows:
            return str(token)
    end = "".join(ends)
    raise SourceError(f"{source.location}: the tokenizer has no pad token and ends texts with {end}; set its pad_token")


def _lacks_pooler(report: dict[str, Any], architecture: Architecture, source: ModelSource) -> bool:
    """Whether an optional pooler is absent from the checkpoint; only it and the head may be.

    Weights beyond the model's own are simply not used.
    """
    missing = set(report["missing_keys"])
    absent = missing | {name for name, *_ in report["mismatched_keys"]}
    of_pooler = {name for name in missing if architecture.pooler and name.startswith(f"{architecture.pooler}.")}
    optional = of_pooler if architecture.pooler_is_optional else set()
    gaps = sorted(name for name in absent - optional if not name.startswith(f"{architecture.head}."))
    if gaps:
        some = ", ".join(gaps[:3])
        raise SourceError(f"{source.location}: {len(gaps)} pretrained weights missing or of another shape: {some}")
    return bool(optional)


def _initialize(classifier: Classifier, seed: int) -> None:
    """Draw what is not pretrained from a stream of its own, and over any saved head.

    Normal weights of the checkpoint's scale and zero biases, as most transformers models do.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in (module for part in classifier.fresh for module in part.modules()):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=classifier.initializer_range, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


@contextmanager
def _loading(source: ModelSource) -> Iterator[None]:
    """Load quietly, without a trace in the global random state, and report what is missing as ``SourceError``.

    Quietly, because transformers reports the missing head at length although a fresh one is what is asked for. A
    download shows itself on a terminal.
    """
    verbosity, bars, silent = logging.get_verbosity(), logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()  # the hub's too
    if sys.stderr.isatty() and not silent:
        enable_progress_bars()
    try:
        with torch.random.fork_rng(devices=[]):  # everything is built on the CPU
            yield
    except SafetensorError as error:
        raise SourceError(f"cannot load {source.location}: its safetensors are cut off or altered ({error})") from error
    except OSError as error:
        raise SourceError(f"cannot load {source.location} ({_advice(error, source)}): {error}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        (disable_progress_bars if silent else enable_progress_bars)()


def _advice(error: BaseException, source: ModelSource) -> str:
    """What to do, by the innermost cause that the hub's client names."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    copy = "or set model.path to a local copy"
    if any(isinstance(one, GatedRepoError) for one in causes):
        page = f"https://huggingface.co/{source.location}"
        return f"the model is gated; accept its licence at {page} and log in with `hf auth login`, {copy}"
    if any(isinstance(one, RevisionNotFoundError) for one in causes):
        return f"it has no revision {source.revision}; correct model.revision"
    if any(isinstance(one, RepositoryNotFoundError) for one in causes):
        return f"the hub has no such model, or it is private; correct model.hub_id, {copy}"
    return f"check the name and the connection, {copy}"
