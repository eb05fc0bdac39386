"""The explorers of lesson 9: `what_it_looks_at` (picture, network, method, layer → map) and `heads_at_work`."""

from __future__ import annotations

import functools

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure
from torch import Tensor

from hooklab.course.explorers import Explorer, inches, panel
from hooklab.course.lesson09 import heads, maps, shapes
from hooklab.course.lesson09.copying import Sequences, sequences, trained_copier
from hooklab.course.lesson09.figures import heat, picture
from hooklab.course.plots import CAPTURED, CHANGED, FORWARD, INK, REST, style

NETWORKS = ("own tags", "random tags", "random weights")
LAYERS = ("block1", "block2", "block3")
PICTURES = 12


@functools.cache
def network(name: str) -> shapes.ShapeCNN:
    """Return one of NETWORKS: trained with the shapes' own tags, with random ones, or not at all."""
    tags = {NETWORKS[0]: "own", NETWORKS[1]: "random"}
    return shapes.trained(tags[name]) if name in tags else shapes.untrained()


@functools.cache
def some_pictures() -> shapes.Pictures:
    """Return the pictures to choose from, with tags of the shapes' own colours."""
    return shapes.pictures(PICTURES, seed=5, tags="own")


@functools.cache
def map_of(number: int, name: str, method: str, layer: str) -> Tensor:
    """Return the map of one picture, shape (32, 32); `layer` counts for Grad-CAM only."""
    images, labels = some_pictures().images[number : number + 1], some_pictures().labels[number : number + 1]
    if method == "Grad-CAM":
        return maps.grad_cam(network(name), images, labels, layer)[0]
    return maps.METHODS[method](network(name), images, labels)[0]


def draw_map(number: int, name: str, method: str, layer: str) -> Figure:
    """Draw a picture and its map side by side."""
    made = some_pictures()
    with style():
        figure, axes = inches(5.6, 3.15)
        title = name if name == "random weights" else f"trained with {name}"
        axes.text(0.1, 2.85, f"{method}, {title}", va="bottom", color=INK)
        picture(axes, made.images[number], (0.1, 0.1), 2.6)
        heat(axes, map_of(number, name, method, layer), made.masks[number], (2.9, 0.1), 2.6)
        return figure


def describe_map(number: int, name: str, method: str, layer: str) -> str:
    """Return the sentence under the picture: what the network says, where the map is largest, what is on the shape."""
    made, found = some_pictures(), map_of(number, name, method, layer).unsqueeze(0)
    with torch.no_grad():
        says = shapes.SHAPES[int(network(name)(made.images[number : number + 1]).argmax())]
    mask, tag = made.masks[number : number + 1], shapes.tag_masks(1)
    where = "the shape" if maps.points_at(found, mask) else "the tag" if maps.points_at(found, tag) else "neither"
    share = round(100 * maps.mass_on(found, mask))
    label = shapes.SHAPES[int(made.labels[number])]
    which = f"{method} of {layer}" if method == "Grad-CAM" else f"{method} (of the pixels, not of {layer})"
    return f"A {label}; the network says {says}. {which} points at {where}; {share} % of it lies on the shape."


def what_it_looks_at() -> Explorer:
    """Return the explorer of maps; it trains the networks first, so that no control has to wait."""
    for name in NETWORKS:
        network(name)
    controls: dict[str, widgets.Widget] = {
        "number": widgets.IntSlider(0, 0, PICTURES - 1, 1, description="picture"),
        "name": widgets.Dropdown(options=NETWORKS, value=NETWORKS[0], description="network"),
        "method": widgets.Dropdown(options=list(maps.METHODS), value="Grad-CAM", description="method"),
        "layer": widgets.Dropdown(options=LAYERS, value="block3", description="layer"),
    }
    return panel(
        draw_map,
        describe_map,
        controls,
        intro="Try this: gradient × input, first on the trained networks, then on the one with random weights. "
        "(The layer counts for Grad-CAM only.)",
        rows=[[controls["number"], controls["name"]], [controls["method"], controls["layer"]]],
        shows=lambda method, layer, **other: (other, method, layer if method == "Grad-CAM" else None),
    )


# --- heads

OFF = {"none": (), "this head": (0,), "both heads of its layer": (0, 1)}


@functools.cache
def some_sequences() -> Sequences:
    """Return eight sequences, of different periods."""
    return sequences(8, seed=6)


@functools.cache
def look(number: int, layer: int, head: int, position: int) -> Tensor:
    """Return how much of its attention a head sends from a position to each one, shape (23,)."""
    return heads.patterns(trained_copier(), some_sequences().inputs[number : number + 1])[layer, 0, head, position]


@functools.cache
def says(number: int, layer: int, head: int, position: int, off: str) -> Tensor:
    """Return the probabilities of the next token, shape (16,), with heads switched off; `off` is one of OFF."""
    model, switched = trained_copier(), [(layer, (head + other) % 2) for other in OFF[off]]
    with torch.no_grad(), heads.without(model, switched):
        scores: Tensor = model(some_sequences().inputs[number : number + 1])[0, position]
    return scores.softmax(dim=-1)


def draw_head(number: int, chosen: tuple[int, int], position: int, off: str) -> Figure:
    """Draw a sequence, what a head looks at from one position, and what the model predicts next."""
    made = some_sequences()
    tokens, answer = made.inputs[number].tolist(), int(made.tokens[number, position + 1])
    attention, expected = look(number, *chosen, position), says(number, *chosen, position, off)
    with style():
        figure, axes = inches(9.0, 3.3)
        at = [0.42 + 0.365 * place for place in range(len(tokens))]
        axes.bar(at, attention.tolist(), 0.28, 1.95, color=CAPTURED)  # all at once: each call takes milliseconds
        for place, token in enumerate(tokens):
            colour = FORWARD if place == position else INK
            axes.text(at[place], 1.7, f"{token}", ha="center", color=colour, weight="bold")
        x = at[position]
        axes.annotate("", (x, 1.68), (x, 1.4), arrowprops={"arrowstyle": "-|>", "color": FORWARD, "lw": 2})
        axes.text(
            0.15, 3.2, "attention of the head from the position with the arrow", va="top", fontsize=9, color=CAPTURED
        )
        at = [1.9 + 0.4 * token for token in range(len(expected))]
        axes.bar(at, [0.8 * share for share in expected.tolist()], 0.3, 0.3, color=CHANGED if off != "none" else REST)
        for token, x in enumerate(at):
            colour, weight = (FORWARD, "bold") if token == answer else (INK, "normal")
            axes.text(x, 0.06, f"{token}", ha="center", fontsize=10, weight=weight, color=colour)
        axes.text(0.15, 0.6, "what the model\npredicts next\n(blue: the answer)", va="center", fontsize=9, color=REST)
        return figure


def describe_head(number: int, chosen: tuple[int, int], position: int, off: str) -> str:
    """Return the sentence: what the head looks at, what the model says, and the right answer."""
    made, (layer, head) = some_sequences(), chosen
    attention, period = look(number, layer, head, position), int(made.periods[number])
    most = int(attention.argmax())
    if position >= period and (position - most) % period == period - 1:
        what = ", the token after an earlier copy"
    else:
        what = {0: ", itself", 1: ", the previous one"}.get(position - most, "")
    answer = int(made.tokens[number, position + 1])
    said = int(says(number, layer, head, position, off).argmax())
    known = f"right is {answer}" if position >= period else f"{answer} comes next, which can't be known yet"
    share = round(100 * float(attention[most]))
    return (
        f"Layer {layer}, head {head}: position {position} looks most at position {most}{what} ({share} %). "
        f"Switched off: {off}. The model says {said}; {known}."
    )


def heads_at_work() -> Explorer:
    """Return the explorer of heads."""
    controls: dict[str, widgets.Widget] = {
        "number": widgets.IntSlider(0, 0, len(some_sequences().tokens) - 1, 1, description="sequence"),
        "position": widgets.IntSlider(20, 0, 22, 1, description="position"),
        "chosen": widgets.Dropdown(
            options=[(f"layer {layer}, head {head}", (layer, head)) for layer, head in heads.ALL_HEADS],
            value=(1, 0),
            description="head",
        ),
        "off": widgets.Dropdown(options=list(OFF), value="none", description="switch off"),
    }
    return panel(
        draw_head,
        describe_head,
        controls,
        intro="Try this: move the position and watch each head. Then switch one head off, and both.",
        rows=[[controls["number"], controls["position"]], [controls["chosen"], controls["off"]]],
    )
