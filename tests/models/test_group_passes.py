"""Which models need one backward pass for both groups' gradients."""

import pytest
import timm
import torch
from test_group_gradients import compare
from tiny_models import EVERY, batch_of, checkpoint, classifier, padded
from torch import nn
from torch.nn.functional import cross_entropy


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_every_text_architecture_needs_one_pass(name, choices):
    """Slower is not wrong, so only this shows a rule that was forgotten."""
    model = classifier(checkpoint(name), choices)
    batch = padded(model, batch_of(examples=6, choices=choices))

    def losses():
        return cross_entropy(model(**batch.inputs), batch.labels, reduction="none")

    fallback = compare(model, losses, torch.arange(6) < 2, relative=1e-3)
    if name == "deberta-v2":  # its projections also see relative positions, which know no examples
        assert all("_proj." in key or "rel_embeddings" in key or "encoder.LayerNorm" in key for key in fallback)
    else:
        assert fallback == []


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18", "efficientnet_b0"])
def test_image_architectures_fall_back_only_where_they_normalise_over_the_batch(name):
    model = timm.create_model(name, num_classes=3, **({"img_size": 32} if name.startswith("vit") else {})).double()
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels, members = torch.arange(4) % 3, torch.tensor([True, False, False, False])

    def losses():
        return cross_entropy(model(x), labels, reduction="none")

    is_convolutional = not name.startswith("vit")
    assert bool(compare(model.train(), losses, members)) == is_convolutional
    norms = {
        f"{path}.{key}"
        for path, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for key in ("weight", "bias")
    }
    assert set(compare(model.eval(), losses, members)) == norms, "of these, the weights alone"
