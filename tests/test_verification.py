"""Nothing that is read back is trusted: damaged, foreign and half-edited run folders, resume points and caches."""

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgd import checkpoint, console
from dsgd.cache import cached
from dsgd.config.schema import Evaluation
from dsgd.ensembles import members_of
from dsgd.evaluation import Predictions, evaluate
from dsgd.execution import execute
from dsgd.files import DamagedError
from dsgd.rows import opened
from dsgd.runs import RunFolder, folder_of
from dsgd.summary import metrics_under, predictions_of
from shared import losses

THRESHOLDS = Evaluation()


def predictions(right=30):
    """40 examples of two classes, of which the first ``right`` are predicted rightly."""
    labels = (np.arange(40) % 2).astype(np.int64)
    chosen = np.where(np.arange(40) < right, labels, 1 - labels)
    scores = np.where(np.arange(2) == chosen[:, None], 1.0, 0.0).astype(np.float32)
    return Predictions(np.arange(40), labels, scores, ["no", "yes"])


def finish(path, **changes):
    """A run folder as a finished run leaves it."""
    folder = RunFolder(path)
    found = predictions()
    found.save(path / "predictions.parquet")
    folder.write_json("identity.json", {"cell_id": "cell"})
    row = {**evaluate(found, THRESHOLDS), "thresholds": dataclasses.asdict(THRESHOLDS), "train_seconds": 1.0}
    folder.mark_finished({**row, **changes})
    return folder


@pytest.fixture
def folder(tmp_path):
    return finish(tmp_path / "runs" / "model" / "task" / "fft" / "seed1-0123456789")


def flip(path, position, bit):
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path.write_bytes(content)


# --- finished runs --------------------------------------------------------------------------------------------------


def test_a_flipped_bit_of_the_metrics_never_gives_other_numbers(folder):
    path = folder.path / "metrics.json"
    content, row = path.read_bytes(), folder.metrics
    draw = random.Random(0)
    noticed = 0
    for _ in range(300):
        flip(path, draw.randrange(len(content)), draw.randrange(8))
        found = folder.condition()
        if found.state == "finished":  # a blank became another, say
            assert found.row == row
        else:
            noticed += 1
            assert str(path) in found.reason
            assert "\n" not in found.reason
        path.write_bytes(content)
    assert noticed > 200


@pytest.mark.parametrize("name", ["predictions.parquet", "identity.json"])
def test_a_flipped_bit_of_another_file_is_noticed(folder, name):
    path = folder.path / name
    content = path.read_bytes()
    assert folder.damage() == ""
    for position in range(0, len(content), max(1, len(content) // 40)):
        flip(path, position, position % 8)
        assert str(path) in folder.damage()
        with pytest.raises(DamagedError, match="damaged"):
            folder.whole(name)
        path.write_bytes(content)


def test_damaged_predictions_do_not_vote(folder, tmp_path, caplog):
    other = finish(folder.path.with_name("seed2-1123456789"))
    assert len(members_of(tmp_path, "cell")) == 2
    flip(other.path / "predictions.parquet", 200, 0)
    assert len(members_of(tmp_path, "cell")) == 1
    assert str(other.path) in caplog.text


@pytest.mark.parametrize("content", [b"", b"half a file"])
def test_cut_predictions_end_the_run_s_being_finished(folder, content):
    (folder.path / "predictions.parquet").write_bytes(content)
    assert folder.state == "failed"
    assert "predictions.parquet" in folder.reason


def test_a_run_without_checksums_is_read_and_its_predictions_are_right(folder):
    """75 % by the predictions, whatever a hand has written into the row."""
    row = {**folder.metrics, "accuracy": 0.99}
    folder.write_json("metrics.json", row)
    assert folder.state == "finished"
    assert metrics_under(THRESHOLDS, folder)["accuracy"] == 0.75
    (folder.path / "predictions.parquet").write_bytes(b"")
    assert "predictions.parquet" in folder.damage()
    with pytest.raises(DamagedError):
        metrics_under(THRESHOLDS, folder)


def test_the_row_of_another_run_is_no_result(folder):
    finish(folder.path, id="ffffffffff")
    assert folder.state == "failed"
    assert "another run, ffffffffff" in folder.reason


MALFORMED = {
    "accuracy": ["0.5", None, float("nan"), 7.0, -1, True, [0.5]],
    "accuracy_swa3": [7.0, "x"],
    "accuracy_by_task": [0.5, {"rte": 2.0}],
    "train_seconds": ["1", -1.0, float("inf")],
    "seconds": ["1", None],
    "status": ["fine", 3],
    "thresholds": [3, {"near_tie": "x"}, {"other": 1.0}],
    "mcc": [2.0],
    "recall_by_class": [[0.5], {"no": "x"}],
    "seed": [1.5, "42"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in MALFORMED.items() for value in values])
def test_a_value_that_cannot_be_is_named(folder, key, value):
    row = folder.metrics
    (folder.path / "metrics.json").write_text(json.dumps({**row, key: value}))
    assert folder.state == "failed"
    assert f"metrics.json is damaged: {key} = " in folder.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from([*MALFORMED, "id", "method", "near_collapsed", "n_eval", "n_train", "seal", "threads"])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_whatever_a_row_holds_it_is_a_row_or_one_line(tmp_path_factory, content):
    """Only numbers that an accuracy can be get through."""
    path = tmp_path_factory.getbasetemp() / "metrics.json"
    row, told = {}, ""
    try:
        row, _ = opened(content, path)
    except DamagedError as error:
        told = str(error)
    assert 0 <= row.get("accuracy", 0) <= 1
    assert not told or (str(path) in told and "\n" not in told)


def as_folder(path):
    path.mkdir()


def as_loop(path):
    path.symlink_to(path)


def as_deep(path):
    path.write_text("[" * 100_000)


def as_bytes(path):
    path.write_bytes(b"\xff\xfe\x00")


def as_digits(path):
    path.write_text('{"accuracy": ' + "1" * 10_000 + "}")


@pytest.mark.parametrize(
    "name", ["metrics.json", "state.json", "predictions.parquet", "history.jsonl", "environment.json"]
)
@pytest.mark.parametrize("make", [as_folder, as_loop, as_deep, as_bytes, as_digits])
def test_no_kind_of_file_is_a_traceback(folder, name, make):
    """The run counts as unreadable, everything else goes on."""
    (folder.path / name).unlink(missing_ok=True)
    make(folder.path / name)
    if name == "metrics.json":
        assert folder.state == "failed"
        assert str(folder.path / name) in folder.reason
    assert folder.history == []
    assert folder.packages == {}
    assert folder.damage() or name != "predictions.parquet"


@pytest.mark.parametrize("make", [as_folder, as_loop, as_deep])
def test_a_damaged_run_is_named_set_aside_and_trained_again(train, run_of, capsys, make):
    folder = train()
    accuracy = folder.metrics["accuracy"]
    (folder.path / "metrics.json").unlink()
    make(folder.path / "metrics.json")
    run = run_of()
    assert console.sweep([run]) == 1
    assert str(folder.path / "metrics.json") in capsys.readouterr().out
    assert execute(run) == "finished"
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "trained again" in line]
    assert str(folder.path / "metrics.json") in line
    (aside,) = (folder.path.parents[3] / ".damaged").iterdir()
    assert (aside / "predictions.parquet").exists()
    assert folder.metrics["accuracy"] == accuracy


def test_damaged_predictions_are_found_where_a_run_would_be_skipped(train, run_of):
    folder = train()
    flip(folder.path / "predictions.parquet", 300, 3)
    assert execute(run_of()) == "finished"
    assert execute(run_of()) == "skipped"
    assert predictions_of(folder)


def test_a_run_folder_that_is_a_file_or_a_loop_is_set_aside(run_of):
    for make in (as_deep, as_loop):
        run = run_of()
        path = folder_of(run).path
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
        assert execute(run) == "finished"


def test_weights_asked_for_later_are_trained_for(train, run_of):
    folder = train()
    assert execute(run_of("runtime.keep_checkpoint=true")) == "finished"
    assert (folder.path / "checkpoint" / "model.safetensors").exists()
    assert execute(run_of("runtime.keep_checkpoint=true")) == "skipped"


# --- resume points --------------------------------------------------------------------------------------------------


def stop_at(number):
    def due(_training, step):
        if step.number == number:
            raise RuntimeError("stopped by the test")
        return False

    return due


@pytest.fixture
def stopped(run_of, monkeypatch):
    """A function from overrides to a run that was stopped at step 3 of 4 with a resume point after step 2."""

    def make(*overrides):
        run = run_of("runtime.checkpoint_every=2", *overrides)
        with monkeypatch.context() as patch:
            patch.setattr("dsgd.training.Training._evaluation_is_due", stop_at(3))
            assert execute(run) == "failed"
        return run, folder_of(run).path / "checkpoint" / "resume.pt"

    return make


@pytest.fixture
def resumed_at(monkeypatch):
    """The steps after which runs resumed."""
    steps, resume = [], checkpoint.resume

    def watched(training):
        steps.append(resume(training))
        return steps[-1]

    monkeypatch.setattr(checkpoint, "resume", watched)
    return steps


def test_a_whole_resume_point_is_gone_on_from(stopped, resumed_at):
    run, _ = stopped()
    assert execute(run) == "finished"
    assert resumed_at == [0, 2]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.97])
def test_a_flipped_bit_of_a_resume_point_changes_no_digit(stopped, resumed_at, train, tmp_path, caplog, share):
    run, point = stopped()
    flip(point, int(share * point.stat().st_size), 4)
    assert execute(run) == "finished"
    whole = train("runtime.checkpoint_every=2", f"results_dir={tmp_path}/other")
    assert losses(folder_of(run)) == losses(whole)
    assert resumed_at[1] == 2 or "the run starts from its first step" in caplog.text


def test_another_run_s_resume_point_is_refused(stopped, resumed_at, caplog):
    run, point = stopped()
    other, theirs = stopped("method=fft")
    shutil.copy(theirs, point)
    shutil.copy(theirs.parents[1] / "history.jsonl", point.parents[1])
    assert execute(run) == "finished"
    assert resumed_at[-1] == 0
    assert f"is of another run, {other.id}" in caplog.text


def test_another_version_s_resume_point_is_refused(stopped, resumed_at, caplog, monkeypatch):
    run, _ = stopped()
    monkeypatch.setattr(checkpoint, "code_version", lambda: {"version": "0.0", "git_commit": "0" * 40})
    assert execute(run) == "finished"
    assert resumed_at[-1] == 0
    assert "another version of the code" in caplog.text


def test_a_resume_point_without_its_history_is_refused(stopped, resumed_at, caplog):
    run, point = stopped()
    history = point.parents[1] / "history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[1:]))
    assert execute(run) == "finished"
    assert resumed_at[-1] == 0
    assert "does not fit the history" in caplog.text


# --- caches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["zeroed", "cut", "without its checksum"])
def test_a_damaged_cache_is_built_again(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("DSGD_CACHE", str(tmp_path))
    builds = []

    def get():
        return cached(
            "pixels.npy",
            lambda: builds.append(1) or np.arange(100),
            lambda array, path: np.save(path, array),
            lambda path: np.load(path, mmap_mode="r"),
        )

    assert np.array_equal(get(), get())
    assert len(builds) == 1
    file = tmp_path / "pixels.npy"
    if damage == "zeroed":
        content = file.read_bytes()
        file.write_bytes(content[:-400] + bytes(400))
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-8])
    else:
        (tmp_path / ".pixels.npy.sha256").unlink()
    assert np.array_equal(get(), np.arange(100))
    assert len(builds) == 2
