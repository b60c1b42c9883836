"""Rules about a model by itself and under the parts that reach into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from dsgd.config.checkpoints import require_loadable, text_model_problem
from dsgd.config.contents import model_fingerprint
from dsgd.config.files import FilesError, local_path
from dsgd.config.messages import describe
from dsgd.config.parts import LNSR, Full, LNSRReading, ReinitTop
from dsgd.config.schema import Config, Modality


def _model_has_a_place(config: Config) -> list[str]:
    model = config.model
    if not (model.package or model.path or model.hub_id or model.scratch.patch_size):
        return [describe("model.path", "null", f"model={model.name} needs the folder of a saved model")]
    if not model.path:
        return []
    if model.package is not None:
        inside = PurePosixPath(model.path)
        reason = f"is looked for inside the package {model.package}; for a folder of your own: model=local model.path=…"
        return [describe("model.path", model.path, reason)] if inside.is_absolute() or ".." in inside.parts else []
    try:
        require_loadable(model.path)
        model_fingerprint(config)
        misfit = text_model_problem(model.path, config.task.max_length) if model.modality is Modality.text else None
    except FilesError as error:
        return [describe("model.path", model.path, str(error).removeprefix(f"{local_path(model.path)}: "))]
    if misfit is None:
        return []
    key, reason = misfit
    return [describe(key, model.path if key == "model.path" else config.task.max_length, reason)]


def _model_is_deep_and_long_enough(config: Config) -> list[str]:
    """Against the facts that a model's YAML states of its checkpoint; without them, loading will tell."""
    model, found = config.model, []
    if model.blocks is not None and (model.layers or 0) > model.blocks:
        found.append(
            describe("model.layers", model.layers, f"model={model.name} has {model.blocks} transformer blocks")
        )
    if model.max_length is not None and config.task.max_length > model.max_length:
        takes = f"model={model.name} takes {model.max_length} tokens at most"
        found.append(describe("task.max_length", config.task.max_length, takes))
    return found


def _blocks_are_there(config: Config) -> list[str]:
    """A part that reaches for the last blocks needs as many."""
    there, found = config.model.layers or config.model.blocks, []
    if there is None:
        return []
    reason = f"the model has {there} transformer block{'' if there == 1 else 's'} as configured"
    if isinstance(config.initialization, ReinitTop) and config.initialization.blocks > there:
        found.append(describe("initialization.blocks", config.initialization.blocks, reason))
    if isinstance(config.regularizer, LNSR) and config.regularizer.reading is LNSRReading.blocks:
        weights = config.regularizer.weights
        found += [describe("regularizer.weights", weights, reason)] if len(weights) > there else []
    return found


def _convolutional_nets_have_no_blocks(config: Config) -> list[str]:
    """Besides the parts that count blocks: what grows with depth, sits in blocks, or is measured there."""
    if config.model.blocks != 0:
        return []
    reason = f"model={config.model.name} is convolutional and has no transformer blocks; give"
    asked = {
        "trainer.layer_decay": (config.trainer.layer_decay, 1.0),
        "diagnostics": (config.diagnostics.name, "none"),
    }
    return [describe(key, value, f"{reason} {plain}") for key, (value, plain) in asked.items() if value != plain]


def _adapters_know_their_places(config: Config) -> list[str]:
    adapter, model = config.adapter, config.model
    if isinstance(adapter, Full) or model.modality is not Modality.image:
        return []
    return [
        describe("adapter", adapter.name, f"has its places in models of text, not in model={model.name}; give full")
    ]


def _images_have_one_layer_above_the_blocks(config: Config) -> list[str]:
    regularizer = config.regularizer
    if config.model.modality is not Modality.image or not isinstance(regularizer, LNSR):
        return []
    if regularizer.reading is LNSRReading.blocks or len(regularizer.weights) == 1:
        return []
    reason = f"reading=head has one layer in model={config.model.name}; give one weight, or reading=blocks"
    return [describe("regularizer.weights", regularizer.weights, reason)]


def _patches_tile_the_image(config: Config) -> list[str]:
    """Of a model from scratch; a checkpoint's patches are known when it is loaded."""
    model, found = config.model, []
    patch, heads = model.scratch.patch_size, model.scratch.heads
    if patch is None:
        return []
    if (model.image_size or patch) % patch:
        wanted = f"give a multiple of model.scratch.patch_size = {patch}"
        found.append(describe("model.image_size", model.image_size, wanted))
    if model.scratch.width % heads:
        found.append(describe("model.scratch.width", model.scratch.width, f"give a multiple of heads = {heads}"))
    return found


#: Each gives its problems as lines.
RULES: tuple[Callable[[Config], list[str]], ...] = (
    _model_has_a_place,
    _model_is_deep_and_long_enough,
    _blocks_are_there,
    _convolutional_nets_have_no_blocks,
    _adapters_know_their_places,
    _images_have_one_layer_above_the_blocks,
    _patches_tile_the_image,
)
