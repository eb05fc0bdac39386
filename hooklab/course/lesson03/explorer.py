"""Feature maps: what a layer of a trained network sees in a digit, and what an in-place ReLU does to a stored output.

`kept_maps` runs the network with a forward hook that keeps one layer's output, either the tensor itself or a clone.
The network's ReLUs work in place here, as in many networks: they write into the convolution's output.
"""

from __future__ import annotations

import copy
import functools

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from hooklab.course import plots
from hooklab.course.digits import DigitsCNN, digits, trained_digits_cnn
from hooklab.course.explorers import Explorer, inches, panel, tile

LAYERS = ("conv1", "relu1", "conv2", "relu2", "pool")
COLUMNS = 8


@functools.lru_cache(maxsize=1)
def network() -> DigitsCNN:
    """Return a digits network trained on the spot (about a second, once), with ReLUs that work in place."""
    model = copy.deepcopy(trained_digits_cnn())
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = True
    return model


def kept_maps(image: Tensor, layer: str, clone: bool) -> Tensor:
    """Return what a forward hook on `layer` has kept once the whole forward pass is over.

    Args:
        image: one digit, shape (1, 8, 8).
        layer: one of LAYERS.
        clone: whether the hook keeps a clone, or the output itself.

    Returns:
        The maps, shape (channels, height, width).
    """
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: Tensor) -> None:
        kept.append(output.clone() if clone else output)

    model = network()
    with torch.no_grad(), model.get_submodule(layer).register_forward_hook(keep):
        model(image.unsqueeze(0))
    return kept[0][0]


def draw_maps(image: Tensor, maps: Tensor, kept: str = "") -> Figure:
    """Draw a digit and its maps: blue is positive, orange negative, white zero, on one scale for all maps.

    Args:
        image: shape (1, 8, 8).
        maps: shape (channels, height, width).
        kept: what the hook has stored, for the title: "the output", or "a clone".
    """
    rows = -(-len(maps) // COLUMNS)
    top = float(maps.abs().max()) or 1.0
    with plots.style():
        figure, axes = inches(9.0, 2.7)
        tile(axes, image[0], (0.1, 0.6), 1.5, f"stored: {kept}" if kept else "the digit", cmap="gray_r", vmin=0, vmax=1)
        for number, channel in enumerate(maps):
            row, column = divmod(number, COLUMNS)
            corner = (1.95 + 0.88 * column, 1.35 + 1.15 * (rows / 2 - 1 - row) + 0.15)
            tile(axes, channel, corner, 0.8, f"{number}", cmap=plots.SIGNED, vmin=-top, vmax=top)
        return figure


def describe_maps(number: int, label: int, layer: str, maps: Tensor, clone: bool) -> str:
    """Return a sentence with the counts that the picture shows, of test image `number`, which is a `label`."""
    negative = int((maps < 0).sum())
    kept = "a clone" if clone else "the output itself"
    counted = f"{negative} of {maps.numel()} values are negative."
    text = f"Image {number} is a {label}. The hook on {layer} stored {kept}: {counted}"
    if layer.startswith("conv") and not clone:
        return text + " The in-place ReLU has overwritten what the hook stored: these are the ReLU's values."
    if layer.startswith("conv"):
        return text + " These are the convolution's own values."
    return text


def feature_maps() -> Explorer:
    """Return the explorer: which digit, which layer, and whether the hook keeps a clone or the output itself."""
    images, labels = digits().test_images[:40], digits().test_labels.tolist()
    controls: dict[str, widgets.Widget] = {
        "number": widgets.IntSlider(3, 0, len(images) - 1, 1, description="image"),
        "layer": widgets.Dropdown(options=LAYERS, value="conv1", description="layer"),
        "clone": widgets.ToggleButtons(
            options=[("keep the output", False), ("keep a clone", True)], value=False, description="the hook should"
        ),
    }

    def draw(number: int, layer: str, clone: bool) -> Figure:
        return draw_maps(images[number], kept_maps(images[number], layer, clone), "a clone" if clone else "the output")

    def say(number: int, layer: str, clone: bool) -> str:
        return describe_maps(number, labels[number], layer, kept_maps(images[number], layer, clone), clone)

    return panel(
        draw,
        say,
        controls,
        intro="Try this: look at conv1, then switch to a clone. Where do the negative values come from?",
        rows=[[controls["number"], controls["layer"]], [controls["clone"]]],
    )
