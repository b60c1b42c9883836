"""(IA)³ against scaled weights, and the deviation that it reports."""

import copy

import torch

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.contracts import Step
from helpers import random_batch, tiny_classifier


def test_keys_and_values_are_scaled_and_so_is_what_enters_both_output_projections():
    """l ⊙ (Wx + b) has rows of W and b scaled; W(l ⊙ x) has columns of W scaled and b as it was."""
    scaled = tiny_classifier()
    model = build("adapter", parts.IA3(), adapter_seed=0)(copy.deepcopy(scaled))
    generator = torch.Generator().manual_seed(5)
    for number, block in enumerate(model.blocks):
        for path in ("attention.self.key", "attention.self.value", "attention.output.dense", "output.dense"):
            scale = block.get_submodule(path).ia3_l["default"]
            plain = scaled.blocks[number].get_submodule(path)
            with torch.no_grad():
                scale.copy_(1 + torch.rand(scale.shape, generator=generator, dtype=scale.dtype))
                plain.weight *= scale  # (out, 1) or (1, in)
                if not path.endswith("dense"):
                    plain.bias *= scale.flatten()
    batch = random_batch()
    assert torch.allclose(model(**batch.inputs), scaled(**batch.inputs), rtol=0, atol=1e-12)
    assert not torch.allclose(model(**batch.inputs), tiny_classifier()(**batch.inputs), rtol=0, atol=1e-5)


def test_the_reported_deviation_is_the_distance_of_all_scales_from_one():
    """One scale at 4 and another at 5: √(3² + 4²) = 5."""
    part = build("adapter", parts.IA3(), adapter_seed=0)
    model = part(tiny_classifier())
    assert part.after_step(model, Step(1, 10))["ia3/scale_deviation"] == 0
    with torch.no_grad():
        model.blocks[0].attention.self.key.ia3_l["default"][0] = 4.0
        model.blocks[1].output.dense.ia3_l["default"][0, 7] = 5.0
    assert part.after_step(model, Step(1, 10))["ia3/scale_deviation"] == 5
