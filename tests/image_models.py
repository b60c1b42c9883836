"""Tiny image models of real architectures with random weights, saved as timm publishes them; no download is needed."""

import timm
import torch
from timm.models._hub import save_for_hf

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
RESNET = {"channels": (8, 8, 16, 16)}
MEAN, STD = (0.2, 0.4, 0.6), (0.5, 0.25, 0.125)


def saved(folder, architecture, num_classes=7, change=lambda network: None, **arguments):
    """``folder``, which then holds ``architecture`` with weights of its own and the data settings above."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        network = timm.create_model(architecture, num_classes=num_classes, **arguments)
        for parameter in network.parameters():  # zeros and ones would hide what is lost
            torch.nn.init.normal_(parameter, std=0.1)
    change(network)
    settings = {"mean": MEAN, "std": STD, "num_classes": num_classes}
    save_for_hf(
        network, folder, model_args=arguments, safe_serialization=True, model_config={"pretrained_cfg": settings}
    )
    return network


def saved_vit(folder, **changes):
    return saved(folder, "vit_tiny_patch16_224", **{**VIT, **changes})


def saved_resnet(folder, **changes):
    return saved(folder, "resnet18", **{**RESNET, **changes})
