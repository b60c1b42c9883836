"""Equal content is an equal id, other content another, whatever the spelling, the order or the place."""

import itertools
import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.contents import with_contents
from dsgd.config.identity import run_id
from saved_models import save_model

#: Few contents, so that equal ones are drawn as often as others.
CONTENTS = st.integers(0, 2)

#: How a path can be written, and where else the same content can lie.
PLACES = ("absolute", "relative", "dotted", "link", "linked folder", "copy")


@cache
def config(*arguments):
    (run,) = expand(read_command(arguments))
    return run.config


def table(root, content):
    file = root / "data.csv"
    file.write_text(f"text,label\none,{content}\n")
    return file


def model(root, content):
    return save_model(root / "model", content)


def images(root, content):
    folder = root / "images"
    for number, name in enumerate(("cat", "dog")):
        (folder / "train" / name).mkdir(parents=True)
        (folder / "train" / name / "1.png").write_bytes(bytes([number, content]))
    return folder


#: What makes the content, and the overrides of a run over it.
KINDS = {
    "table": (table, "task", ("task=csv",)),
    "images": (images, "task", ("task=image_folder", "model=vit_digits")),
    "model": (model, "model", ("model=local",)),
}


def placed(path, place, root):
    """``path`` as ``place`` has it."""
    if place == "copy":
        return str((shutil.copytree if path.is_dir() else shutil.copy)(path, root / f"other-{path.name}"))
    if place == "link":
        (root / f"link-{path.name}").symlink_to(path)
        return str(root / f"link-{path.name}")
    if place == "linked folder":
        (root / "linked").symlink_to(path.parent)
        return str(root / "linked" / path.name)
    return {
        "absolute": str(path),
        "relative": os.path.relpath(path),
        "dotted": f"{path.parent}/./../{root.name}/{path.name}",
    }[place]


@cache
def start(kind):
    """A run over a content of the kind that is drawn nowhere."""
    make, node, arguments = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        return config(*arguments, f"{node}.path={make(Path(folder), 9)}")


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(list(KINDS)),
    contents=st.tuples(CONTENTS, CONTENTS),
    places=st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES)),
)
def test_equal_content_is_an_equal_id_wherever_it_lies(kind, contents, places):
    make, node, _ = KINDS[kind]
    ids = []
    for content, place in zip(contents, places, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            moved = replace(getattr(start(kind), node), path=placed(make(root, content), place, root))
            ids.append(run_id(with_contents(replace(start(kind), **{node: moved}))))
    assert (ids[0] == ids[1]) == (contents[0] == contents[1])


#: Settings that are the defaults.
DEFAULTS = ("trainer.warmup=0.1", "seeds.dropout=null", "task.empty=refuse", "schedule.gamma=1", "task.quotes=true")


@settings(deadline=None, max_examples=6)
@given(
    rate=st.sampled_from(["3e-5", "0.00003", "3.0e-05"]),
    seed=st.sampled_from(["7", "07"]),
    defaults=st.lists(st.sampled_from(DEFAULTS), unique=True),
    shuffle=st.randoms(use_true_random=False),
)
def test_order_spelling_and_defaults_change_no_id(rate, seed, defaults, shuffle):
    arguments = [f"trainer.lr={rate}", f"seed={seed}", "model.layers=3", *defaults]
    shuffle.shuffle(arguments)
    assert run_id(config(*arguments)) == run_id(config("trainer.lr=3e-5", "seed=7", "model.layers=3"))


def test_settings_that_change_numbers_change_the_id():
    ways = ((), ("trainer.lr=3e-5",), ("seed=7",), ("model.layers=3",), ("trainer.lr=3e-5", "seed=7"), ("method=fft",))
    ids = [run_id(config(*arguments)) for arguments in ways]
    assert all(one != other for one, other in itertools.combinations(ids, 2))
