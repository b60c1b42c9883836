"""What is said of a cell's runs, on a console and in a table alike: its spread, its counts, and how it is set in text.

Torch-free; runs are given as the rows of their ``metrics.json``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from dsgd.config.schema import Evaluation
from dsgd.evaluation import Predictions, evaluate
from dsgd.runs import RunFolder


def metrics_under(thresholds: Evaluation, folder: RunFolder) -> dict[str, Any]:
    """The summary row of a finished run, its statuses by ``thresholds``, not by those of the time of training."""
    row = folder.metrics
    if row.setdefault("thresholds", asdict(thresholds)) == asdict(thresholds):
        return row
    multiple_choice = "median_margin" in row
    scored = evaluate(Predictions.load(folder.path / "predictions.parquet"), thresholds, multiple_choice)
    row |= {key: scored[key] for key in ("status", "status_by_task", "near_collapsed") if key in scored}
    row["thresholds"] = asdict(thresholds)
    for name in variants_of(row):
        predictions = Predictions.load(folder.path / f"predictions_{name}.parquet")
        row[f"status_{name}"] = evaluate(predictions, thresholds, multiple_choice)["status"]
    return row


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


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of an aligned Markdown table; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
