"""Observers of a training that never change it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dsgd.files import replacing
from dsgd.group_capture import GroupCapture
from dsgd.group_gradients import GroupGradients
from dsgd.methods.contracts import Step, Window
from dsgd.methods.gradient.plain import Plain
from dsgd.methods.loss.cross_entropy import CrossEntropy
from dsgd.methods.loss.dsgd import DSGD
from dsgd.methods.regularizer.none import NoRegularizer
from dsgd.models.classifier import hidden_state
from dsgd.products import inner_product

if TYPE_CHECKING:
    from accelerate import Accelerator

    from dsgd.config.schema import Diagnostics
    from dsgd.data import Examples
    from dsgd.training import Training

Matrix = npt.NDArray[np.float64]


class Observer(Protocol):
    """Looks on; draws from no random stream of the run and leaves no gradient behind."""

    def start(self, training: Training) -> None:
        """Before the first step, the weights as initialised; not in a resumed run."""

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far, as tensors and plain values, for a resume point."""

    def can_resume(self, state: dict[str, Any]) -> bool:
        """Whether ``state``, of a resume point, holds what this observer would have seen until there."""

    def resume(self, training: Training, state: dict[str, Any]) -> None:
        """In the place of ``start``: go on from what was seen before a resume point."""

    def before_step(self, training: Training, window: Window) -> None:
        """Before the optimiser step on ``window``, whose forward will draw from torch's generators as they are now."""

    def during_step(self, training: Training, window: Window) -> AbstractContextManager[None]:
        """A context around that step."""

    def finish(self, training: Training) -> None:
        """After the last step; writes what was seen into the run folder."""


def make_observer(diagnostics: Diagnostics) -> Observer:
    """The observer that the config asks for.

    Raises:
        ValueError: there is none of that name.
    """
    observers: dict[str, list[Observer]] = {
        "none": [],
        "gradients": [GradientObserver(diagnostics.layers)],
        "representations": [RepresentationObserver()],
    }
    observers["all"] = observers["gradients"] + observers["representations"]
    if diagnostics.name not in observers:
        raise ValueError(f"diagnostics.name = {diagnostics.name}: give one of {', '.join(observers)}")
    return Observers(observers[diagnostics.name])


class Observers:
    """Several observers, or none, as one."""

    def __init__(self, observers: list[Observer]) -> None:
        self.observers = observers

    def start(self, training: Training) -> None:
        """Each in turn."""
        for observer in self.observers:
            observer.start(training)

    def state_dict(self) -> dict[str, Any]:
        """Each one's under its name."""
        return {type(observer).__name__: observer.state_dict() for observer in self.observers}

    def can_resume(self, state: dict[str, Any]) -> bool:
        """Whether each one can."""
        return all(
            type(observer).__name__ in state and observer.can_resume(state[type(observer).__name__])
            for observer in self.observers
        )

    def resume(self, training: Training, state: dict[str, Any]) -> None:
        """Each from its own."""
        for observer in self.observers:
            observer.resume(training, state[type(observer).__name__])

    def before_step(self, training: Training, window: Window) -> None:
        """Each in turn."""
        for observer in self.observers:
            observer.before_step(training, window)

    @contextmanager
    def during_step(self, training: Training, window: Window) -> Iterator[None]:
        """All around it."""
        with ExitStack() as stack:
            for observer in self.observers:
                stack.enter_context(observer.during_step(training, window))
            yield

    def finish(self, training: Training) -> None:
        """Each in turn."""
        for observer in self.observers:
            observer.finish(training)


# --- gradients ------------------------------------------------------------------------------------------------------

#: What is measured of each layer at each step, in the order of ``layer_measures``.
MEASURES = ("norm_wrong", "norm_correct", "norm_raw", "norm_effective", "cosine")


class GradientObserver:
    """Norms and cosines of the gradients of W and C per step and layer: ``diagnostics.parquet`` (DSGD paper, Fig. 2).

    Of plain cross-entropy, whatever the run's loss is. Where that is the run's loss, or DSGD's with γ > 0 (whose
    gradient over C is γ times it), and the step is one plain backward, both groups are taken along from it
    (``GroupCapture``). Else, and up to the first window with examples of both, which shows whether that is exact, it
    is a second look under the dropout masks that training is about to draw. Columns: ``step``, ``layer`` (the
    weight's name), ``MEASURES``, ``wrong`` and ``correct`` (|W| and |C|), ``gamma`` (1 where the loss has none); all
    gradients are divided by the window's m.
    """

    def __init__(self, layers: int | None) -> None:
        self.layers = layers
        self.loss = CrossEntropy(label_smoothing=0.0)
        self._names: list[str] = []
        self._linear: list[nn.Linear] | None = None  # the layers, where a look has shown that capturing is exact
        self._steps: list[tuple[int, float]] = []  # step number and γ_t
        self._seen: list[Tensor] = []  # (layers, measures + 2) of each step, on the device until the end

    def start(self, training: Training) -> None:
        """Choose the layers: the same in every run of a model.

        Raises:
            ValueError: no weight matrix of a transformer block trains.
        """
        model = training.bare
        inside = {id(parameter) for parameter in model.blocks.parameters()}
        matrices = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if id(parameter) in inside and parameter.requires_grad and parameter.ndim == 2
        ]
        if not matrices:
            raise ValueError("diagnostics.name = gradients: no weight matrix of a transformer block trains")
        count = len(matrices) if self.layers is None else min(self.layers, len(matrices))
        chosen = np.sort(np.random.default_rng(0).choice(len(matrices), count, replace=False))
        self._names = [matrices[position][0] for position in chosen]

    def state_dict(self) -> dict[str, Any]:
        """The rows so far, and whether capturing has been found exact."""
        return {
            "layers": self.layers,
            "names": self._names,
            "captures": self._linear is not None,
            "steps": self._steps,
            "seen": torch.stack(self._seen).cpu() if self._seen else None,
        }

    def can_resume(self, state: dict[str, Any]) -> bool:
        """Whether it is of as many layers."""
        return bool(state["layers"] == self.layers)

    def resume(self, training: Training, state: dict[str, Any]) -> None:
        """Go on with the same layers."""
        self._names, self._steps = list(state["names"]), [(number, gamma) for number, gamma in state["steps"]]
        self._linear = _linear_layers(training.bare, self._names) if state["captures"] else None
        if state["seen"] is not None:
            self._seen = list(state["seen"].to(training.accelerator.device))

    def before_step(self, training: Training, window: Window) -> None:
        """Measure the window at the weights that the step starts from."""
        if self._captures(training, window.step):
            return
        with _forked(training.accelerator.device):
            found = self._look(training, window)
        self._measure(training, window, found)

    @contextmanager
    def during_step(self, training: Training, window: Window) -> Iterator[None]:
        """The same out of the step's own backward, where that is exact and no look has been taken."""
        if self._steps and self._steps[-1][0] == window.step.number:
            yield
            return
        assert self._linear is not None
        capture = GroupCapture(self._linear)
        with capture.watching(), training.objective.shown_to(capture.judge):
            yield
        wrong, correct = capture.groups()
        # The step differentiates this part of the sum of the losses, of which those over C are γ times cross-entropy.
        part = training.accelerator.num_processes / window.size
        units = 1 / part, 1 / (part * _scale_of_correct(training, window.step))
        summed = _summed(training.accelerator, [*wrong, *correct, capture.counts])
        self._measure(training, window, summed, units)

    def _captures(self, training: Training, step: Step) -> bool:
        """Whether the step's own backward contains both groups' gradients of plain cross-entropy."""
        if self._linear is None or _scale_of_correct(training, step) <= 0:
            return False
        loss, parts = training.parts["loss"], training.parts
        if type(loss) is DSGD:
            is_usual = (loss.ties, loss.normalization, loss.judges_in_evaluation_mode) == ("wrong", "full_m", False)
        else:
            is_usual = type(loss) is CrossEntropy
        is_plain = type(parts["gradient"]) is Plain and type(parts["regularizer"]) is NoRegularizer
        return is_usual and is_plain and loss.label_smoothing == 0

    def _measure(
        self, training: Training, window: Window, found: list[Tensor], units: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        """Of the groups' gradients in these units, W's layer by layer and then C's, and last (|W|, |C|)."""
        gamma, layers, counts = _scale_of_correct(training, window.step), len(self._names), found[-1]
        per_mean = units[0] / window.size, units[1] / window.size
        measures = [
            layer_measures(*pair, gamma, per_mean) for pair in zip(found[:layers], found[layers:-1], strict=True)
        ]
        self._steps.append((window.step.number, gamma))
        self._seen.append(torch.stack([torch.cat([row, counts.to(row)]) for row in measures]))

    def finish(self, training: Training) -> None:
        """Write the table; an empty one where no step was seen."""
        if not training.accelerator.is_main_process:
            return
        import pandas as pd

        width = len(MEASURES) + 2
        values = torch.stack(self._seen).cpu().numpy() if self._seen else np.zeros((0, len(self._names), width))
        numbers, gammas = np.array([*self._steps]).reshape(-1, 2).T
        columns: dict[str, Any] = {
            "step": np.repeat(numbers.astype(np.int64), len(self._names)),
            "layer": self._names * len(self._steps),
            **dict(zip(MEASURES, values.reshape(-1, width).T, strict=False)),
            "wrong": values[..., -2].ravel().astype(np.int64),
            "correct": values[..., -1].ravel().astype(np.int64),
            "gamma": np.repeat(gammas, len(self._names)),
        }
        table = pd.DataFrame(columns)
        with replacing(training.folder.file("diagnostics.parquet")) as temporary:
            table.to_parquet(temporary, index=False)

    def _look(self, training: Training, window: Window) -> list[Tensor]:
        """Gradients of the summed losses over W, over C, layer by layer, and (|W|, |C|); over all processes."""
        model, accelerator = training.bare, training.accelerator
        sums: list[list[Tensor]] = []
        for batch in window.batches:
            moved = batch.to(accelerator.device)
            with GroupGradients(model, self._names) as groups:
                output = self.loss.per_example(model(**moved.inputs), moved.labels, window.step)
            found = groups.backward(output.losses, output.is_correct)
            counts = torch.stack([output.statistics["wrong"], output.statistics["correct"]])
            sums.append([*(of_group[name] for of_group in found for name in self._names), counts])
        is_exact = groups.verified and not groups.fallback
        self._linear = _linear_layers(model, self._names) if is_exact else None
        return _summed(accelerator, [torch.stack(each).sum(0) for each in zip(*sums, strict=True)])


def _summed(accelerator: Accelerator, tensors: list[Tensor]) -> list[Tensor]:
    """Over all processes."""
    if accelerator.num_processes == 1:
        return tensors
    return [accelerator.reduce(tensor, "sum") for tensor in tensors]


def _linear_layers(model: nn.Module, names: list[str]) -> list[nn.Linear] | None:
    """The layers whose weights these are, if all are plain linear layers."""
    layers = [model.get_submodule(name.removesuffix(".weight")) for name in names if name.endswith(".weight")]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    return linear if len(linear) == len(names) else None


def _scale_of_correct(training: Training, step: Step) -> float:
    """γ_t where the loss scales C by it, NaN for the controls that put γ_t elsewhere, 1 for losses without a γ_t."""
    loss = training.parts["loss"]
    if not getattr(loss, "scales_correct", True):
        return float("nan")
    return float(getattr(loss, "gamma", lambda _: 1.0)(step))


def layer_measures(wrong: Tensor, correct: Tensor, gamma: float, units: tuple[float, float] = (1.0, 1.0)) -> Tensor:
    """``MEASURES`` (5,) of one layer's gradients, each times its unit; the cosine of an empty group is NaN, never 0.

    From three inner products, as each pass over a layer's gradients counts, unless in a sum these cancel.
    """
    of_wrong = inner_product(wrong, wrong) * units[0] ** 2
    of_correct = inner_product(correct, correct) * units[1] ** 2
    dot = inner_product(wrong, correct) * (units[0] * units[1])
    norms = [of_wrong.sqrt(), of_correct.sqrt()]
    for scale in (1.0, gamma):
        square = of_wrong + 2 * scale * dot + scale**2 * of_correct
        # Reading the comparison would wait for any device but the CPU; adding the gradients up costs less there.
        if square.device.type == "cpu" and square > 0.01 * (of_wrong + scale**2 * of_correct):
            norms.append(square.sqrt())
        else:
            total = torch.add(wrong, correct, alpha=scale * units[1] / units[0])
            norms.append(inner_product(total, total).sqrt() * units[0])
    return torch.stack([*norms, dot / (of_wrong * of_correct).sqrt()]).to(wrong.dtype)


# --- representations ------------------------------------------------------------------------------------------------


class RepresentationObserver:
    """Cosines between ten training examples' pooled representations: ``representations.npz`` (DSGD paper, Fig. 2).

    Without dropout, before the first step (after the method's initialization) and after the last (of the trained
    weights, not of an average). The file holds ``cosine_<when>`` (10, 10) for when = before, after; ``labels`` (10,),
    in ascending order; ``rows`` (10,), the examples' numbers in the source; and the mean cosine ``within_<when>`` a
    class and ``between_<when>`` classes, and both as ``…_centred_<when>`` with the ten's mean taken off first, because
    a direction common to all inflates the raw values. In multiple choice the ten are premises with a choice each, and
    the class says whether it is the right one.
    """

    EXAMPLES = 10

    def __init__(self) -> None:
        self._seen: dict[str, npt.NDArray[Any]] = {}
        self._rows: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._order = self._rows  # of the sequences of those rows

    def start(self, training: Training) -> None:
        """Choose the examples and look at them."""
        self._choose(training)
        self._look(training, "before")

    def state_dict(self) -> dict[str, Any]:
        """What was seen before the first step."""
        return {name: torch.from_numpy(array) for name, array in self._seen.items()}

    def can_resume(self, state: dict[str, Any]) -> bool:
        """Whether it was seen."""
        return "cosine_before" in state

    def resume(self, training: Training, state: dict[str, Any]) -> None:
        """Choose the same examples again; how they looked before is in ``state``."""
        self._choose(training)
        self._seen = {name: tensor.numpy() for name, tensor in state.items()}

    def _choose(self, training: Training) -> None:
        train, choices = training.data.train, training.data.choices
        self._rows = balanced_rows(train.labels, self.EXAMPLES // choices)
        labels, index = sequence_labels(train.labels[self._rows], choices), np.repeat(train.index[self._rows], choices)
        self._order = np.argsort(labels, kind="stable")
        self._seen = {"labels": labels[self._order], "rows": index[self._order]}

    def before_step(self, training: Training, window: Window) -> None:
        """Nothing."""

    def during_step(self, training: Training, window: Window) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def finish(self, training: Training) -> None:
        """Look again and write both."""
        self._look(training, "after")
        if training.accelerator.is_main_process:
            with replacing(training.folder.file("representations.npz")) as temporary:
                _save(temporary, self._seen)

    def _look(self, training: Training, when: str) -> None:
        vectors = representations(training, training.data.train, self._rows)[self._order]
        self._seen[f"cosine_{when}"] = cosines(vectors)
        for kind, matrix in ("", cosines(vectors)), ("centred_", cosines(vectors - vectors.mean(axis=0))):
            within, between = class_means(matrix, self._seen["labels"])
            self._seen |= {f"within_{kind}{when}": np.array(within), f"between_{kind}{when}": np.array(between)}


def balanced_rows(labels: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """``count`` rows, or all there are, as evenly over the classes as these allow; ordered by class.

    From a stream of its own, so the same rows for every seed of a run: each class's rows are shuffled and take turns.
    """
    shuffled = np.random.default_rng(0).permutation(len(labels))
    turns = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        mine = shuffled[labels[shuffled] == label]
        turns[mine] = np.arange(len(mine))
    chosen = shuffled[np.argsort(turns[shuffled], kind="stable")][:count]
    return chosen[np.lexsort((chosen, labels[chosen]))]


def sequence_labels(labels: npt.NDArray[np.int64], choices: int) -> npt.NDArray[np.int64]:
    """Of ``labels`` (n,), the class of each input row (n · choices,); of a choice, 1 where it is the right one."""
    return labels if choices == 1 else (labels[:, None] == np.arange(choices)).ravel().astype(np.int64)


@torch.no_grad()
def representations(training: Training, split: Examples, rows: npt.NDArray[np.int64]) -> Matrix:
    """What the classification head reads of the examples at ``rows``, (rows · choices, d), without dropout."""
    model = training.bare
    seen: list[Tensor] = []
    hook = model.blocks[-1].register_forward_hook(lambda _module, _inputs, output: seen.append(hidden_state(output)))
    was_training = model.training
    model.eval()
    with _forked(training.accelerator.device):
        inputs = split.batch(rows).to(training.accelerator.device).inputs
        model(**inputs)
    model.train(was_training)
    hook.remove()
    pooled: Matrix = model.pooled(seen[-1], inputs.get("attention_mask")).double().cpu().numpy()
    return pooled


def cosines(vectors: Matrix) -> Matrix:
    """(n, d) to (n, n); NaN for a vector of length 0."""
    with np.errstate(invalid="ignore"):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    product: Matrix = unit @ unit.T
    return product


def class_means(matrix: Matrix, labels: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Mean of ``matrix`` (n, n) over pairs of one class and over pairs of two; NaN where there is no such pair."""
    pairs = np.triu_indices(len(labels), k=1)
    same = labels[pairs[0]] == labels[pairs[1]]
    values = matrix[pairs]
    within, between = (float(values[which].mean()) if which.any() else float("nan") for which in (same, ~same))
    return within, between


# --- for both -------------------------------------------------------------------------------------------------------


def _forked(device: torch.device) -> Any:
    """A context that gives torch's random streams back as they were."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def _save(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    with path.open("wb") as file:  # a name would get `.npz` appended
        np.savez(file, allow_pickle=False, **arrays)
