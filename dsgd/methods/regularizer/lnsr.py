"""LNSR: noise below the last layers must not change what they put out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Batch
from dsgd.methods.regularizer.replay import Moment, Noise, bare, of_valid
from dsgd.models.classifier import full_precision, hidden_state

if TYPE_CHECKING:
    from dsgd.models import Classifier


@dataclass
class _Forward:
    """What the part of a forward pass that is run again received and put out."""

    modules: list[nn.Module]  # to run again, in this order
    layers: list[nn.Module]  # those of them or in them whose outputs are compared
    below: Tensor | None = None  # (rows, tokens, d), or pooled (rows, d): what the first of ``modules`` was called with
    start: Moment | None = None  # before it
    others: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)  # each one's other arguments
    outputs: list[Tensor] = field(default_factory=list)  # of the layers


class LNSR:
    """Add Σ_r λ_r · mean (f_r(x + ε) - f_r(x))², x the input of the last k layers, f_r(x) the output of the r-th.

    Source: Hua et al. 2021, arXiv:2107.04835. ε is Gaussian, of ``rho`` times the norm of its token's activations and
    none on padding; means are over features, tokens and an example's choices. The DSGD paper regularises "the last two
    layers of the classifier": transformer blocks (``reading="blocks"``), or the linear layers between the last block
    and the logits (``reading="head"``), before their non-linearity. Both branches share their dropout masks, or the
    term would measure dropout, and both are differentiated; only the noise is a constant.
    """

    def __init__(self, reading: Literal["blocks", "head"], weights: list[float], rho: float, noise_seed: int) -> None:
        self.reading = reading
        self.weights = list(weights)  # of the last k = len(weights) layers, the last one's last
        self.rho = rho
        self.noise = Noise(noise_seed)
        self._clean: _Forward | None = None

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Keep what passes through the last layers in the training forward inside.

        Raises:
            ValueError: the model has fewer layers than there are weights.
        """
        self._clean = clean = self._places(bare(model))

        def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if clean.below is None:
                clean.below, clean.start = args[0], Moment.now(args[0].device)
            clean.others.append((args[1:], kwargs))

        hooks = [module.register_forward_pre_hook(before, with_kwargs=True) for module in clean.modules]
        try:
            with _outputs(clean.layers, clean.outputs):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def per_example(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """The weighted terms (n,), for the forward just watched."""
        clean, self._clean = self._clean, None
        assert clean is not None, "the forward was not watched"
        assert clean.below is not None
        assert clean.start is not None
        mask = batch.inputs.get("attention_mask")  # images have none, and a pooled state (n, d) no tokens
        if mask is None or clean.below.ndim == 2:
            mask = torch.ones(clean.below.shape[:-1], device=clean.below.device)
        noisy: list[Tensor] = []
        with clean.start.again(), _outputs(clean.layers, noisy):
            hidden = clean.below + relative_noise(clean.below, mask, self.rho, self.noise.next(clean.below.device))
            for module, (args, kwargs) in zip(clean.modules, clean.others, strict=True):
                hidden = hidden_state(module(hidden, *args, **kwargs))
        last = len(self.weights)
        pairs = zip(self.weights, noisy[-last:], clean.outputs[-last:], strict=True)
        terms = [weight * mean_square(one, other, mask) for weight, one, other in pairs]
        return of_valid(torch.stack(terms).sum(0).view(len(batch.labels), -1).mean(1), batch.labels)

    def penalty(self, model: nn.Module) -> None:
        """No term on the parameters."""

    def state_dict(self) -> dict[str, Any]:
        """How much noise has been drawn."""
        return {"drawn": self.noise.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.noise.drawn = state["drawn"]

    def _places(self, model: Classifier) -> _Forward:
        """Where to look, as yet without anything seen."""
        wanted = len(self.weights)
        if self.reading == "blocks":
            modules = layers = list(model.blocks)[-wanted:]
        else:
            modules = model.top
            layers = [layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)]
        if len(layers) < wanted:
            raise ValueError(f"regularizer.weights = {self.weights}: the model's {self.reading} are {len(layers)}")
        return _Forward(modules, layers)


def relative_noise(hidden: Tensor, inside: Tensor, rho: float, generator: torch.Generator) -> Tensor:
    """Gaussian noise for ``hidden`` (…, d), in its dtype: root mean square ``rho`` times that of each vector.

    It is a constant: training cannot lower the term by shrinking the noise. 0 where ``inside`` (…) is.
    """
    clean = full_precision(hidden.detach())
    scale = rho * clean.square().mean(-1, keepdim=True).sqrt() * inside[..., None]
    normal = torch.randn(clean.shape, generator=generator, dtype=clean.dtype, device=clean.device)
    return (scale * normal).to(hidden.dtype)


def mean_square(one: Tensor, other: Tensor, inside: Tensor) -> Tensor:
    """Mean squared difference of each example (n,), of (n, d) over d, of (n, tokens, d) also over the tokens inside."""
    squares = (full_precision(one) - full_precision(other)).square().mean(-1)
    return squares if squares.ndim == 1 else (squares * inside).sum(1) / inside.sum(1)


@contextmanager
def _outputs(layers: list[nn.Module], found: list[Tensor]) -> Iterator[None]:
    """Append to ``found`` what each of ``layers`` puts out inside, in the order of their calls."""

    def keep(_module: nn.Module, _args: tuple[Any, ...], output: Tensor | tuple[Any, ...]) -> None:
        found.append(hidden_state(output))

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
