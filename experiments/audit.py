"""Do the paper's printed numbers agree with arithmetic, with each other and with its own text?

    python -m experiments.audit [--strict] [--out DIR]

Everything is recomputed from the printed values in ``experiments/paper/*.csv``, exactly: a printed number stands for
the closed interval of all numbers that round to it, and integers and fractions decide what lies inside. So a verdict
of *impossible* is a proof, not a matter of floating point. Exits 0; with ``--strict`` 1 unless all is consistent.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Literal, TypeVar

from experiments.folders import output
from experiments.listing import print_listing, write_listing

PAPER = Path(__file__).parent / "paper"
QUANTITIES = ("accuracy_mean", "accuracy_std")
RUNS = 10  # section 5.1: every cell is the mean and STD over 10 seeds

Row = dict[str, str]  # column → entry as printed
T = TypeVar("T")
Verdict = Literal["consistent", "impossible", "contradiction"]


@dataclass(frozen=True)
class Finding:
    """One printed value or group of values, and what follows from the rest of the paper.

    ``impossible``: no ten runs give the number. ``contradiction``: it disagrees with another number or statement of the
    paper, or with the public data that the paper names.
    """

    place: str
    check: str
    printed: str
    follows: str
    verdict: Verdict


def main(arguments: list[str] | None = None) -> int:
    """Print the findings, write them where asked, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.audit", description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="exit 1 where anything is not consistent")
    parser.add_argument("--out", type=Path, help="also write audit.md and audit.csv into this folder")
    options = parser.parse_args(arguments)
    folder = options.out and output(parser, options.out)
    findings = audit()
    print_listing(findings)
    bad = [finding for finding in findings if finding.verdict != "consistent"]
    print(f"\n{len(findings)} findings: {len(bad)} not consistent")
    if folder is not None:
        write_listing(findings, folder, "audit", f"python -m experiments.audit --out {options.out}")
    return int(options.strict and bool(bad))


def audit() -> list[Finding]:
    """Every check of this file, in the paper's order."""
    checks: tuple[Callable[[], Iterable[Finding]], ...] = (
        possible_cells,
        degrees_of_freedom,
        collapsed_cells,
        row_averages,
        text_against_tables,
        settings_stated_twice,
        splits,
        imbalanced_totals,
        parameter_counts,
    )
    return [finding for check in checks for finding in check()]


# ------------------------------------------------------------------ cells: can ten runs give this mean and this STD?


@dataclass(frozen=True)
class Cell:
    """A printed ``mean ± std`` in percent, over ``RUNS`` accuracies that are multiples of 1/``size``."""

    place: str
    column: str
    label: str
    mean: str
    std: str
    size: int

    def __str__(self) -> str:
        return f"{self.label} {self.mean} ± {self.std}"


def cells() -> list[Cell]:
    """All cells of Tables 1, 2 and 6 with the size of the evaluation set behind each."""
    size = {row["task"]: int(row["validation"]) for row in _read("official_splits")}
    size |= {row["dataset"]: int(row["validation"]) for row in _read("table5")}
    columns: dict[str, Callable[[Row], tuple[str, str]]] = {  # the column's name, and the data that it measures
        "table1": lambda row: (row["task"], row["task"]),
        "table2": lambda row: (_column(row), row["dataset"]),
        "table6": lambda row: (f"{row['evaluated_on']} of {row['tasks']}", row["evaluated_on"]),
    }
    found = []
    for table, column_of in columns.items():
        for row in _read(table):
            column, data = column_of(row)
            found.append(
                Cell(_place(table), column, _label(row), row["accuracy_mean"], row["accuracy_std"], size[data])
            )
    return found


def possible_cells() -> Iterator[Finding]:
    """GRIM and GRIMMER: each cell for which no ten accuracies exist, and how many of each table remain."""
    check = f"some {RUNS} accuracies have this mean and STD"
    for place, group in _by(lambda cell: cell.place, cells()).items():
        impossible = [cell for cell in group if not possible_ddofs(cell)]
        for cell in impossible:
            yield Finding(f"{place}, {cell.column}", check, str(cell), _why_impossible(cell), "impossible")
        follows = f"possible: {len(group) - len(impossible)} of {len(group)}"
        yield Finding(place, check, f"the other {len(group) - len(impossible)} cells", follows, "consistent")


def possible_ddofs(cell: Cell) -> list[int]:
    """Which of the two usual divisors, n (0) or n - 1 (1), can give the printed STD; empty where none can."""
    return [ddof for ddof in (0, 1) if any(possible_squares(cell, total, ddof) for total in possible_totals(cell))]


def possible_totals(cell: Cell) -> range:
    """Counts of right answers over all runs whose mean rounds to the printed one (GRIM)."""
    low, high = (bound * RUNS * cell.size / 100 for bound in _interval(cell.mean))
    return range(max(ceil(low), 0), min(floor(high), RUNS * cell.size) + 1)


def possible_squares(cell: Cell, total: int, ddof: int) -> range:
    """Sums of squared counts with this ``total`` whose STD rounds to the printed one (GRIMMER).

    A sum of squares has the parity of the sum, is least where the counts are as equal as they can be, and greatest
    where as many as can be are all right or all wrong.
    """
    unit = Fraction(cell.size, 100)
    low, high = (
        (RUNS - ddof) * (max(bound, Fraction(0)) * unit) ** 2 + Fraction(total**2, RUNS)
        for bound in _interval(cell.std)
    )
    share, rest = divmod(total, RUNS)
    least = rest * (share + 1) ** 2 + (RUNS - rest) * share**2
    full, remainder = divmod(total, cell.size)
    greatest = full * cell.size**2 + remainder**2
    start = max(ceil(low), least)
    return range(start + (start - total) % 2, min(floor(high), greatest) + 1, 2)


def _why_impossible(cell: Cell) -> str:
    totals = possible_totals(cell)
    if not totals:
        below = floor(Fraction(cell.mean) * RUNS * cell.size / 100)
        near = ", ".join(f"{100 * total / (RUNS * cell.size):.3f}" for total in (below, below + 1))
        return f"means of {RUNS} runs on {cell.size} examples jump from {near}"
    return f"no {RUNS} counts of {cell.size} with sum {_span(totals)} have this STD, with n or n - 1"


def degrees_of_freedom() -> Iterator[Finding]:
    """Which divisor the STDs were taken with: the cells that only one of the two can give decide."""
    decided = {0: 0, 1: 0}
    for cell in cells():
        ddofs = possible_ddofs(cell)
        if len(ddofs) == 1:
            decided[ddofs[0]] += 1
    follows = f"only n - 1 is possible in {decided[1]} cells, only n in {decided[0]}"
    verdict: Verdict = "contradiction" if all(decided.values()) else "consistent"
    yield Finding("Tables 1, 2, 6", "one divisor for all STDs", "divisor not stated", follows, verdict)


def collapsed_cells() -> Iterator[Finding]:
    """Cells without any spread: do all runs predict the majority class of the validation set?"""
    rows = {row["task"]: row for row in _read("official_splits")}
    for cell in cells():
        if Fraction(cell.std) != 0 or cell.column not in rows:
            continue
        row = rows[cell.column]
        rate = Fraction(100 * int(row["validation_majority"]), int(row["validation"]))
        follows = f"majority class {row['validation_majority']}/{row['validation']} = {float(rate):.2f}"
        yield Finding(
            f"{cell.place}, {cell.column}",
            "no spread: all runs collapsed",
            str(cell),
            follows,
            _verdict(_rounds_to(rate, cell.mean)),
        )


# ------------------------------------------------------------------ averages of a row


def row_averages() -> Iterator[Finding]:
    """The last two columns of Tables 1 and 6 against the mean of the row's cells, which were rounded themselves."""
    check = "average of the row"
    for table in ("table1", "table6"):
        cells_of = _by(_label, _read(table))
        printed = _read(f"{table}_printed_averages")
        wrong = 0
        for row in printed:
            averages = {key: _mean(cell[key] for cell in cells_of[_label(row)]) for key in QUANTITIES}
            if not all(_follows(average, row[key]) for key, average in averages.items()):
                wrong += 1
                follows = " ± ".join(f"{float(average):.2f}" for average in averages.values())
                yield Finding(_place(table), check, f"{_label(row)} {_entry(row)}", follows, "contradiction")
        agree = len(printed) - wrong
        yield Finding(
            _place(table), check, f"the other {agree} rows", f"agree: {agree} of {len(printed)}", "consistent"
        )


def _follows(average: Fraction, printed: str) -> bool:
    """Whether numbers that round to the cells can have an average that rounds to ``printed``."""
    low, high = _interval(printed)
    half = (high - low) / 2  # the cells are printed to as many digits
    return low - half <= average <= high + half


def _mean(printed: Iterable[str]) -> Fraction:
    values = [Fraction(value) for value in printed]
    return sum(values, Fraction(0)) / len(values)


# ------------------------------------------------------------------ text against tables


def text_against_tables() -> Iterator[Finding]:
    """Numbers of tables that the text repeats."""
    tables = _printed_values()
    rows = list(_read("text_values"))
    agree = 0
    for row in rows:
        value = tables[row["table"], row["model"], row["method"], row["ensemble_size"], row["column"], row["quantity"]]
        if _rounds_to(Fraction(value), row["printed"]):
            agree += 1
            continue
        label = f"{_label(row)} on {row['column']}"
        yield Finding(
            row["place"],
            "text repeats a table",
            f"{label}: {row['printed']}",
            f"{_place(row['table'])}: {value}",
            "contradiction",
        )
    yield Finding(
        "Sections 5.2, 5.3, F.1",
        "text repeats a table",
        f"the other {agree} numbers",
        f"agree: {agree} of {len(rows)}",
        "consistent",
    )


def _printed_values() -> dict[tuple[str, ...], str]:
    """(table, model, method, ensemble size, column, quantity) → the number as printed."""
    found: dict[tuple[str, ...], str] = {}
    for name in ("table1", "table2", "table6", "table1_printed_averages", "table6_printed_averages"):
        for row in _read(name):
            column = _column(row) if name == "table2" else row.get("task", row.get("evaluated_on", "average"))
            key = (name.partition("_")[0], row["model"], row["method"], row.get("ensemble_size", "1"), column)
            found |= {(*key, quantity): row[quantity] for quantity in QUANTITIES}
    return found


def settings_stated_twice() -> Iterator[Finding]:
    """Settings and pointers that the paper gives in two places."""
    for row in _read("settings_stated_twice"):
        verdict = _verdict(row["value"] == row["other_value"])
        yield Finding(
            row["other_place"], row["setting"], row["other_value"], f"{row['place']}: {row['value']}", verdict
        )


# ------------------------------------------------------------------ data and models, from first principles


def splits() -> Iterator[Finding]:
    """Table 3 against the official training and validation splits."""
    official = {row["task"]: row for row in _read("official_splits")}
    for row in _read("table3"):
        printed, sizes = (f"{split['train']} / {split['validation']}" for split in (row, official[row["task"]]))
        verdict = _verdict(printed == sizes)
        yield Finding(f"Table 3, {row['task']}", "sizes of the splits", printed, f"official splits: {sizes}", verdict)


def imbalanced_totals() -> Iterator[Finding]:
    """Table 5: does the printed ratio r:1 give the printed total, and if not, does r % do, that is the factor r/100?"""
    for row in _read("table5"):
        ratio = int(row["printed_ratio"])
        totals = {
            factor: imbalanced_total(row["dataset"], row["imbalance"], factor)
            for factor in (Fraction(1, ratio), Fraction(ratio, 100))
        }
        correct = totals[Fraction(1, ratio)] == int(row["train"])
        shown = list(totals.items())[: 1 if correct else 2]
        follows = "; ".join(
            f"{float(1 / factor):g}:1 (factor {float(factor):g}) gives {total}" for factor, total in shown
        )
        printed = f"ratio {ratio}:1, {row['train']} examples"
        yield Finding(
            f"Table 5, {row['dataset']} {row['imbalance']}", "total from the ratio", printed, follows, _verdict(correct)
        )


def imbalanced_total(dataset: str, imbalance: str, factor: Fraction) -> int:
    """Training examples that imbalanced CIFAR keeps, by the formulas of arXiv:1906.07413 in exact arithmetic."""
    classes = int(dataset.removeprefix("cifar"))
    half = classes // 2
    exponents = {
        "longtail": [Fraction(label, classes - 1) for label in range(classes)],
        "step": [Fraction(0)] * half + [Fraction(1)] * (classes - half),
    }
    return sum(_scaled(50_000 // classes, factor, exponent) for exponent in exponents[imbalance])


def _scaled(maximum: int, factor: Fraction, exponent: Fraction) -> int:
    """The largest n <= maximum · factor^(p/q), that is with n^q <= maximum^q · factor^p."""
    p, q = exponent.as_integer_ratio()
    limit: Fraction = maximum**q * factor**p
    n: int = round(maximum * float(factor) ** float(exponent))
    while n**q > limit:
        n -= 1
    while (n + 1) ** q <= limit:
        n += 1
    return n


def parameter_counts() -> Iterator[Finding]:
    """Section 5.5: trainable parameters of RoBERTa-large, for each head and target that the text leaves open."""
    readings = trainable_parameters()
    for row in _read("parameter_counts"):
        fitting = [
            f"{reading} = {count:,}"
            for reading, count in readings[row["method"]].items()
            if _abbreviates(row["printed"], count)
        ]
        follows = "; ".join(fitting) or "; ".join(
            f"{reading} = {count:,}" for reading, count in readings[row["method"]].items()
        )
        yield Finding(
            "Section 5.5",
            "trainable parameters",
            f"{row['method']} ∼{row['printed']}",
            follows,
            _verdict(bool(fitting)),
        )


def trainable_parameters() -> dict[str, dict[str, int]]:
    """Method → reading of the paper → number of trainable parameters, from RoBERTa-large's published shapes."""
    layers, width, inner, vocabulary, positions, rank = 24, 1024, 4096, 50_265, 514, 8
    norm = 2 * width
    attention = 4 * (width * width + width)
    feedforward = width * inner + inner + inner * width + width
    encoder = (vocabulary + positions + 1) * width + norm + layers * (attention + feedforward + 2 * norm)
    dense = width * width + width
    heads = {
        "Linear(1024, 1)": width + 1,
        "Linear(1024, 2)": 2 * (width + 1),
        "dense + Linear(1024, 2)": dense + 2 * (width + 1),
    }
    adapters = {
        "lora": {f"rank {r} on query, value": layers * 2 * r * 2 * width for r in (rank, 2 * rank)},
        "adalora": {f"rank {r} on query, value": layers * 2 * r * (2 * width + 1) for r in (16, 64)},
        "ia3": {"key, value, both output.dense": layers * (3 * width + inner), "query, value": layers * 2 * width},
        "fft": {"encoder": encoder, "encoder + pooler": encoder + dense},
    }
    return {
        method: {f"{part} + {head}": count + size for part, count in parts.items() for head, size in heads.items()}
        for method, parts in adapters.items()
    }


def _abbreviates(printed: str, count: int) -> bool:
    """Whether ``count``, rounded or cut off at the last non-zero digit of, say, 787.5K, gives what is printed."""
    value = Fraction(printed[:-1]) * {"K": 1_000, "M": 1_000_000}[printed[-1]]
    unit = 1
    while value % (10 * unit) == 0:
        unit *= 10
    return value in (count // unit * unit, (count + unit // 2) // unit * unit)


# ------------------------------------------------------------------ printed numbers


def _read(name: str) -> list[Row]:
    """A file of printed values, every entry as it is printed."""
    with (PAPER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _interval(printed: str) -> tuple[Fraction, Fraction]:
    """All numbers that round to ``printed``; both ends, since the paper's rule for halves is not known."""
    half = Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))
    return Fraction(printed) - half, Fraction(printed) + half


def _rounds_to(value: Fraction, printed: str) -> bool:
    low, high = _interval(printed)
    return low <= value <= high


def _verdict(consistent: bool) -> Verdict:
    return "consistent" if consistent else "contradiction"


def _label(row: Row) -> str:
    """A row of a table: model, method, and the size where it is an ensemble."""
    size = row.get("ensemble_size", "1")
    return f"{row['model']} {row['method']}" + (f" ×{size}" if size != "1" else "")


def _entry(row: Row) -> str:
    return f"{row['accuracy_mean']} ± {row['accuracy_std']}"


def _place(table: str) -> str:
    """``table1`` is Table 1."""
    return table.replace("table", "Table ")


def _column(row: Row) -> str:
    """Table 2's columns by the names of the tasks."""
    return "_".join(row[key] for key in ("dataset", "imbalance", "printed_ratio"))


def _by(key: Callable[[T], str], values: Iterable[T]) -> dict[str, list[T]]:
    """Values under their key, in the order of their first."""
    groups: dict[str, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def _span(totals: range) -> str:
    return str(totals[0]) if len(totals) == 1 else f"{totals[0]} to {totals[-1]}"


if __name__ == "__main__":
    sys.exit(main())
