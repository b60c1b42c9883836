"""Figures by their structure: what is drawn, what is said, and that it can be read."""

import dataclasses
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from furnished import N_TRAIN, SPEED, furnish
from make_runs import RESULTS, planned
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from experiments import figure1, figure2, figure3, figure4c, figure4d, figure8, figures, stability_region
from experiments.catalogue import ITEMS
from experiments.collect import gather
from experiments.figures import LOOKS, drawing, told
from experiments.gradients import conflict, steps_of
from experiments.series import series_of

FIGURES = {item.name: item.figure for item in ITEMS if item.figure}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return furnish(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def frame(results):
    """Runs of five methods on two tasks, with a weight decay in their command lines as a sweep over it gives them."""
    runs = [dataclasses.replace(run, overrides=("trainer.weight_decay=0.01",)) for run in planned("table1")]
    return gather(runs, results)


def of(frame, task="copa", method=None):
    chosen = frame[frame["task"] == task]
    return chosen if method is None else chosen[chosen["method"] == method]


def small(name, frame):
    """What that figure is made for: two runs side by side, a task, or all."""
    if name in ("figure4d", "figure7"):
        return pd.concat([of(frame, method="fft"), of(frame, method="dsgd")]).query("seed < 60")
    return of(frame, method="fft") if name in ("figure2", "figure8") else frame


def texts(figure):
    """All that are drawn; matplotlib also keeps the labels of ticks beyond the ends of an axis."""
    FigureCanvasAgg(figure).draw()
    beyond = {id(label) for panel in panels(figure) for axis in (panel.xaxis, panel.yaxis) for label in unseen(axis)}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if id(text) not in beyond]


def panels(figure):
    return [*figure.axes, *(child for panel in figure.axes for child in panel.child_axes)]


def unseen(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    hidden = [tick for tick in ticks if not axis.axes.axison or not low <= tick.get_loc() <= high]
    return [label for tick in hidden for label in (tick.label1, tick.label2)]


def words(figure):
    return "\n".join(text.get_text() for text in texts(figure))


# --- of all figures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_read(name, frame):
    """No letter below 7 points, no text that leaves the canvas, no name of a tick over the next."""
    figure = drawing(FIGURES[name], small(name, frame), "how").figure
    width, height = figure.canvas.get_width_height()
    for text in texts(figure):
        assert text.get_fontsize() >= 7, text.get_text()
        box = text.get_window_extent()
        inside = box.x0 >= -2 and box.y0 >= -2 and box.x1 <= width + 2 and box.y1 <= height + 2
        assert inside, f"{text.get_text()!r} leaves the canvas"
    for panel in panels(figure):
        hidden = {id(label) for label in unseen(panel.xaxis)}
        level = [label for label in panel.get_xticklabels() if not label.get_rotation() and id(label) not in hidden]
        boxes = [label.get_window_extent() for label in level if label.get_visible() and label.get_text()]
        for left, right in pairwise(sorted(boxes, key=lambda box: box.x0)):
            assert left.x1 < right.x0, "names of ticks overlap"


@pytest.mark.parametrize("name", FIGURES)
def test_drawing_a_figure_again_moves_no_panel(name, frame):
    """Its layout has settled; what is drawn beyond a panel's limits unsettles it, and panels jump or leave the page."""
    figure = drawing(FIGURES[name], small(name, frame), "how").figure
    places = []
    for _ in range(3):
        FigureCanvasAgg(figure).draw()
        places.append([panel.get_window_extent().extents for panel in figure.axes])
    np.testing.assert_allclose(places[1], places[2], atol=2)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_the_numbers_it_shows(name, frame):
    records = drawing(FIGURES[name], small(name, frame), "how").records
    assert records
    assert all(record.keys() == records[0].keys() for record in records)


@pytest.mark.parametrize("name", FIGURES)
def test_without_runs_a_figure_is_a_frame_that_says_so(name, tmp_path):
    empty = gather(planned("table1"), tmp_path)
    drawn = drawing(FIGURES[name], empty, f"python -m experiments.{name}")
    assert "0 of 30 runs, 30 missing" in words(drawn.figure)
    assert f"python -m experiments.{name}" in words(drawn.figure)
    assert not drawn.records


def test_no_two_methods_look_alike():
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)
    assert len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    assert len({str(look.line) for look in LOOKS.values()}) == len(LOOKS)
    assert figures.look_of("dsgd") == LOOKS["dsgd"] != figures.look_of("of nobody")


def test_the_command_writes_png_pdf_and_csv(tmp_path, capsys):
    """No run at all is no error; letters in the PDF are TrueType (type 42), not drawn shapes (type 3)."""
    arguments = ["--experiment", "laptop/smoke", "--results-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    assert figures.main("figure1", figure1.figure, arguments) == 0
    stem = tmp_path / "out" / "figure1-laptop_smoke"
    assert str(stem) in capsys.readouterr().out
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    pdf = stem.with_suffix(".pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert stem.with_suffix(".csv").exists()


def test_a_wrong_experiment_is_one_clear_error(tmp_path, capsys):
    assert figures.main("figure1", figure1.figure, ["--experiment", "figur1", "--results-dir", str(tmp_path)]) == 2
    assert "figur1" in capsys.readouterr().err


def test_figures_do_not_import_torch():
    code = "import experiments.catalogue, experiments.report, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- strips of runs -------------------------------------------------------------------------------------------------


def test_every_finished_run_is_a_point_that_shows_its_status(frame):
    """Crosses for collapsed runs, open marks for degenerate ones, filled ones for the others."""
    runs = of(frame)
    drawn = drawing(FIGURES["figures9_11"], runs, "how")
    points = [
        line
        for panel in drawn.figure.axes
        for line in panel.lines
        if line.get_linestyle() == "None" and len(line.get_xdata()) == 1 and line.get_marker() != "_"
    ]
    statuses = [status for each in series_of(runs) for status in each.cell.statuses]
    crosses = [point for point in points if point.get_marker() == "x"]
    hollow = [point for point in points if point.get_marker() != "x" and point.get_markerfacecolor() == "none"]
    assert statuses.count("collapsed") == len(crosses) > 0
    assert statuses.count("degenerate") == len(hollow) > 0
    assert len(points) == len(statuses)


def test_what_is_missing_or_failed_stands_beside_the_name(frame):
    """Of FFT's three runs on RTE one has failed, of SWA's one is missing, of one variant of DSGD all."""
    said = words(drawing(FIGURES["figures9_11"], frame, "how").figure)
    for expected in ("FFT, 2 of 3, 1 failed", "SWA (k=3), 2 of 3", "DSGD[tau=0.5], 0 of 3"):
        assert expected in said


def test_records_of_a_series_name_each_planned_run(frame):
    (series,) = [each for each in series_of(of(frame, "rte")) if each.label == "fft"]
    states = [(record["seed"], record["state"], record["accuracy"] is None) for record in series.records]
    assert states == [(42, "finished", False), (52, "failed", True), (62, "finished", False)]


def test_a_method_alone_is_known_by_its_name(frame):
    """What all runs of a figure share is no part of a title."""
    alone = of(frame, method="dsgd[tau=0.5]")
    assert [each.title for each in series_of(alone)] == ["DSGD"]


def test_told_counts_every_planned_run():
    states = ["finished"] * 2 + ["failed"] + ["missing"] * 3
    assert told(pd.DataFrame({"state": states})) == "2 of 6 runs, 1 failed, 3 missing"


# --- each figure ----------------------------------------------------------------------------------------------------


def test_gradients_are_means_over_layers(frame):
    """Step 1: norms (1 + 3) / 2 and (0.5 + 1.5) / 2, cosine (−0.8 − 0.4) / 2; where a group was empty there is none."""
    run = of(frame, method="fft").to_dict("records")[0]
    steps = steps_of(run)
    np.testing.assert_allclose(steps["norm_raw"], [2, 2, 4])
    np.testing.assert_allclose(steps["norm_effective"], [1, 1, 4])
    np.testing.assert_allclose(steps["cosine"], [-0.6, -0.3, np.nan])


def test_conflict_leaves_out_steps_without_both_groups():
    """Of −0.6, −0.1 and 0.2, two thirds lie below 0 and one third below −0.5."""
    steps = pd.DataFrame({"cosine": [-0.6, -0.1, 0.2, np.nan]})
    assert conflict(steps) == "67 % below 0, 33 % below −0.5, least −0.60"
    assert conflict(steps.tail(1)) == "no step with both groups"


def test_figure_2_puts_the_worse_run_first(frame):
    runs = of(frame, method="fft")
    titles = [panel.get_title() for panel in drawing(figure2.figure, runs, "how").figure.axes if panel.images]
    accuracies = [float(title.rpartition(", ")[2].removesuffix(" %")) for title in titles]
    assert len(accuracies) == 3
    assert accuracies == sorted(accuracies)


def test_figure_2_says_what_a_run_lacks():
    """A finished run without diagnostics has empty panels that say so."""
    bare = gather(planned("table1"), RESULTS)
    assert "no representations" in words(drawing(figure2.figure, of(bare, method="fft"), "how").figure)


def test_figure_4d_draws_dsgd_with_and_without_its_scale(frame):
    panel = drawing(figure4d.figure, small("figure4d", frame).query("seed == 42"), "how").figure.axes[0]
    labels = {line.get_label().partition(":")[0]: line.get_ydata() for line in panel.lines}
    np.testing.assert_allclose(labels["FFT"], [2, 2, 4])
    np.testing.assert_allclose(labels["DSGD"], [1, 1, 4])
    np.testing.assert_allclose(labels["DSGD, were γ = 1"], [2, 2, 4])


def test_an_epoch_ends_with_a_smaller_window(frame):
    """45 examples in windows of 20 are 3 steps."""
    run = of(frame, method="fft").to_dict("records")[0]
    assert [figure4c.epoch_at(run, step) for step in (0, 3, 6)] == [0, 1, 2]


def test_figure_4c_is_the_accuracy_at_every_evaluation(frame):
    (series,) = series_of(of(frame, method="dsgd"))
    curves = figure4c.curves_of(series)
    last = curves[curves["epoch"] == 3]
    assert len(curves) == 4 * 3
    np.testing.assert_allclose(last["accuracy"], series.cell.accuracies)


def test_the_time_of_an_ensemble_is_that_of_all_its_members(frame):
    """45 examples at 90 a second: half a second an epoch, and 1.5 for three members."""
    records = drawing(figure3.figure, of(frame), "how").records
    times = {record["method"]: record["seconds_per_epoch"] for record in records}
    assert times["FFT"] == N_TRAIN / SPEED == 0.5
    assert times["ENS (×3)"] == 1.5


def test_figure_8_counts_the_failed_members_of_each_ensemble(frame):
    """Of three runs there is one ensemble of three; seed 62 has collapsed; there are too few for five."""
    runs = of(frame, method="fft")
    drawn = drawing(figure8.figure, runs, "how")
    (record,) = drawn.records
    assert sorted(record["seeds"].split()) == ["42", "52", "62"]
    failed = {status: (runs["status"] == status).mean() * 100 for status in ("collapsed", "degenerate")}
    assert record["collapsed_share"] == pytest.approx(failed["collapsed"]) == pytest.approx(100 / 3)
    assert record["degenerate_share"] == pytest.approx(failed["degenerate"])
    assert record["mean_accuracy"] == pytest.approx(100 * runs["accuracy"].mean())
    assert "only 3 of 3 runs: too few for 5 members" in words(drawn.figure)


def test_a_run_without_a_result_counts_as_failed_and_a_missing_one_not_at_all(frame):
    """FFT on RTE: seed 52 has failed; SWA on RTE: seed 62 is missing, so that two have ended."""
    rates = {each.label: stability_region.rate_of(each) for each in series_of(of(frame, "rte"))}
    statuses = of(frame, "rte", "fft")["status"]
    others = int(statuses.isin(["collapsed", "degenerate"]).sum())
    assert (rates["fft"].failures, rates["fft"].ended, rates["fft"].planned) == (1 + others, 3, 3)
    assert (rates["swa"].ended, rates["swa"].planned) == (2, 3)


def test_a_rate_has_its_exact_interval():
    """No failure in 10 runs: the upper end p solves (1 − p)¹⁰ = 0.025."""
    interval = stability_region.Rate(1e-5, 0, 10, 10).interval
    assert interval.low == 0
    assert (1 - interval.high) ** 10 == pytest.approx(0.025)
