"""Errors that name why a run failed. Torch-free."""

from __future__ import annotations


class NonFiniteError(ArithmeticError):
    """A loss or logit was NaN or infinite: the run has failed and must not count as a collapsed one."""

    reason = "non-finite"
