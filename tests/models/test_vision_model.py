"""timm models behind the classifier's interface: weights, head, named places, sizes and preprocessing."""

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from image_models import MEAN, STD, saved_resnet, saved_vit
from PIL import Image
from safetensors.torch import load_file, save_file

from dsgd.config.schema import Modality, Model, Scratch, Trainer
from dsgd.models import build_model, load_preprocessor
from dsgd.models.sources import SourceError
from dsgd.models.vision import ImagePreprocessor, Normalize, VisionClassifier
from dsgd.optimization import parameter_groups


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    saved_vit(folder)
    return folder


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet")
    saved_resnet(folder)
    return folder


def model_at(folder, **fields):
    return Model(name="x", modality=Modality.image, path=str(folder), **fields)


def built(folder, num_classes=3, seed=1, **fields):
    return build_model(model_at(folder, **fields), num_classes, seed)


def pixels(count=4, side=32, channels=3, seed=0):
    values = np.random.default_rng(seed).integers(256, size=(count, side, side, channels), dtype=np.uint8)
    return torch.from_numpy(values)


# --- weights and head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vit", "resnet"])
@pytest.mark.parametrize("num_classes", [3, 7])
def test_all_weights_but_the_head_s_are_the_file_s(kind, num_classes, request):
    """Also where the file's head has as many classes: 7."""
    folder = request.getfixturevalue(kind)
    model, file = built(folder, num_classes), load_file(folder / "model.safetensors")
    head = model.architecture.head
    for name, tensor in model.network.state_dict().items():
        if name.startswith(f"{head}."):
            assert tensor.shape[0] == num_classes
            assert not (num_classes == 7 and torch.equal(tensor, file[name]))
        else:
            assert torch.equal(tensor, file[name]), name


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_the_head_is_decided_by_the_seed_alone(kind, request):
    folder = request.getfixturevalue(kind)
    torch.manual_seed(0)
    one = built(folder, seed=4).head.weight
    torch.manual_seed(1)
    assert torch.equal(one, built(folder, seed=4, dropout=0.1).head.weight)
    assert not torch.equal(one, built(folder, seed=5).head.weight)


def test_the_head_is_drawn_from_a_truncated_normal_and_its_bias_is_zero(vit):
    """500 · 32 weights: the sample deviation of N(0, 0.02²) is within 2 % of 0.02."""
    head = built(vit, num_classes=500).head
    assert head.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert not head.bias.any()


def test_building_leaves_the_global_random_state_alone(vit):
    before = torch.get_rng_state()
    built(vit)
    assert torch.equal(before, torch.get_rng_state())


def test_a_half_precision_file_trains_in_fp32(tmp_path):
    saved_vit(tmp_path, change=lambda network: network.half())
    assert {parameter.dtype for parameter in built(tmp_path).parameters()} == {torch.float32}


def test_a_file_with_gaps_is_refused(tmp_path):
    saved_vit(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["blocks.1.norm1.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=r"blocks\.1\.norm1\.weight"):
        built(tmp_path)


def test_a_folder_of_another_library_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "architectures": ["ViTModel"]}))
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match="no architecture that timm knows"):
        built(tmp_path)


def test_pickled_weights_are_not_read(tmp_path):
    saved_vit(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(SourceError, match=r"no model\.safetensors"):
        built(tmp_path)


# --- named places ---------------------------------------------------------------------------------------------------


def test_a_transformer_names_its_places(vit):
    model = built(vit)
    names = {id(parameter): name for name, parameter in model.network.named_parameters()}
    below = {names[id(parameter)] for parameter in model.embeddings.parameters()}
    assert below == {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
    assert len(model.blocks) == 2
    assert model.head is model.network.head
    assert model.token_embeddings(torch.zeros(2, 3, 32, 32)).shape == (2, 16, 32)
    assert model.num_classes == 3


def test_a_convolutional_net_has_a_stem_and_a_head_and_no_blocks(resnet):
    model = built(resnet)
    assert (len(model.blocks), model.embeddings, model.head) == (0, model.network.conv1, model.network.fc)


def test_layers_are_cut_off_above(vit):
    whole, cut = built(vit), built(vit, layers=1)
    assert len(cut.blocks) == 1
    assert torch.equal(cut.blocks[0].attn.qkv.weight, whole.blocks[0].attn.qkv.weight)
    assert torch.equal(cut.head.weight, whole.head.weight)
    with pytest.raises(ValueError, match=r"model\.layers = 3: the checkpoint has 2"):
        built(vit, layers=3)


def test_learning_rates_fall_with_depth(vit):
    """Two blocks: head 1, blocks 1/2 and 1/4, embeddings 1/8 of the rate."""
    model = built(vit)
    groups = parameter_groups(model, Trainer(lr=8.0, layer_decay=0.5))
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    places = (model.head, model.network.norm, model.blocks[1], model.blocks[0], model.embeddings)
    assert [{rates[id(p)] for p in place.parameters()} for place in places] == [{8.0}, {8.0}, {4.0}, {2.0}, {1.0}]


def test_frozen_embeddings_do_not_train(vit):
    model = built(vit, freeze_embeddings=True)
    assert not model.network.pos_embed.requires_grad
    assert not model.network.patch_embed.proj.weight.requires_grad
    assert model.head.weight.requires_grad


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_dropout_is_set_everywhere(kind, request):
    """In evaluation mode nothing is dropped; in training mode two passes differ only where there is dropout."""
    for dropout, same in ((0.0, True), (0.5, False)):
        model = built(request.getfixturevalue(kind), dropout=dropout)
        images = pixels()
        assert torch.equal(model(pixels=images), model(pixels=images)) == same


@pytest.mark.parametrize("name", ["deit_small_patch16_224", "resnet34", "resnet50", "efficientnet_b0"])
def test_the_real_architectures_have_their_places(name):
    network = timm.create_model(name, num_classes=2)
    model = VisionClassifier(network, ImagePreprocessor(224, 3, MEAN, STD, "bicubic"))
    assert len(model.blocks) == (12 if name.startswith("deit") else 0)
    assert model.head.weight.shape[0] == 2
    assert next(model.embeddings.parameters()).requires_grad


# --- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_an_image_s_logits_do_not_depend_on_its_batch(kind, request):
    model, images = built(request.getfixturevalue(kind)).eval(), pixels(5)
    with torch.no_grad():
        together = model(pixels=images)
        alone = torch.cat([model(pixels=image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_another_image_size_resamples_the_position_embeddings(vit):
    """4 · 4 patches of 8 pixels become 2 · 2; corners that were equal stay so, and all other weights too."""
    model, whole = built(vit, image_size=16).eval(), built(vit)
    assert model.network.pos_embed.shape == (1, 1 + 4, 32)
    assert torch.equal(model.network.pos_embed[:, 0], whole.network.pos_embed[:, 0])
    assert torch.equal(model.blocks[1].mlp.fc1.weight, whole.blocks[1].mlp.fc1.weight)
    assert model(pixels=pixels()).isfinite().all()


def test_patches_must_tile_the_image(vit):
    with pytest.raises(ValueError, match=r"model\.image_size = 20: the patches are 8 pixels"):
        built(vit, image_size=20)


def test_the_checkpoint_says_how_its_images_are_prepared(vit):
    assert load_preprocessor(model_at(vit)) == ImagePreprocessor(32, 3, MEAN, STD, "bicubic")
    assert load_preprocessor(model_at(vit, image_size=64)).size == 64


def test_images_are_normalised_channel_by_channel():
    """White, (1 - 0.2) / 0.5 = 1.6, (1 - 0.4) / 0.25 = 2.4, (1 - 0.6) / 0.125 = 3.2; black -0.4, -1.6, -4.8."""
    normalize = Normalize(ImagePreprocessor(2, 3, MEAN, STD, "bicubic"))
    white = torch.full((1, 2, 2, 3), 255, dtype=torch.uint8)
    assert normalize(white)[0, :, 0, 0].tolist() == pytest.approx([1.6, 2.4, 3.2])
    assert normalize(torch.zeros_like(white))[0, :, 1, 1].tolist() == pytest.approx([-0.4, -1.6, -4.8])


@pytest.mark.parametrize(("side", "size"), [(32, 80), (48, 20)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_images_are_resized_as_pillow_does_it(side, size, interpolation):
    """Enlarging and shrinking, but for its rounding after each of two passes: 1.3 · 0.5 + 0.5, 1.3 = Σ|weights|.

    It also cuts off after each pass, so the images keep away from black and white.
    """
    images = 64 + pixels(2, side) // 2
    normalize = Normalize(ImagePreprocessor(size, 3, (0.0,) * 3, (1.0,) * 3, interpolation))
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    for ours, image in zip(normalize(images), images, strict=True):
        theirs = np.asarray(Image.fromarray(image.numpy()).resize((size, size), filters[interpolation]))
        assert np.abs(255 * ours.permute(1, 2, 0).numpy() - theirs).max() < 1.15


def test_grey_and_coloured_images_fit_both_kinds_of_net():
    """Grey 51 is 0.2 in every channel; (30, 60, 90) is 60 in grey."""
    colour = Normalize(ImagePreprocessor(1, 3, (0.0,) * 3, (1.0,) * 3, "bicubic"))
    grey = Normalize(ImagePreprocessor(1, 1, (0.0,), (1.0,), "bicubic"))
    assert colour(torch.tensor([[[[51]]]], dtype=torch.uint8)).flatten().tolist() == pytest.approx([0.2] * 3)
    assert grey(torch.tensor([[[[30, 60, 90]]]], dtype=torch.uint8)).flatten().tolist() == pytest.approx([60 / 255])


# --- from scratch ---------------------------------------------------------------------------------------------------


def scratch(seed, **fields):
    shape = Scratch(patch_size=2, width=16, depth=3, heads=2, channels=1)
    model = Model(name="x", modality=Modality.image, image_size=8, scratch=shape, **fields)
    return build_model(model, 5, seed)


def test_a_model_from_scratch_has_the_shape_that_is_asked_for_and_all_weights_by_the_seed():
    model = scratch(1)
    assert (len(model.blocks), model.network.embed_dim, model.network.pos_embed.shape[1]) == (3, 16, 1 + 16)
    assert model(pixels=pixels(side=8, channels=1)).shape == (4, 5)
    same, other = scratch(1).state_dict(), scratch(2).state_dict()
    assert all(torch.equal(tensor, same[name]) for name, tensor in model.state_dict().items())
    assert not torch.equal(model.state_dict()["network.cls_token"], other["network.cls_token"])
    assert not torch.equal(
        model.state_dict()["network.blocks.0.mlp.fc1.weight"], other["network.blocks.0.mlp.fc1.weight"]
    )


def test_the_path_wins_over_the_hub(vit):
    """So that ``model=vit_base model.path=…`` reads a local copy."""
    model = model_at(vit, hub_id="timm/none", revision="abc")
    assert Path(model.path) == vit
    assert load_preprocessor(model).size == 32


def test_the_state_that_is_classified_is_the_class_token_s_or_the_mean(vit, tmp_path):
    """As the network itself pools: by the class token here, over the patches where it has no such token."""
    hidden = torch.arange(12.0).view(1, 3, 4)
    assert built(vit).pooled(hidden).tolist() == [[0.0, 1.0, 2.0, 3.0]]
    saved_vit(tmp_path, global_pool="avg", class_token=False)
    assert built(tmp_path).pooled(hidden).tolist() == [[4.0, 5.0, 6.0, 7.0]]
