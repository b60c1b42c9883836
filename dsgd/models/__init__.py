"""Pretrained models with a fresh classification head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsgd.config.schema import Modality
from dsgd.models.classifier import Classifier, require_fp32
from dsgd.models.text import build_text_model, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from dsgd.config.schema import Model
    from dsgd.models.vision import ImagePreprocessor

__all__ = ["Classifier", "build_model", "load_preprocessor", "load_tokenizer", "require_fp32"]


def build_model(model: Model, num_classes: int, seed: int, choices: int = 1, heads: Sequence[int] = ()) -> Classifier:
    """The model that ``model`` names, on the CPU in fp32 and training mode, under a head that only ``seed`` decides.

    Args:
        model: names the weights and what is changed of them.
        num_classes: K.
        seed: of the head's initialization.
        choices: input rows of one example; more than 1 asks for a shared scorer with one output.
        heads: of several tasks each one's number of classes, K at most.
    """
    if model.modality is Modality.image:
        from dsgd.models.vision import build_vision_model  # timm takes seconds to import

        return build_vision_model(model, num_classes, seed)
    return build_text_model(model, num_classes, seed, choices, heads)


def load_preprocessor(model: Model) -> PreTrainedTokenizerBase | ImagePreprocessor:
    """What turns a task's examples into the model's inputs."""
    if model.modality is Modality.image:
        from dsgd.models.vision import load_image_preprocessor

        return load_image_preprocessor(model)
    return load_tokenizer(model)
