"""The list of methods: what their files say is what they compose to."""

import subprocess
import sys
from pathlib import Path

import pytest

from dsgd.config import identity
from dsgd.config.catalogue import MethodEntry, methods, table
from dsgd.config.command import read_command
from dsgd.config.compose import expand
from dsgd.config.tree import CONF

ENTRIES = {entry.name: entry for entry in methods()}


def config(*overrides):
    (run,) = expand(read_command(overrides))
    return run.config


def test_every_preset_is_listed_once_by_name():
    assert list(ENTRIES) == sorted(path.stem for path in (CONF / "method").glob("*.yaml"))


@pytest.mark.parametrize("name", ["dsgd", "fft", "dsgd_evaluation_mode", "dsgd_static_third", "noisytune", "reinit"])
def test_an_entry_says_what_the_preset_composes_to(name):
    composed, plain = config(f"method={name}"), config("method=fft")
    entry = ENTRIES[name]
    assert entry.slots == identity.changed_slots(composed, plain)
    assert entry.paper == composed.method.paper
    assert (entry.schedule is None) == (not composed.loss.reads_schedule)
    for key, text in entry.settings.items():
        node = composed
        for word in key.split("."):
            node = getattr(node, word)
        value = getattr(node, "value", node)
        assert (f"{value:.3g}" if isinstance(value, float) else str(value)) == text


@pytest.mark.parametrize(
    ("name", "slots", "settings", "schedule"),
    [
        ("fft", {}, {}, None),
        ("dsgd", {"loss": "dsgd"}, {}, "linear"),
        ("dsgd_static_third", {"loss": "dsgd"}, {}, "static 0.333"),
        ("dsgd_confidence", {"loss": "confidence"}, {}, None),
        ("label_smoothing", {}, {"loss.label_smoothing": "0.1"}, None),
        (
            "reinit",
            {"initialization": "reinit_top"},
            {"trainer.layer_decay": "0.95", "trainer.head_weight_decay": "0"},
            None,
        ),
        ("adalora", {"adapter": "adalora"}, {}, None),
    ],
)
def test_pinned_entries(name, slots, settings, schedule):
    entry = ENTRIES[name]
    assert (entry.slots, entry.settings, entry.schedule) == (slots, settings, schedule)


def test_every_method_says_what_it_is_in_one_line():
    for entry in ENTRIES.values():
        assert entry.description[0].isupper() or entry.description[0] == "("
        assert entry.description.endswith(".")


def test_the_table_s_columns_are_aligned():
    one = MethodEntry("a", {"loss": "dsgd"}, {}, "linear", None, "First.")
    other = MethodEntry("longer", {}, {"trainer.layer_decay": "0.9"}, None, "Table 1", "Second.")
    assert table([one, other]).splitlines() == [
        "method  fills                    γ       paper    what it is",
        "a       loss=dsgd                linear  -        First.",
        "longer  trainer.layer_decay=0.9  -       Table 1  Second.",
    ]


def test_run_py_lists_the_methods_without_training_or_torch(command, tmp_path):
    done = command("--methods")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip("\n") == table(methods())
    assert list(tmp_path.iterdir()) == []
    root = Path(__file__).resolve().parents[2]
    code = (
        "import sys; sys.argv = ['run.py', '--methods']; import run; assert run.main() == 0;"
        "assert not {'torch', 'transformers', 'peft'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, stdout=subprocess.DEVNULL)
