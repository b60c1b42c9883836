"""How often each method fails, by learning rate: where it trains stably.

python -m experiments.stability_region
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments import figures
from experiments.figures import PAGE, Drawing, Look, look_of
from experiments.names import method_title, model_title, task_title
from experiments.series import Series, panels_of, series_of
from experiments.statistics import Interval, binomial_interval

COLUMNS = 4
BASELINE = "fft"  # drawn in every panel, in grey
MARGIN, BESIDE = 1.6, 0.88  # factors of a learning rate: room at the ends; grey bars where they hide no others


@dataclass(frozen=True)
class Rate:
    """Failed runs at one learning rate: collapsed, degenerate, or without a result."""

    learning_rate: float
    failures: int
    ended: int
    planned: int

    @property
    def percent(self) -> float:
        """NaN where no run has ended."""
        return 100 * self.failures / self.ended if self.ended else math.nan

    @property
    def interval(self) -> Interval:
        """Exact 95 % interval of the rate, in [0, 1]."""
        return binomial_interval(self.failures, self.ended)


def figure(frame: pd.DataFrame) -> Drawing:
    """A panel for each method: its failure rate with exact binomial intervals, beside full fine-tuning's."""
    panels = [
        (f"{model_title(model)}, {task_title(task)}", method, rates, by_method)
        for model, task, series in panels_of(series_of(frame))
        for by_method in [rates_by_method(series)]
        for method, rates in by_method.items()
    ]
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    canvas, axes = figures.canvas(PAGE, 0.6 + 1.6 * rows, rows, columns, squeeze=False, sharex=True, sharey=True)
    places = dict.fromkeys(place for place, *_ in panels)
    everywhere = [rate.learning_rate for _, _, rates, _ in panels for rate in rates]
    for panel, (place, method, rates, by_method) in zip(axes.flat, panels, strict=False):
        panel.set(xscale="log", xlim=(min(everywhere) / MARGIN, max(everywhere) * MARGIN), ylim=(-4, 104))
        if method != BASELINE and BASELINE in by_method:
            _draw(panel, by_method[BASELINE], Look("#aaaaaa", "o", "--"), aside=BESIDE)
        _draw(panel, rates, look_of(method))
        panel.set_title("".join([f"{place}\n" * (len(places) > 1), method_title(method), lacking(rates)]))
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    canvas.supxlabel("learning rate", fontsize=8)
    canvas.supylabel("failed runs (%)", fontsize=8)
    canvas.suptitle(f"{'; '.join(places)} (grey: {method_title(BASELINE)})", fontsize=8)
    return Drawing(canvas, [record_of(place, method, rate) for place, method, rates, _ in panels for rate in rates])


def rates_by_method(series: Sequence[Series]) -> dict[str, list[Rate]]:
    """Method → its rates, by ascending learning rate; of several averages of one training the first."""
    found: dict[str, dict[float, Rate]] = {}
    for each in series:
        rate = rate_of(each)
        found.setdefault(each.preset, {}).setdefault(rate.learning_rate, rate)
    return {method: [rates[key] for key in sorted(rates)] for method, rates in found.items()}


def rate_of(series: Series) -> Rate:
    """What a series says of its learning rate."""
    cell = series.cell
    failures = cell.failed + cell.count("collapsed") + cell.count("degenerate")
    return Rate(series.runs[0]["facts"].learning_rate, failures, cell.n + cell.failed, cell.planned)


def lacking(rates: Sequence[Rate]) -> str:
    """Planned runs that have not ended."""
    ended, planned = (sum(getattr(rate, key) for rate in rates) for key in ("ended", "planned"))
    return "" if ended == planned else f"\n{ended} of {planned} runs"


def record_of(place: str, method: str, rate: Rate) -> dict[str, Any]:
    """A line of the CSV; rates in %."""
    low, high = rate.interval
    return {
        "place": place,
        "method": method_title(method),
        "learning_rate": f"{rate.learning_rate:g}",
        "failures": rate.failures,
        "ended": rate.ended,
        "planned": rate.planned,
        "failure_rate": rate.percent if rate.ended else None,
        "low": 100 * low,
        "high": 100 * high,
    }


def _draw(axes: Any, rates: Sequence[Rate], look: Look, aside: float = 1.0) -> None:
    shown = [rate for rate in rates if rate.ended]
    where, heights = [rate.learning_rate * aside for rate in shown], [rate.percent for rate in shown]
    below = [max(0.0, rate.percent - 100 * rate.interval.low) for rate in shown]
    above = [max(0.0, 100 * rate.interval.high - rate.percent) for rate in shown]
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.line, "markersize": 4}
    axes.errorbar(where, heights, yerr=[below, above], capsize=2, elinewidth=0.7, **style)


if __name__ == "__main__":
    sys.exit(figures.main("stability_region", figure))
