"""LoRA against the merged weights, and the distance that it reports."""

import copy

import torch

from dsgd.config import parts
from dsgd.methods import build
from dsgd.methods.adapter.lora import squared_norm
from dsgd.methods.contracts import Step
from helpers import random_batch, tiny_classifier


def adapted_and_merged(r=4, alpha=6.0):
    """A model with LoRA and random B, the same model with W + (α/r)·B·A in its place, the part, and all α/r·B·A."""
    base = tiny_classifier()
    part = build("adapter", parts.LoRA(r=r, alpha=alpha), adapter_seed=0)
    model = part(copy.deepcopy(base))
    updates = []
    generator = torch.Generator().manual_seed(5)
    for number, block in enumerate(model.blocks):
        for layer in ("query", "value"):
            adapted = block.get_submodule(f"attention.self.{layer}")
            a, b = adapted.lora_A["default"].weight, adapted.lora_B["default"].weight
            with torch.no_grad():
                b.copy_(torch.randn(b.shape, generator=generator, dtype=b.dtype))
                updates.append(alpha / r * b @ a)
                base.blocks[number].get_submodule(f"attention.self.{layer}").weight += updates[-1]
    return model, base, part, updates


def test_the_output_is_that_of_merged_weights():
    model, merged, _, _ = adapted_and_merged()
    batch = random_batch()
    assert torch.allclose(model(**batch.inputs), merged(**batch.inputs), rtol=0, atol=1e-12)
    assert not torch.allclose(model(**batch.inputs), tiny_classifier()(**batch.inputs), atol=1e-3)


def test_the_reported_norm_is_that_of_all_updates_together():
    model, _, part, updates = adapted_and_merged()
    expected = torch.cat([update.flatten() for update in updates]).norm()
    found = part.after_step(model, Step(1, 10))
    assert torch.allclose(found["lora/update_norm"], expected, rtol=1e-12)


def test_the_norm_of_a_product_needs_no_product():
    """B = (1, 2)ᵀ, A = (3, 0, 4): B·A has rows (3, 0, 4) and (6, 0, 8), squares 25 + 100 = 125 = 5·25."""
    b, a = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 0.0, 4.0]])
    assert squared_norm(b, a).item() == 125


def test_there_is_no_penalty():
    model, _, part, _ = adapted_and_merged()
    assert part.penalty(model) is None
