"""One list of files and one digest of them: links, loops, junk, limits, and what is remembered between starts."""

import json
import os
import subprocess
import time
import unicodedata

import pytest

from dsgd.cache import cache_folder
from dsgd.config import files
from dsgd.config.files import FilesError, digest, digests, listing, remembering


def names(root):
    return [file.name for file in listing(root)]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a/1.txt").write_text("one")
    (root / "b.txt").write_text("two")
    return root


def settled(root):
    """Every file as if it had been written long ago."""
    for file in listing(root):
        os.utime(file.path, (1e9, 1e9))


def test_links_to_files_and_folders_are_followed(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/2.txt").write_text("two")
    (folder / "a/more").symlink_to(tmp_path / "elsewhere")
    (folder / "c.txt").symlink_to(folder / "b.txt")
    assert names(folder) == ["a/1.txt", "a/more/2.txt", "b.txt", "c.txt"]


def test_loops_of_links_end(folder):
    (folder / "a/up").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    (folder / "one").symlink_to(folder / "other")
    (folder / "other").symlink_to(folder / "one")
    assert names(folder) == ["a/1.txt", "b.txt"]


def test_a_link_to_what_is_gone_is_named(folder):
    (folder / "a/gone.txt").symlink_to(folder / "nothing")
    with pytest.raises(FilesError, match=r"a/gone\.txt is a link to what is not there"):
        listing(folder)


@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", ".git/config", "Icon\r"])
def test_what_systems_leave_changes_nothing(folder, name):
    before = digest(str(folder))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("junk")
    assert names(folder) == ["a/1.txt", "b.txt"]
    assert digest(str(folder)) == before


def test_pipes_are_no_files(folder):
    """Reading one would wait for ever."""
    os.mkfifo(folder / "pipe")
    assert names(folder) == ["a/1.txt", "b.txt"]


def test_names_are_listed_in_one_unicode_form(tmp_path):
    found = []
    for form in ("NFC", "NFD"):
        (tmp_path / form).mkdir()
        (tmp_path / form / unicodedata.normalize(form, "é.txt")).write_text("x")
        found.append(digest(str(tmp_path / form)))
    assert found[0] == found[1]


def test_no_files_is_an_error(tmp_path):
    (tmp_path / "empty/inside").mkdir(parents=True)
    with pytest.raises(FilesError, match="empty holds no files"):
        digest(str(tmp_path / "empty"))
    with pytest.raises(FilesError, match="No such file"):
        digest(str(tmp_path / "none"))


def test_files_are_counted_before_any_is_read(folder, monkeypatch):
    monkeypatch.setattr(files, "MOST_ENTRIES", 2)
    monkeypatch.setattr(files, "sha256", None)
    with pytest.raises(FilesError, match="holds more than 2 files and folders; give a smaller folder"):
        digest(str(folder))


def test_folders_deeper_than_python_recurses_are_listed(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    depth = 1100
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        assert names(tmp_path) == ["d/" * depth + "file"]
    finally:  # pytest itself removes folders by recursion
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def counted():
    """A digest that counts how often it is computed."""

    def of(file):
        of.calls.append(file.name)
        return files.sha256(file)

    of.calls = []
    return of


def test_content_is_read_again_only_where_a_file_has_changed(folder):
    settled(folder)
    time.sleep(2.1)  # the change time cannot be set back
    of = counted()
    first = digests(folder, listing(folder), of)
    assert digests(folder, listing(folder), of) == first
    assert of.calls == ["a/1.txt", "b.txt"]
    (folder / "b.txt").write_text("new")
    os.utime(folder / "b.txt", (1e9, 1e9))  # of the same size and modification time, as `rsync -t` makes it
    again = digests(folder, listing(folder), of)
    assert of.calls[2:] == ["b.txt"]
    assert (again[0], again[1] == first[1]) == (first[0], False)


def test_what_was_just_written_is_not_remembered(folder):
    """It could be written once more at the same time stamp."""
    of = counted()
    for _ in range(2):
        digests(folder, listing(folder), of)
    assert len(of.calls) == 4


def test_a_damaged_memory_is_made_anew(folder, monkeypatch):
    monkeypatch.setattr(files, "SETTLES_AFTER", 0)
    of = counted()
    first = digests(folder, listing(folder), of)
    stores = [store for store in (cache_folder() / "digests").iterdir() if "counted" not in store.name]
    for store in stores:
        checksum, _, content = store.read_text().partition("\n")
        known = {name: [state, "0" * 64] for name, (state, _) in json.loads(content).items()}
        store.write_text(f"{checksum}\n{json.dumps(known)}")
    assert digests(folder, listing(folder), of) == first


def test_a_plan_lists_a_folder_once(folder, monkeypatch):
    scans, below = [], files._below
    monkeypatch.setattr(files, "_below", lambda root, state: scans.append(root) or below(root, state))
    with remembering():
        assert digest(str(folder)) == digest(str(folder))
    assert len(scans) == 1
    (folder / "b.txt").write_text("new")
    digest(str(folder))
    assert len(scans) == 2, "nothing is remembered behind a plan"
