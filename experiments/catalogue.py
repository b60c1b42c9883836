"""Every table and figure, and the experiment whose runs it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from experiments import (
    balanced_images,
    figure1,
    figure2,
    figure3,
    figure4a,
    figure4b,
    figure4c,
    figure4d,
    figure5,
    figure6,
    figure8,
    figures9_11,
    focal_grid,
    gradient_spikes,
    learning_rates,
    stability_region,
    table1,
    table1_ensembles,
    table2,
    table3,
    table4,
    table5,
    table6,
    weight_decay_sensitivity,
)
from experiments.figures import Draw
from experiments.tables import Table


class Item(NamedTuple):
    """``python -m experiments.<name>``; a table, a figure, or both."""

    name: str
    experiment: str
    table: Callable[[str, pd.DataFrame], Table] | None = None
    figure: Draw | None = None


ITEMS = (
    Item("table1", "table1", table=table1.draw),
    Item("table1_ensembles", "table1_ensembles", table=table1_ensembles.draw),
    Item("table2", "table2", table=table2.draw),
    Item("table3", "table1", table=table3.draw),
    Item("table4", "table1", table=table4.draw),
    Item("table5", "table2", table=table5.draw),
    Item("table6", "table6", table=table6.draw),
    Item("figure1", "figure1", figure=figure1.figure),
    Item("figure2", "figure2", figure=figure2.figure),
    Item("figure3", "figure3", figure=figure3.figure),
    Item("figure4a", "figure4a", figure=figure4a.figure),
    Item("figure4b", "figure4b", figure=figure4b.figure),
    Item("figure4c", "figure4c", figure=figure4c.figure),
    Item("figure4d", "figure4d", figure=figure4d.figure),
    Item("figure5", "figure4c", table=figure5.draw),
    Item("figure6", "table2", table=figure6.draw),
    Item("figure7", "figure7", figure=figure4d.figure),
    Item("figure8", "figure8", figure=figure8.figure),
    Item("figures9_11", "figures9_11", figure=figures9_11.figure),
    Item("balanced_images", "balanced_images", table=balanced_images.draw),
    Item("focal_grid", "focal_grid", table=focal_grid.draw),
    Item("learning_rates", "learning_rates", table=learning_rates.draw),
    Item("stability_region", "stability_region", figure=stability_region.figure),
    Item("gradient_spikes", "gradient_spikes", table=gradient_spikes.draw, figure=gradient_spikes.figure),
    Item(
        "weight_decay_sensitivity",
        "weight_decay_sensitivity",
        table=weight_decay_sensitivity.draw,
        figure=weight_decay_sensitivity.figure,
    ),
)

#: What is drawn of an experiment that no item names, such as ``laptop/smoke``.
GENERAL = ("table1", "figures9_11")


def items_of(experiment: str) -> list[Item]:
    """What shows the runs of an experiment or of a variant of one: ``laptop/table2`` is drawn as ``table2`` is."""
    name = experiment.rpartition("/")[2]
    return [item for item in ITEMS if item.experiment == name] or [item for item in ITEMS if item.name in GENERAL]
