"""What is said of a cell's runs, on a console and in a table alike: its spread, its counts, and how it is set in text.

Torch-free; runs are given as the rows of their ``metrics.json``.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dsgd.evaluation import NonFinitePredictions, Predictions, evaluate
from dsgd.files import DamagedError
from dsgd.rows import Row
from dsgd.runs import Condition, RunFolder

if TYPE_CHECKING:
    from dsgd.config.schema import Evaluation


def metrics_under(thresholds: Evaluation, folder: RunFolder, found: Condition | None = None) -> Row:
    """The summary row of a finished run, its statuses by ``thresholds``, not by those of the time of training.

    Of a run without checksums the accuracy is compared with its predictions, where there are any; where they differ,
    the predictions are right.

    Args:
        thresholds: of the status.
        folder: of the run.
        found: its condition, where that is known already.

    Raises:
        FileNotFoundError: the run is not finished, or the predictions that are needed are gone.
        DamagedError: a file is not what the run wrote.
    """
    try:
        return _metrics_under(thresholds, folder, found or folder.condition())
    except NonFinitePredictions as error:
        raise DamagedError(f"{folder.path}: {error}, which no finished run has") from error


def _metrics_under(thresholds: Evaluation, folder: RunFolder, found: Condition) -> Row:
    row = dict(found.row) if found.state == "finished" else folder.metrics
    multiple_choice = "median_margin" in row
    if not found.seal and os.path.lexists(folder.path / "predictions.parquet"):
        row |= _corrections(row, predictions_of(folder))
    if row.setdefault("thresholds", asdict(thresholds)) == asdict(thresholds):
        return row
    scored = evaluate(predictions_of(folder), thresholds, multiple_choice)
    row |= {key: scored[key] for key in ("status", "status_by_task", "near_collapsed") if key in scored}
    row["thresholds"] = asdict(thresholds)
    for name in variants_of(row):
        row[f"status_{name}"] = evaluate(predictions_of(folder, name), thresholds, multiple_choice)["status"]
    return row


def predictions_of(folder: RunFolder, variant: str = "") -> Predictions:
    """A finished run's stored predictions, of one of its averages where there are several; raises as ``whole`` does."""
    return Predictions.load(folder.whole(f"predictions_{variant}.parquet" if variant else "predictions.parquet"))


def _corrections(row: Row, predictions: Predictions) -> Row:
    """What of the row the predictions contradict."""
    if predictions.tasks is None and "accuracy" in row:
        right = float((predictions.predictions == predictions.labels).mean())
        if abs(right - row["accuracy"]) < 1e-6:
            return {}
    from dsgd.config.schema import Evaluation  # imports Hydra, which readers of predictions do without

    thresholds = Evaluation(**row.get("thresholds", {}))
    found = evaluate(predictions, thresholds, "median_margin" in row)
    return {key: value for key, value in found.items() if key in row}


def variants_of(row: dict[str, Any]) -> list[str]:
    """Names of the further averages that one training was evaluated with (``accuracy_<name>``, ``status_<name>``)."""
    return [key.removeprefix("status_") for key in row if key.startswith("status_") and key != "status_by_task"]


def mean_and_std(values: Sequence[float]) -> str:
    """``mean ± sample standard deviation`` (ddof = 1), a dash for what cannot be computed."""
    if not values:
        return "—"
    spread = f"{statistics.stdev(values):.2f}" if len(values) > 1 else "—"
    return f"{statistics.mean(values):.2f} ± {spread}"


def mixed(rows: Iterable[dict[str, Any]], columns: Iterable[str]) -> dict[str, list[str]]:
    """Of ``columns``, those in which the runs of one cell differ, with what stands there, sorted."""
    rows = list(rows)
    found = {column: sorted({str(row[column]) for row in rows if column in row}) for column in columns}
    return {column: values for column, values in found.items() if len(values) > 1}


def markdown_text(text: str) -> str:
    """``text`` for one cell of a Markdown table, where it means itself: no column, line or HTML begins in it."""
    return without_html(" ".join(text.splitlines())).replace("|", r"\|")


def without_html(text: str) -> str:
    """``text`` with what would begin an HTML tag in Markdown written out, except in code between backticks."""
    return re.sub(r"`[^`]*`|<(?=[A-Za-z/!?])", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of an aligned Markdown table; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
