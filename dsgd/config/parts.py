"""The dataclasses of what fills a method's slots, slot by slot, and γ_t's. Torch-free.

To add a part: its dataclass here and in ``PARTS``, ``conf/<slot>/<name>.yaml``, and ``dsgd/methods/<slot>/<name>.py``
with a class of the dataclass's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from omegaconf import MISSING

from dsgd.config.fields import at_least, fraction, positive, ranged, within


@dataclass
class Part:
    """What fills one slot; ``name`` is the file's name in ``conf/<slot>/`` and ``dsgd/methods/<slot>/``."""

    name: str = MISSING


@dataclass
class Loss(Part):
    """Per-example losses and their weights."""

    reads_schedule: ClassVar[bool] = False

    def needs_whole_window(self) -> bool:
        """Whether the weights depend on all examples of the optimiser window, so that it cannot be split."""
        return False


class Backend(Enum):
    """Who computes the loss: the fused Triton kernel, plain PyTorch, or (auto) the kernel on CUDA devices."""

    auto = "auto"
    triton = "triton"
    reference = "reference"


@dataclass
class CrossEntropy(Loss):
    """Plain mean cross-entropy: full fine-tuning."""

    name: str = "cross_entropy"
    label_smoothing: float = fraction(0.0)
    backend: Backend = Backend.auto


class Ties(Enum):
    """Whether an example whose true class shares the highest logit counts as wrong or goes by ``argmax``."""

    wrong = "wrong"
    argmax = "argmax"


class Correctness(Enum):
    """Which forward pass decides W and C: the training one, dropout on, or one in evaluation mode (a control)."""

    train = "train"
    evaluation = "evaluation"


class Normalization(Enum):
    """``full_m`` is the method; the other two are ablations that change the step size."""

    full_m = "full_m"
    sum_w = "sum_w"
    per_group = "per_group"


@dataclass
class DSGD(Loss):
    """Dynamic scaled gradient descent."""

    reads_schedule: ClassVar[bool] = True
    name: str = "dsgd"
    label_smoothing: float = fraction(0.0)
    ties: Ties = Ties.wrong
    correctness: Correctness = Correctness.train
    normalization: Normalization = Normalization.full_m
    backend: Backend = Backend.auto

    def needs_whole_window(self) -> bool:
        """The ablations divide by sums over the whole window."""
        return self.normalization is not Normalization.full_m


@dataclass
class RandomCorrect(Loss):
    """Control of DSGD: γ_t falls on a random subset of the size of C."""

    reads_schedule: ClassVar[bool] = True
    name: str = "random_correct"

    def needs_whole_window(self) -> bool:
        """The subset is drawn from all examples of the window."""
        return True


@dataclass
class UniformShrink(Loss):
    """Control of DSGD: every example weighs the mean of DSGD's weights, a pure change of step size."""

    reads_schedule: ClassVar[bool] = True
    name: str = "uniform_shrink"

    def needs_whole_window(self) -> bool:
        """The mean is the window's."""
        return True


@dataclass
class Confidence(Loss):
    """Control of DSGD: w = 1 - p_y, whether right or wrong, and at every step."""

    name: str = "confidence"


@dataclass
class Focal(Loss):
    """Focal loss."""

    name: str = "focal"
    gamma: float = at_least(2.0, 0)
    alpha: float | None = within(None, 0, 1)  # two classes: of class 1, and 1 - alpha of class 0; else of all
    alpha_by_class: list[float] | None = None  # in the place of alpha


@dataclass
class OHEM(Loss):
    """Online hard example mining: the share of the window with the highest losses."""

    name: str = "ohem"
    keep: float = ranged(0.5, lambda value: 0 < value <= 1, "a number in (0, 1]")

    def needs_whole_window(self) -> bool:
        """The highest losses are the window's."""
        return True


@dataclass
class LogitAdjustment(Loss):
    """Cross-entropy of logits shifted by the log prior of the training classes."""

    name: str = "logit_adjustment"
    tau: float = at_least(1.0, 0)


@dataclass
class ClassBalanced(Loss):
    """Cross-entropy weighted by the effective number of samples of each class."""

    name: str = "class_balanced"
    beta: float = fraction(0.9999)
    deferred: float = fraction(0.0)  # share of the steps before the weights act (DRW)


@dataclass
class LDAM(Loss):
    """Label-distribution-aware margins, with deferred re-weighting."""

    name: str = "ldam"
    max_margin: float = positive(0.5)  # in logits
    scale: float = positive(1.0)  # 30 is for heads whose logits are cosines; ours are linear
    beta: float = fraction(0.9999)
    deferred: float = fraction(0.8)  # share of the steps before the class-balanced weights act (DRW)


class ScheduleName(Enum):
    """The shapes of γ_t."""

    linear = "linear"
    descending = "descending"
    cosine = "cosine"
    static = "static"


@dataclass
class Schedule:
    """γ_t over the optimiser steps; ``tau`` scales the moving shapes, ``gamma`` is the static value."""

    name: ScheduleName = ScheduleName.linear
    tau: float = within(1.0, 0, 1)
    gamma: float = within(1.0, 0, 1)


@dataclass
class NoInitialization(Part):
    """The weights stay as loaded."""

    name: str = "none"


class NoiseVariant(Enum):
    """``correct`` guards one-element tensors and leaves the head; ``literal`` is the published snippet."""

    correct = "correct"
    literal = "literal"


@dataclass
class NoisyTune(Part):
    """Uniform noise on the pretrained weights, in proportion to each tensor's standard deviation."""

    name: str = "noisytune"
    intensity: float = at_least(0.15, 0)
    variant: NoiseVariant = NoiseVariant.correct


@dataclass
class HeadFirst(Part):
    """LP-FT: the head is trained alone before everything is."""

    name: str = "head_first"
    epochs: int = at_least(1, 1, 10**6)
    lr: float = positive(1e-3)


@dataclass
class ReinitTop(Part):
    """The top transformer blocks start from fresh weights."""

    name: str = "reinit_top"
    blocks: int = at_least(1, 1, 1_000)


@dataclass
class Full(Part):
    """All parameters train: full fine-tuning."""

    name: str = "full"


@dataclass
class LoRA(Part):
    """Low-rank adapters beside the attention's query and value projections."""

    name: str = "lora"
    lr: float = positive(3e-4)
    weight_decay: float = at_least(0.0, 0)
    r: int = at_least(8, 1, 10**5)
    alpha: float = positive(16.0)
    dropout: float = fraction(0.0)
    train_pooler: bool = False


@dataclass
class AdaLoRA(Part):
    """Low-rank adapters whose ranks are cut to a budget while training."""

    name: str = "adalora"
    lr: float = positive(5e-3)
    weight_decay: float = at_least(0.0, 0)
    initial_r: int = at_least(64, 1, 10**5)
    target_r: int = at_least(16, 1, 10**5)
    alpha: float = positive(8.0)
    dropout: float = fraction(0.0)
    warmup: float = fraction(0.1)  # share of the steps before any rank is cut
    final: float = fraction(0.3)  # share of the steps after the budget is reached
    orthogonality: float = at_least(0.5, 0)
    train_pooler: bool = False


@dataclass
class IA3(Part):
    """Learned scales of keys, values and the feed-forward layer's output."""

    name: str = "ia3"
    lr: float = positive(5e-3)
    weight_decay: float = at_least(0.0, 0)
    train_pooler: bool = False


@dataclass
class Plain(Part):
    """One backward pass."""

    name: str = "plain"


class PCGradVariant(Enum):
    """``printed`` divides by the norm, as the paper's Algorithm 1 prints it, instead of by its square."""

    correct = "correct"
    printed = "printed"


@dataclass
class PCGrad(Part):
    """Gradient surgery between W and C."""

    name: str = "pcgrad"
    variant: PCGradVariant = PCGradVariant.correct


@dataclass
class CAGrad(Part):
    """Conflict-averse gradient of W and C."""

    name: str = "cagrad"
    c: float = fraction(0.5)


@dataclass
class SAM(Part):
    """Sharpness-aware minimisation: the gradient at the worst nearby weights."""

    name: str = "sam"
    rho: float = positive(0.05)


@dataclass
class Spikes(Part):
    """Control: the gradient is multiplied at chosen steps."""

    name: str = "spikes"
    steps: list[int] = field(default_factory=lambda: [10])
    factor: float = positive(1000.0)


@dataclass
class Clip(Part):
    """Clip the global gradient norm; 0 = never."""

    name: str = "clip"
    clip: float = at_least(1.0, 0)


@dataclass
class GradientStabilizer(Part):
    """Each tensor's gradient keeps its direction and gets a norm from running statistics."""

    name: str = "gradient_stabilizer"
    gamma1: float = fraction(0.6)
    gamma2: float = fraction(0.999)
    eps: float = positive(1e-12)
    bias_correction: bool = True
    clip: float = at_least(0.0, 0)  # before; 0 = never


@dataclass
class AdaGN(Part):
    """Stable-SPAM's parts: adaptive norms, and optionally adaptive clipping and momentum resets."""

    name: str = "adagn"
    gamma1: float = fraction(0.7)
    gamma2: float = fraction(0.9)
    eps: float = positive(1e-8)
    adaclip: bool = False
    gamma3: float = fraction(0.999)
    reset_every: int | None = at_least(None, 1, 10**9)  # optimiser steps between momentum resets; null = never
    shared_counter: bool = False  # the published code: a reset also restarts the norms' bias corrections


@dataclass
class NoRegularizer(Part):
    """Nothing is added to the loss."""

    name: str = "none"


class LNSRReading(Enum):
    """What the paper's "last two layers" are: transformer blocks, or the layers of the classification head."""

    blocks = "blocks"
    head = "head"


@dataclass
class LNSR(Part):
    """Layer-wise noise stability: noise below the last two layers must not change what they put out."""

    name: str = "lnsr"
    reading: LNSRReading = LNSRReading.blocks
    weights: list[float] = field(default_factory=lambda: [0.2, 0.1])  # of the second last and the last layer
    rho: float = at_least(0.05, 0)  # noise norm / activation norm, per token


@dataclass
class R3F(Part):
    """Symmetric KL divergence between predictions from clean and from noisy embeddings."""

    name: str = "r3f"
    weight: float = at_least(1.0, 0)
    epsilon: float = at_least(1e-5, 0)
    shared_dropout: bool = False  # the same masks in both passes, so that the term measures the noise alone


@dataclass
class Last(Part):
    """The weights after the last step are evaluated."""

    name: str = "last"


@dataclass
class SWA(Part):
    """The mean of the last k of equally spaced checkpoints is evaluated."""

    name: str = "swa"
    checkpoints: int = at_least(10, 1, 10_000)  # over the whole run, the last at its end
    last: list[int] = field(default_factory=lambda: [3, 5])  # each k is evaluated; the first is primary


@dataclass
class EMA(Part):
    """The bias-corrected exponential moving average of the weights is evaluated."""

    name: str = "ema"
    decay: float = fraction(0.999)


#: The slots whose parts are method files, in the order of the training step.
SLOTS = ("loss", "initialization", "adapter", "gradient", "transform", "regularizer", "averaging")

#: Every part, by slot. ``conf/<slot>/<name>.yaml`` and ``dsgd/methods/<slot>/<name>.py`` carry the same name.
PARTS: dict[str, tuple[type[Part], ...]] = {
    "loss": (
        CrossEntropy,
        DSGD,
        RandomCorrect,
        UniformShrink,
        Confidence,
        Focal,
        OHEM,
        LogitAdjustment,
        ClassBalanced,
        LDAM,
    ),
    "initialization": (NoInitialization, NoisyTune, HeadFirst, ReinitTop),
    "adapter": (Full, LoRA, AdaLoRA, IA3),
    "gradient": (Plain, PCGrad, CAGrad, SAM, Spikes),
    "transform": (Clip, GradientStabilizer, AdaGN),
    "regularizer": (NoRegularizer, LNSR, R3F),
    "averaging": (Last, SWA, EMA),
}
