"""How models, tasks and methods are written in tables and figures; a name without an entry is written as it is."""

from __future__ import annotations

MODELS = {
    "roberta_large": "RoBERTa-large",
    "llama_3_2_1b": "Llama-3.2-1B",
    "vit_base": "ViT-base",
    "minilm": "MiniLM",
}

TASKS = {
    "multirc": "MultiRC",
    "copa": "COPA",
    "rte": "RTE",
    "boolq": "BoolQ",
    "mrpc": "MRPC",
    "cola": "CoLA",
    "bbc_news": "BBC News",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}

METHODS = {
    "fft": "FFT",
    "focal": "FocalLoss",
    "lnsr": "LNSR",
    "noisytune": "NoisyTune",
    "pcgrad": "PCGrad",
    "swa": "SWA",
    "dsgd": "DSGD",
    "lora": "LoRA",
    "adalora": "AdaLoRA",
    "ia3": "IA3",
    "ema": "EMA",
    "sam": "SAM",
    "gradient_stabilizer": "GradientStabilizer",
}

IMBALANCES = {"longtail": "long-tailed", "step": "step"}


def model_title(name: str) -> str:
    """``roberta_large`` → RoBERTa-large."""
    return MODELS.get(name, name)


def task_title(name: str) -> str:
    """``mrpc`` → MRPC, ``mrpc+rte`` → MRPC + RTE, ``cifar10_longtail_100`` → CIFAR-10 long-tailed 100:1.

    ``rte-sample``, a part of the data set, → RTE (sample).
    """
    whole = name.removesuffix("-sample")
    parts = whole.split("_")
    if len(parts) == 3 and parts[1] in IMBALANCES:
        title = f"{TASKS.get(parts[0], parts[0])} {IMBALANCES[parts[1]]} {parts[2]}:1"
    else:
        title = " + ".join(TASKS.get(part, part) for part in whole.split("+"))
    return f"{title} (sample)" if whole != name else title


def method_title(label: str) -> str:
    """``dsgd[tau=0.5]`` → DSGD[tau=0.5]: the preset by its usual name, what was changed as it is."""
    end = min((label.find(mark) for mark in "+[" if mark in label), default=len(label))
    return METHODS.get(label[:end], label[:end]) + label[end:]


def variant_title(label: str, variant: str) -> str:
    """``swa`` evaluated as ``swa3`` → SWA (k=3)."""
    return f"{method_title(label)} (k={variant.removeprefix('swa')})"


def ensemble_title(label: str, size: int) -> str:
    """Of ``fft`` ENS (×3), as the paper has it; of others DSGD (×9)."""
    return f"ENS (×{size})" if label == "fft" else f"{method_title(label)} (×{size})"
