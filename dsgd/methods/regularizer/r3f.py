"""R3F: predictions from clean and from noisy embeddings must agree."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dsgd.methods.contracts import Batch
from dsgd.methods.regularizer.replay import Moment, Noise, bare, full_precision, of_valid


class R3F:
    """Add weight · [KL(p‖q) + KL(q‖p)], q from word embeddings with U(-ε, ε) on every element.

    Source: Aghajanyan et al. 2021, arXiv:2008.03156, and fairseq's ``sentence_prediction_r3f.py``, whose noisy branch
    does not train the word embeddings either. Unlike there, both passes share their dropout masks: else the term
    would measure dropout, which outweighs the noise by orders of magnitude.
    """

    def __init__(self, weight: float, epsilon: float, noise_seed: int) -> None:
        self.weight = weight
        self.epsilon = epsilon
        self.noise = Noise(noise_seed)
        self._start: Moment | None = None

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Remember where the training forward inside starts to draw."""
        self._start = Moment.now(next(model.parameters()).device)
        yield

    def per_example(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """The weighted divergence (n,) between ``logits``, of the forward just watched, and those of a second one."""
        assert self._start is not None, "the forward was not watched"
        with self._start.again(), self._noisy_embeddings(bare(model)):
            noisy = bare(model)(**batch.inputs)
        self._start = None
        return of_valid(self.weight * symmetric_divergence(logits, noisy), batch.labels)

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
