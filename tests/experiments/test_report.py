"""The report as a text and in a real browser."""

import re
import shutil
import subprocess

import pytest
from furnished import furnish
from make_runs import planned
from matplotlib import image

from experiments import report
from experiments.collect import gather
from experiments.report import Experiment

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")
#: Run in the browser: what a reader would miss.
PROBE = """<script>addEventListener("load", () => {
  const broken = [...document.images].filter(image => !image.complete || image.naturalWidth === 0);
  document.body.dataset.images = document.images.length;
  document.body.dataset.broken = broken.length;
  document.body.dataset.overflow = document.documentElement.scrollWidth - innerWidth;
});</script>"""


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Of miniature runs under the names of two experiments; claims by the smallest real one, which has none."""
    results = furnish(tmp_path_factory.mktemp("results"))
    found = [Experiment(name, gather(planned("table1"), results)) for name in ("table1", "figures9_11")]
    return report.report(found, results, ["laptop/smoke"], ())


def test_the_page_needs_no_network(content):
    """Every link stays in the page and every picture is in it."""
    links = re.findall(r'(?:src|href)="([^"]*)"', content)
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|url\(", content)


def test_every_entry_of_the_contents_has_its_section(content):
    anchors = re.findall(r'<li><a href="#([^"]*)">', content)
    assert anchors == re.findall(r'<section id="([^"]*)">', content)
    assert len(set(anchors)) == len(anchors)
    assert {"runs", "table1", "figures9_11", "claims", "audit", "environments"} <= set(anchors)


def test_everything_has_its_command(content):
    for module in ("plan table1", "table1", "figures9_11", "audit", "claims --experiment laptop/smoke"):
        assert f"<code>python -m experiments.{module}</code>" in content


def test_missing_and_failed_runs_are_told(content):
    """Of 30 runs in 10 cells two have failed, one with its process, and four are missing: a cell and one of SWA's."""
    assert "24 of 30 runs, 2 failed, 4 missing" in content
    assert "30 distinct runs are planned: 24 finished, 0 running, 2 failed, 4 missing" in content
    assert "1 cells without any run" in content
    assert "<td>non-finite</td>" in content


def test_a_report_of_no_runs_says_so(tmp_path):
    assert report.main(["--experiments", "laptop/smoke", "--results-dir", str(tmp_path)]) == 0
    content = (tmp_path / "report.html").read_text()
    assert "4 distinct runs are planned: 0 finished" in content
    assert "No run has finished." in content


def test_a_wrong_experiment_is_one_clear_error(tmp_path, capsys):
    assert report.main(["--experiments", "laptop/smok", "--results-dir", str(tmp_path)]) == 2
    assert "laptop/smok" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_shows_it_whole(content, tmp_path, width):
    """All sections and pictures are there, nothing is wider than the window, and the screen is not blank."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None or "firefox" in browser:
        pytest.skip(f"needs a browser that dumps the page's DOM: one of {', '.join(BROWSERS[:-1])}")
    file = tmp_path / "report.html"
    file.write_text(content.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [browser, *options, f"--window-size={width},1600"]
    shown = subprocess.run([*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120)
    seen = dict(re.findall(r'data-(images|broken|overflow)="(-?\d+)"', shown.stdout))
    assert int(seen["images"]) == content.count("<img ") > 0
    assert int(seen["broken"]) == 0
    assert int(seen["overflow"]) <= 0
    assert shown.stdout.count("<section ") == content.count("<section ")
    screenshot = tmp_path / "screen.png"
    subprocess.run(
        [*command, f"--screenshot={screenshot}", file.as_uri()], capture_output=True, timeout=120, check=True
    )
    assert screenshot.stat().st_size > 10_000
    assert image.imread(screenshot)[..., :3].std() > 0.02
