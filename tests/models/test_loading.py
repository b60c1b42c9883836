"""What stands in the way of a model is said in one error, and what comes over the network is shown on a terminal."""

import sys

import httpx
import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from transformers.utils import logging

from dsgd.models.sources import ModelSource, SourceError
from dsgd.models.text import _loading

HUB = ModelSource("someone/model", "abc")


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (GatedRepoError, "gated; accept its licence at https://huggingface.co/someone/model and log in"),
        (RevisionNotFoundError, "no revision abc; correct model.revision"),
        (RepositoryNotFoundError, "no such model, or it is private; correct model.hub_id"),
        (TimeoutError, "check the name and the connection"),
    ],
)
def test_the_hub_s_refusals_say_what_to_do(kind, advice):
    """Transformers wraps them; a gated model is also a repository that is not found, and is told as gated."""
    response = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))
    cause = kind("no") if kind is TimeoutError else kind("no", response=response)
    error = OSError("transformers' words")
    error.__cause__ = cause
    with pytest.raises(SourceError, match=advice), _loading(HUB):
        raise error


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_downloads_show_themselves_and_only_on_a_terminal(is_terminal, monkeypatch):
    """Not the loading of weights that are here; and afterwards all is as it was."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    before = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    with _loading(HUB):
        assert are_progress_bars_disabled() != is_terminal
        assert not logging.is_progress_bar_enabled()
    assert (logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == before
