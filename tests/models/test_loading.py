"""What stands in the way of a model is said in one error, and what comes over the network is shown on a terminal."""

import json
import shutil
import sys
from pathlib import Path

import httpx
import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from tiny_models import WORDS, checkpoint, classifier
from transformers.utils import logging

from dsgd.config.schema import Model
from dsgd.models.sources import ModelSource, SourceError
from dsgd.models.text import _loading, load_tokenizer

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


@pytest.fixture
def folder(tmp_path):
    """A copy of a saved model, to be spoiled."""
    shutil.copytree(checkpoint("bert"), tmp_path / "bert")
    return tmp_path / "bert"


def without_tokenizer(folder: Path):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def with_config(folder: Path, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_tokenizer, "holds no tokenizer"),
        (lambda folder: with_config(folder, vocab_size=len(WORDS) - 1), "has 40 tokens, and the model knows 39"),
        (lambda folder: with_config(folder, model_type="no_such"), "has model type `no_such`"),
    ],
)
def test_a_folder_whose_tokenizer_is_not_the_model_s_is_refused_in_one_line(folder, spoil, words):
    """Transformers makes a tokenizer of nothing, to which every word is unknown, and trains on that."""
    load_tokenizer(Model(name="local", path=str(folder)))
    spoil(folder)
    with pytest.raises(SourceError, match=words) as caught:
        load_tokenizer(Model(name="local", path=str(folder)))
    assert "\n" not in str(caught.value)


def test_weights_that_are_cut_off_are_told(folder):
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(SourceError, match="its safetensors are cut off or altered"):
        classifier(str(folder))
