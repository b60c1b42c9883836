"""Pretrained models with a fresh classification head."""

from dsgd.models.text import Classifier, build_model, load_tokenizer, require_fp32

__all__ = ["Classifier", "build_model", "load_tokenizer", "require_fp32"]
