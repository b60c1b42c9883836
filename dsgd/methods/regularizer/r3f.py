"""R3F: predictions from clean and from noisy embeddings must agree."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Batch
from dsgd.methods.regularizer.replay import Moment, Noise, bare, of_valid
from dsgd.models.classifier import full_precision


class R3F:
    """Add weight · [KL(p‖q) + KL(q‖p)], q from word embeddings with U(-ε, ε) on every element.

    Source: Aghajanyan et al. 2021, arXiv:2008.03156, and fairseq's ``sentence_prediction_r3f.py``, whose noisy branch
    does not train the word embeddings either. As there, each pass draws its own dropout masks, so that the term mostly
    measures dropout; with ``shared_dropout`` it measures the noise alone, which at ε = 1e-5 is below fp32's rounding.
    """

    def __init__(self, weight: float, epsilon: float, noise_seed: int, shared_dropout: bool = False) -> None:
        self.shared_dropout = shared_dropout
        self.weight = weight
        self.epsilon = epsilon
        self.noise = Noise(noise_seed)
        self._start: Moment | None = None

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Remember where the training forward inside starts to draw."""
        self._start = Moment.now(next(model.parameters()).device)
        yield

    def per_example(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor | None:
        """The weighted divergence (n,) between ``logits``, of the forward just watched, and those of a second one."""
        assert self._start is not None, "the forward was not watched"
        if self.weight == 0:  # a second forward would still draw dropout masks
            return None
        with self._masks(), self._noisy_embeddings(bare(model)):
            noisy = bare(model)(**batch.inputs)
        self._start = None
        return of_valid(self.weight * symmetric_divergence(logits, noisy), batch.labels)

    def _masks(self) -> AbstractContextManager[None]:
        assert self._start is not None
        return self._start.again() if self.shared_dropout else nullcontext()

    def penalty(self, model: nn.Module) -> None:
        """No term on the parameters."""

    def state_dict(self) -> dict[str, Any]:
        """How much noise has been drawn."""
        return {"drawn": self.noise.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.noise.drawn = state["drawn"]

    @contextmanager
    def _noisy_embeddings(self, model: nn.Module) -> Iterator[None]:
        def disturb(_module: nn.Module, _args: tuple[Any, ...], embedded: Tensor) -> Tensor:
            generator = self.noise.next(embedded.device)
            uniform = torch.rand(embedded.shape, generator=generator, dtype=embedded.dtype, device=embedded.device)
            return embedded.detach() + self.epsilon * (2 * uniform - 1)

        hook = bare(model).token_embeddings.register_forward_hook(disturb)
        try:
            yield
        finally:
            hook.remove()


def symmetric_divergence(one: Tensor, other: Tensor) -> Tensor:
    """KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q) of two sets of logits (n, K): (n,), at least float32."""
    log_p, log_q = full_precision(one).log_softmax(-1), full_precision(other).log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
