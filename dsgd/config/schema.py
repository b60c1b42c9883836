"""The dataclasses under every YAML of ``conf/``: names, types, defaults and allowed ranges.

Torch-free. A field's default is the reference point of a run's identity (see ``identity.py``): a key enters the
identity only where its value differs from the default written here, so adding a key never orphans finished runs.
The method parts' dataclasses are in ``parts.py`` and not beside the parts, because composing must not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from dsgd.config.fields import at_least, fraction, positive, ranged, within
from dsgd.config.parts import PARTS, Loss, Part, Schedule

# --- model and task -------------------------------------------------------------------------------------------------


class Modality(Enum):
    """What a model reads and what a task consists of."""

    text = "text"
    image = "image"


@dataclass
class ModelRecipe:
    """What the trainer uses with this model unless ``trainer.*`` says otherwise."""

    lr: float = positive(2e-5)
    batch_size: int = at_least(20, 1, 10**6)
    weight_decay: float = at_least(0.01, 0)
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    eps: float = positive(1e-8)


@dataclass
class Scratch:
    """A vision transformer without pretrained weights, for small images and trials; only where it has a patch size."""

    patch_size: int | None = at_least(None, 1, 4_096)  # pixels a side; must divide model.image_size
    width: int = at_least(64, 1, 65_536)
    depth: int = at_least(4, 1, 1_000)  # transformer blocks
    heads: int = at_least(4, 1, 1_024)  # must divide the width
    channels: int = at_least(3, 1, 4)  # 3, or 1 for grey


@dataclass
class Model:
    """A pretrained model with a fresh classification head."""

    name: str = MISSING
    package: str | None = None  # weights that ship inside an installed Python package
    modality: Modality = Modality.text
    path: str | None = None  # a local folder; inside `package` where that is set
    hub_id: str | None = None
    revision: str | None = None
    sha256: str | None = None  # of model.safetensors; checked where given
    title: str | None = None  # what tables and folders call a local model: its folder's name; found, not set
    fingerprint: str | None = None  # of the content of a local folder, which may move but not change; found, not set
    scratch: Scratch = field(default_factory=Scratch)  # no checkpoint: trained from scratch
    blocks: int | None = at_least(
        None, 0, 1_000
    )  # transformer blocks, to refuse more than there are; 0 in convolutional nets
    max_length: int | None = at_least(None, 1, 10**6)  # tokens that the checkpoint takes; the same
    parameters: int | None = at_least(None, 1, 10**13)  # of the checkpoint, its head left out; for estimates of cost
    embeddings: int | None = at_least(None, 0, 10**13)  # of them in lookup tables; the same
    tokens: int | None = at_least(None, 1, 10**6)  # of one image; the same
    gflops: float | None = positive(None)  # of one input's forward pass, where parameters * tokens does not give it
    layers: int | None = at_least(None, 1, 1_000)  # keep only the first k transformer blocks; null = all
    freeze_embeddings: bool = False
    dropout: float | None = fraction(None)  # every dropout of the model; null = the checkpoint's own
    image_size: int | None = at_least(None, 1, 8_192)  # images: pixels a side; null = the checkpoint's own
    recipe: ModelRecipe = field(default_factory=ModelRecipe)

    @property
    def shown(self) -> str:
        """What tables and folders call it; a model that is read from a folder never goes by a published one's name."""
        return with_content(self.title or self.name, self.fingerprint)


def with_content(name: str, fingerprint: str | None) -> str:
    """``name``, and where it is of one's own files the beginning of their fingerprint: two of one name differ."""
    return f"{name}-{fingerprint[:6]}" if fingerprint else name


class ImbalanceKind(Enum):
    """How the training classes are thinned out (METHODS: imbalanced CIFAR, LDAM's algorithm)."""

    none = "none"
    longtail = "longtail"
    step = "step"


@dataclass
class Imbalance:
    """The imbalanced subset of the training split."""

    kind: ImbalanceKind = ImbalanceKind.none
    factor: float = ranged(1.0, lambda value: 0 < value <= 1, "a number in (0, 1]")
    subset_seed: int = at_least(0, 0, 10**15)


@dataclass
class TaskRecipe:
    """What the trainer uses with this task unless ``trainer.*`` says otherwise."""

    epochs: int = at_least(3, 1, 10**6)
    evaluate_every: int | None = at_least(None, 1, 10**9)  # optimiser steps; null = at each epoch's end


class TaskForm(Enum):
    """How an example becomes a model input and a decision (METHODS 13)."""

    single = "single"  # one input, one of K classes
    multiple_choice = "multiple_choice"  # one input a choice, one score each from a shared scorer
    binary_concat = "binary_concat"  # both choices in one input, two classes
    flat = "flat"  # one input a choice, each judged right or wrong by itself


class Augmentation(Enum):
    """Random changes of training images."""

    none = "none"
    crop_flip = "crop_flip"  # a crop of the image padded by an eighth of its side (4 pixels of 32), mirrored or not


@dataclass
class Shots:
    """Training examples of a class that divide many, medium and few; null = not told apart. Never changes a run."""

    many: int | None = at_least(None, 1, 10**9)  # more than this are many
    few: int | None = at_least(None, 1, 10**9)  # fewer than this are few


class EmptyCells(Enum):
    """What becomes of a table's rows that lack a text, or a label."""

    refuse = "refuse"  # an error that names the lines
    drop = "drop"  # are left out
    keep = "keep"  # an absent text is an empty one, and a label like nan is a class; an absent label is an error


@dataclass
class Digests:
    """Fingerprints of the rows of a data set's splits at ``revision``; null = not known."""

    train: str | None = None
    validation: str | None = None
    test: str | None = None


@dataclass
class Task:
    """A labelled data set and how it is turned into model inputs."""

    name: str = MISSING
    package: str | None = None  # data that ship inside an installed Python package
    modality: Modality = Modality.text
    hub_id: str | None = None  # a data set of the hub, or of a mirror folder laid out like it (data.root)
    subset: str | None = None  # the hub's name of one configuration of that data set
    revision: str | None = None  # of the hub's repository; a mirror has one
    evaluation_split: str = "validation"
    sample: str | None = None  # rows of a mirror that holds only a part of the data set; found, not set
    path: str | None = None  # data of one's own: a table file or an image folder
    evaluation_path: str | None = None  # a table to evaluate on; null = a share of `path`
    text: list[str] = field(default_factory=list)  # a table's column of texts, or the two columns of a pair
    label: str | None = None  # a table's column of labels
    quotes: bool | None = None  # csv and tsv: false = plain characters; true = cells may even hold lines like rows
    empty: EmptyCells = EmptyCells.refuse  # cells without a text or a label
    title: str | None = None  # what tables and folders call the task; null = its name
    digests: Digests = field(default_factory=Digests)  # of the hub's rows, to know a mirror of them
    fingerprint: str | None = None  # of the content of local data, which may move but not change; found, not set
    evaluation_share: float = ranged(0.2, lambda value: 0 < value < 1, "a number in (0, 1)")  # where no split is given
    split_seed: int = at_least(0, 0, 10**15)  # of that share, and of a holdout
    holdout: float = fraction(0.0)  # share of the training split to evaluate on instead, for choosing settings
    form: TaskForm = TaskForm.single
    max_length: int = at_least(128, 4, 10**6)  # tokens
    augmentation: Augmentation = Augmentation.none
    shots: Shots = field(default_factory=Shots)
    train_examples: int | None = at_least(None, 1, 10**10)  # before any are thinned out; for estimates of cost
    evaluation_examples: int | None = at_least(None, 1, 10**10)  # the same
    classes: int | None = at_least(None, 2, 10**6)  # the same
    tokens: int | None = at_least(None, 1, 10**6)  # of an input in a batch of 20, padding included; null = max_length
    imbalance: Imbalance = field(default_factory=Imbalance)
    bootstrap: bool = False  # train on as many examples drawn with replacement by `seed`: true bagging
    recipe: TaskRecipe = field(default_factory=TaskRecipe)

    @property
    def shown(self) -> str:
        """What tables and folders call it; a part of a data set, or another content, never goes by the hub's name."""
        name = self.title or self.name
        return f"{name}-sample" if self.sample else with_content(name, self.fingerprint)


class TaskBatches(Enum):
    """What the examples of one optimiser step have in common."""

    mixed = "mixed"  # nothing: the tasks' examples are shuffled together
    homogeneous = "homogeneous"  # their task, drawn anew for each step with its number of examples as its weight


@dataclass
class MultiTask(Task):
    """Several text tasks that share an encoder."""

    tasks: list[str] = field(default_factory=list)  # names
    batches: TaskBatches = TaskBatches.mixed
    joined: dict[str, Task] = field(default_factory=dict)  # each one's own definition


@dataclass
class Method:
    """The preset's label; never part of a run's identity, which is the slots themselves."""

    name: str = MISSING
    paper: str | None = None  # where the paper reports it


# --- around the method ----------------------------------------------------------------------------------------------


@dataclass
class Trainer:
    """The optimiser and its clock."""

    lr: float = positive(2e-5)
    epochs: int = at_least(3, 1, 10**6)
    max_steps: int | None = at_least(None, 1, 10**9)  # optimiser steps; overrides epochs where set
    batch_size: int = at_least(20, 1, 10**6)  # examples per process and micro-batch
    accumulation: int = at_least(1, 1, 10**6)  # micro-batches per optimiser step
    warmup: float = fraction(0.1)  # share of the steps
    weight_decay: float = at_least(0.01, 0)
    clip: float = at_least(1.0, 0)  # read by transform=clip; 0 = never
    head_weight_decay: float | None = at_least(None, 0)  # of head and pooler; null = weight_decay
    layer_decay: float = ranged(1.0, lambda value: 0 < value <= 1, "a number in (0, 1]")
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    eps: float = positive(1e-8)
    processes: int = at_least(1, 1, 4_096)  # must equal the world size of `torchrun` or `accelerate launch`
    evaluate_every: int | None = at_least(None, 1, 10**9)  # optimiser steps; null = at each epoch's end


class Precision(Enum):
    """Compute precision; parameters are always fp32."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"


class Progress(Enum):
    """What a running training shows."""

    auto = "auto"
    bar = "bar"
    lines = "lines"
    none = "none"


@dataclass
class Runtime:
    """Where and how a run executes."""

    device: str = "auto"  # auto | cpu | cuda | cuda:N | mps
    precision: Precision = Precision.auto
    threads: int | None = at_least(None, 1, 4_096)  # null = the machine's cores divided among the sweep's workers
    isolate: bool = True  # each run in its own child process
    timeout: float | None = positive(None)  # seconds of one run; null = none
    progress: Progress = Progress.auto
    log_every: int = at_least(10, 1, 10**9)  # optimiser steps between two reads of the device's statistics
    eval_batch_size: int = at_least(64, 1, 10**6)
    split_by_length: bool | None = None  # compute a batch in parts of like length; null = of texts on a CPU
    checkpoint_every: int | None = at_least(None, 1, 10**9)  # optimiser steps between resume points; null = none
    keep_checkpoint: bool = False  # leave the evaluated weights in checkpoint/
    seeds_per_device: str = "1"  # runs that share a CUDA device; auto = by trial
    tf32: bool = False  # fp32 matrices and convolutions on CUDA with 10 bits of mantissa
    compile: bool = False  # torch.compile, for inputs of one shape


class TrackingMode(Enum):
    """``auto`` is online where an API key is set, else offline."""

    auto = "auto"
    online = "online"
    offline = "offline"


@dataclass
class Tracking:
    """The dashboard that mirrors the run folder."""

    name: str = "wandb"  # wandb | none
    mode: TrackingMode = TrackingMode.auto
    project: str = "dsgd"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Evaluation:
    """Thresholds of a run's status (METHODS, run status); predictions are kept, so they can change later."""

    near_tie: float = at_least(1e-3, 0)  # multiple choice: median |z1 - z0| below this is a collapse
    mcc_sigmas: float = at_least(2.0, 0)  # degenerate: multi-class MCC <= this / sqrt(n_eval)
    near_collapsed: float = within(0.98, 0, 1)  # largest predicted share from which the field is set


@dataclass
class Seeds:
    """Random streams; null = derived from ``seed`` (``subset``: from ``task.imbalance.subset_seed``)."""

    initialization: int | None = at_least(None, 0, 10**15)
    data_order: int | None = at_least(None, 0, 10**15)
    dropout: int | None = at_least(None, 0, 10**15)
    subset: int | None = at_least(None, 0, 10**15)


@dataclass
class Debug:
    """Shrinks any run."""

    name: str = "none"
    max_steps: int | None = at_least(None, 1, 10**9)
    examples: int | None = at_least(None, 1, 10**9)  # of each split
    full_evaluation: bool = False  # keep the whole evaluation split


@dataclass
class Diagnostics:
    """Observers that never change a run."""

    name: str = "none"  # none | gradients | representations | all
    layers: int | None = at_least(10, 1, 1_000)  # gradients: how many of the encoder's weight matrices; null = all


@dataclass
class Data:
    """Where data sets are looked for."""

    root: str | None = None  # a mirror folder with the hub's layout; null = the hub


@dataclass
class Config:
    """One run, whole."""

    model: Model = MISSING
    task: Task = MISSING
    loss: Loss = MISSING
    schedule: Schedule = MISSING
    initialization: Part = MISSING
    adapter: Part = MISSING
    gradient: Part = MISSING
    transform: Part = MISSING
    regularizer: Part = MISSING
    averaging: Part = MISSING
    method: Method = MISSING
    diagnostics: Diagnostics = MISSING
    trainer: Trainer = MISSING
    runtime: Runtime = MISSING
    tracking: Tracking = MISSING
    debug: Debug = MISSING
    evaluation: Evaluation = field(default_factory=Evaluation)
    data: Data = field(default_factory=Data)
    seed: int = at_least(42, 0, 10**15)
    seeds: Seeds = field(default_factory=Seeds)
    results_dir: str = "results"
    force: bool = False


#: The other groups that have one schema each.
GROUPS: dict[str, type[Any]] = {
    "model": Model,
    "task": Task,
    "schedule": Schedule,
    "diagnostics": Diagnostics,
    "trainer": Trainer,
    "runtime": Runtime,
    "tracking": Tracking,
    "debug": Debug,
}


@cache
def register() -> None:
    """Put every dataclass into Hydra's store under ``schema/``, where no group listing shows it; once is enough."""
    store = ConfigStore.instance()
    store.store(group="schema", name="config", node=Config)
    for group, node in GROUPS.items():
        store.store(group="schema", name=group, node=node)
    store.store(group="schema", name="multitask", node=MultiTask)
    for slot, parts in PARTS.items():
        for part in parts:
            store.store(group=f"schema/{slot}", name=part().name, node=part)
