"""Image classifiers of timm with a fresh head: vision transformers and convolutional nets, pretrained or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import timm
import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from safetensors import safe_open
from timm.models import PretrainedCfg, get_pretrained_cfg, is_model
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dsgd.config.architectures import Architecture
from dsgd.config.folders import WEIGHTS
from dsgd.models.classifier import Classifier, require_fp32
from dsgd.models.sources import ModelSource, SourceError, locate, require_trainable, resolve

if TYPE_CHECKING:
    from dsgd.config.schema import Model

#: Of timm, the transformer whose patch size, width and depth ``model.scratch`` sets.
SCRATCH_ARCHITECTURE = "vit_tiny_patch16_224"

#: Parameters that a timm transformer adds to its patches, beside ``patch_embed``.
_ADDED_TO_PATCHES = ("cls_token", "dist_token", "reg_token", "pos_embed")


@dataclass(frozen=True)
class ImagePreprocessor:
    """What a checkpoint expects of its images.

    Attributes:
        size: pixels a side.
        channels: 3, or 1 for grey.
        mean: of each channel, of values in [0, 1].
        std: the same.
        interpolation: ``bicubic`` or ``bilinear``.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str


class Normalize(nn.Module):
    """Stored images as a network takes them: resized, and normalised by the checkpoint's mean and deviation.

    It runs where the model is, so that only bytes of the stored size are sent to the device.
    """

    def __init__(self, preprocessor: ImagePreprocessor) -> None:
        super().__init__()
        self.preprocessor = preprocessor
        self.register_buffer("mean", torch.tensor(preprocessor.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(preprocessor.std)[:, None, None], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """``pixels`` (n, h, w, c) uint8, c = 1 or 3, as (n, channels, size, size) in the buffers' dtype."""
        wanted, mean, std = self.preprocessor, self.get_buffer("mean"), self.get_buffer("std")
        images = _with_channels(pixels.permute(0, 3, 1, 2).to(mean.dtype), wanted.channels)
        if images.shape[-2:] != (wanted.size, wanted.size):
            resized = interpolate(images, (wanted.size, wanted.size), mode=wanted.interpolation, antialias=True)
            images = resized.clamp(0, 255)  # bicubic curves overshoot, and image libraries cut them off
        return (images / 255 - mean) / std


class VisionClassifier(Classifier):
    """A timm model behind the interface of all classifiers; a convolutional net has no transformer blocks."""

    def __init__(self, network: Any, preprocessor: ImagePreprocessor) -> None:
        traits, pooling = network.pretrained_cfg, getattr(network, "global_pool", "token")
        architecture = Architecture(
            embeddings=traits["first_conv"],
            blocks="blocks",
            head=traits["classifier"],
            dropouts=(),
            pooling="first" if pooling == "token" else "mean",
        )
        super().__init__(network, architecture)
        self.normalize = Normalize(preprocessor)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Logits (n, K) of ``pixels`` (n, h, w, c) uint8."""
        logits: Tensor = self.network(self.normalize(inputs["pixels"]))
        return logits

    @property
    def is_transformer(self) -> bool:
        """Whether there are patches and blocks."""
        return hasattr(self.network, "patch_embed")

    @property
    def embeddings(self) -> nn.Module:
        """Patches, positions and class token; a convolutional net's first convolution."""
        if not self.is_transformer:
            return super().embeddings
        return _Embeddings(self.network)

    @property
    def blocks(self) -> nn.ModuleList:
        """The transformer blocks, the lowest first; none in a convolutional net."""
        return nn.ModuleList(self.network.blocks if self.is_transformer else [])

    @property
    def token_embeddings(self) -> nn.Module:
        """The patches before position and class token are added; a convolutional net's first convolution."""
        return self.network.patch_embed if self.is_transformer else super().embeddings

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.network.num_classes)

    @property
    def initializer_range(self) -> float:
        """Deviation of timm's truncated normal weights."""
        return 0.02


class _Embeddings(nn.Module):
    """A view of the modules and bare parameters below a transformer's blocks."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.patches = network.patch_embed
        for name in _ADDED_TO_PATCHES:
            self.register_parameter(name, getattr(network, name, None))


def build_vision_model(model: Model, num_classes: int, seed: int) -> VisionClassifier:
    """The network, on the CPU in fp32 and training mode, under a head that only ``seed`` decides.

    ``seed`` also decides all weights of a model from scratch. The global random state is left as it was.

    Raises:
        SourceError: the weights are missing, altered or incomplete.
        ValueError: more layers than the checkpoint has, or an image size that its patches do not divide.
    """
    checkpoint = _checkpoint(model, resolve)
    preprocessor = _preprocessor(model, checkpoint)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))  # another stream than the head's
        network = _create(model, checkpoint, preprocessor, num_classes)
    classifier = VisionClassifier(network, preprocessor)
    _keep_layers(classifier, model)
    _initialize_head(classifier, generator)
    require_trainable(classifier, model.path or model.name)
    if model.freeze_embeddings:
        classifier.embeddings.requires_grad_(False)
    require_fp32(classifier)
    return classifier.train()


def load_image_preprocessor(model: Model) -> ImagePreprocessor:
    """What ``model`` expects of its images; its weights are not read.

    Raises:
        SourceError: the checkpoint's config.json is not there or not timm's.
    """
    return _preprocessor(model, _checkpoint(model, locate))


# --- checkpoints ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Checkpoint:
    """A timm architecture, and the weights and data settings that belong to it, if any."""

    architecture: str
    arguments: dict[str, Any] = field(default_factory=dict)  # of ``timm.create_model``
    settings: dict[str, Any] = field(default_factory=dict)  # timm's ``pretrained_cfg``
    source: ModelSource | None = None


def _checkpoint(model: Model, find: Callable[[Model], ModelSource]) -> _Checkpoint:
    shape = model.scratch
    if shape.patch_size is not None:
        arguments = {
            "patch_size": shape.patch_size, "embed_dim": shape.width, "depth": shape.depth, "num_heads": shape.heads,
            "in_chans": shape.channels,
        }  # fmt: skip
        return _Checkpoint(SCRATCH_ARCHITECTURE, arguments)
    source = find(model)
    settings = json.loads(_file(source, "config.json").read_text(encoding="utf-8"))
    architecture = settings.get("architecture")
    if not isinstance(architecture, str) or not is_model(architecture):
        raise SourceError(f"{source.location}: config.json names no architecture that timm knows, but {architecture}")
    return _Checkpoint(architecture, settings.get("model_args", {}), settings.get("pretrained_cfg", settings), source)


def _file(source: ModelSource, name: str) -> Path:
    """A file of a local folder or of the hub, where it is downloaded once."""
    if Path(source.location).is_dir():
        file = Path(source.location) / name
        if not file.is_file():
            raise SourceError(f"{source.location} holds no {name}, which timm's save_for_hf writes beside the weights")
        return file
    try:
        return Path(hf_hub_download(source.location, name, revision=source.revision))
    except (OSError, EntryNotFoundError) as error:
        advice = "check the name and the connection, or set model.path to a local copy"
        raise SourceError(f"cannot load {name} of {source.location} ({advice}): {error}") from error


def _preprocessor(model: Model, checkpoint: _Checkpoint) -> ImagePreprocessor:
    """The checkpoint's own settings where it states them, else its architecture's."""
    usual = get_pretrained_cfg(checkpoint.architecture)
    settings = {**(usual.to_dict() if usual else {}), **checkpoint.settings}
    channels = checkpoint.arguments.get("in_chans", settings["input_size"][0])
    size = model.image_size or settings["input_size"][-1]
    mean, std = _per_channel(settings["mean"], channels), _per_channel(settings["std"], channels)
    return ImagePreprocessor(size, channels, mean, std, settings["interpolation"])


def _per_channel(values: Sequence[float], channels: int) -> tuple[float, ...]:
    """``values`` as they are, or their mean for a net with another number of channels."""
    return tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels


# --- networks -------------------------------------------------------------------------------------------------------


def _create(model: Model, checkpoint: _Checkpoint, preprocessor: ImagePreprocessor, num_classes: int) -> nn.Module:
    """The network with its weights; timm resamples position embeddings where the image size is another."""
    arguments = {**checkpoint.arguments, "num_classes": num_classes}
    usual = get_pretrained_cfg(checkpoint.architecture)
    if usual is not None and usual.fixed_input_size:
        arguments["img_size"] = preprocessor.size
    if model.dropout is not None:
        arguments["drop_rate"] = model.dropout
    network = (
        _load(checkpoint, arguments) if checkpoint.source else timm.create_model(checkpoint.architecture, **arguments)
    )
    _require_whole_patches(network, preprocessor.size)
    if model.dropout is not None:
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.p = model.dropout
    return network


def _load(checkpoint: _Checkpoint, arguments: dict[str, Any]) -> nn.Module:
    """Only the head may be absent from the file; weights beyond the network's own are simply not used."""
    assert checkpoint.source is not None
    weights = _file(checkpoint.source, WEIGHTS)
    known = {attribute.name for attribute in fields(PretrainedCfg)} - {"url", "hf_hub_id", "source"}
    settings = {name: value for name, value in checkpoint.settings.items() if name in known}
    settings |= {"architecture": checkpoint.architecture, "file": str(weights), "custom_load": False}
    try:
        network: nn.Module = timm.create_model(
            checkpoint.architecture, pretrained=True, pretrained_cfg=settings, **arguments
        )
    except RuntimeError as error:
        raise SourceError(f"{weights} does not fit {checkpoint.architecture}: {error}") from error
    with safe_open(weights, "pt") as file:
        gaps = sorted(set(network.state_dict()) - set(file.keys()) - _head_weights(network))
    if gaps:
        raise SourceError(f"{weights}: {len(gaps)} pretrained weights missing: {', '.join(gaps[:3])}")
    return network


def _head_weights(network: Any) -> set[str]:
    head = network.pretrained_cfg["classifier"]
    return {f"{head}.{name}" for name in network.get_submodule(head).state_dict()}


def _require_whole_patches(network: Any, size: int) -> None:
    patch = network.patch_embed.patch_size[0] if hasattr(network, "patch_embed") else 1
    if size % patch:
        raise ValueError(f"model.image_size = {size}: the patches are {patch} pixels a side; give a multiple of that")


def _keep_layers(classifier: VisionClassifier, model: Model) -> None:
    if model.layers is None:
        return
    there = len(classifier.blocks)
    if model.layers > there:
        raise ValueError(f"model.layers = {model.layers}: the checkpoint has {there} transformer blocks")
    classifier.network.blocks = classifier.network.blocks[: model.layers]


def _initialize_head(classifier: VisionClassifier, generator: torch.Generator) -> None:
    """Truncated normal weights and zero biases. Zero weights would tie all logits, and a tie counts as wrong."""
    for module in classifier.head.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=classifier.initializer_range, generator=generator)
            nn.init.zeros_(module.bias)


def _with_channels(images: Tensor, channels: int) -> Tensor:
    """Grey made three equal channels, or three made grey by their mean; (n, c, h, w) to (n, channels, h, w)."""
    if images.shape[1] == channels:
        return images
    return images.expand(-1, channels, -1, -1) if images.shape[1] == 1 else images.mean(1, keepdim=True)
