"""Feature maps: what a layer of a trained network sees in a digit, and what an in-place ReLU does to a stored output.

`kept_maps` runs the network with a forward hook that stores one layer's output, detached and cloned. Here the network's
ReLUs work in place, as in many networks: they write into the convolution's output.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping

import ipywidgets as widgets
import torch
from torch import Tensor, nn

from hooklab.course.digits import DigitsCNN, digits, trained_digits_cnn
from hooklab.course.explorers import Explorer, panel
from hooklab.course.lesson03 import figures
from hooklab.course.lesson03.figures import COLUMNS

LAYERS = ("conv1", "relu1", "conv2", "relu2", "pool")


@functools.lru_cache(maxsize=1)
def network() -> DigitsCNN:
    """Return a digits network trained on the spot (about a second, once), with ReLUs that work in place."""
    model = copy.deepcopy(trained_digits_cnn())
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = True
    return model


def kept_maps(image: Tensor, layer: str) -> dict[str, Tensor]:
    """Return what a forward hook on `layer` has stored, in two forms, once the whole forward pass is over.

    Args:
        image: one digit, shape (1, 8, 8).
        layer: one of LAYERS.

    Returns:
        "detach()" and "clone()" -> the first eight maps, shape (8, height, width).
    """
    kept: dict[str, Tensor] = {}

    def keep(module: nn.Module, args: object, output: Tensor) -> None:
        kept["detach()"] = output.detach()[0, :COLUMNS]
        kept["clone()"] = kept["detach()"].clone()

    model = network()
    with torch.no_grad(), model.get_submodule(layer).register_forward_hook(keep):
        model(image.unsqueeze(0))
    return kept


def describe_maps(number: int, label: int, layer: str, maps: Mapping[str, Tensor]) -> str:
    """Return a sentence with the counts that the picture shows, of test image `number`, which is a `label`."""
    detached, cloned = (int((one < 0).sum()) for one in maps.values())
    text = (
        f"Image {number} is a {label}. Values below zero on {layer}: {detached} after detach(), {cloned} in the clone."
    )
    return text + " The ReLU after it has overwritten the rest." * (detached < cloned)


def feature_maps() -> Explorer:
    """Return the explorer: which digit, and which layer."""
    images, labels = digits().test_images[:40], digits().test_labels.tolist()
    controls: dict[str, widgets.Widget] = {
        "number": widgets.IntSlider(3, 0, len(images) - 1, 1, description="image"),
        "layer": widgets.Dropdown(options=LAYERS, value="relu1", description="layer"),
    }
    return panel(
        lambda number, layer: figures.feature_maps(images[number], kept_maps(images[number], layer)),
        lambda number, layer: describe_maps(number, labels[number], layer, kept_maps(images[number], layer)),
        controls,
        intro="Try this: go through the layers. For which of them do the two rows differ, and what runs after these?",
    )
