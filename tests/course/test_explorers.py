"""The explorers of feature maps, of a module's border and of mixing: their data, their extremes, their controls."""

import itertools
import pkgutil
import struct
from io import BytesIO

import matplotlib.pyplot as plt
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure

import hooklab
from hooklab.course.digits import digits
from hooklab.course.explorers import DPI, WITHOUT_KERNEL, png
from hooklab.course.lesson03 import explorer as features
from hooklab.course.lesson05 import explorer as doors
from hooklab.course.lesson07 import explorer as mixtures

IMAGE = digits().test_images[3]


def controls_of(explorer):
    """The explorer's widgets with a description, by it."""
    rows = explorer.children[1:-2]
    return {widget.description: widget for row in rows for widget in row.children}


def size_of(picture):
    return struct.unpack(">II", picture[16:24])  # width and height in a PNG's header


# --- feature maps


def test_what_detach_gave_is_overwritten_only_where_an_in_place_relu_follows():
    overwritten = [layer for layer in features.LAYERS if not torch.equal(*features.kept_maps(IMAGE, layer).values())]
    assert overwritten == ["conv1", "conv2"]
    detached, cloned = features.kept_maps(IMAGE, "conv1").values()
    assert torch.equal(detached, cloned.relu()) and (cloned < 0).any()


def test_feature_maps_leave_no_hook():
    features.kept_maps(IMAGE, "conv2")
    assert not any(module._forward_hooks for module in features.network().modules())


# --- mixing


def test_mixing_nothing_in_gives_the_first_digits_own_answer():
    alone = mixtures.mix(3, 7, 1.0, "relu2").probabilities
    assert torch.allclose(alone, mixtures.mix(3, 3, 0.5, "input").probabilities, atol=1e-6)


def test_the_mixture_at_the_input_is_the_mean_of_both_images():
    mixture = mixtures.mix(3, 7, 0.5, "input")
    assert torch.allclose(mixture.mixed[0], (mixture.first + mixture.second) / 2)


@pytest.mark.parametrize(("layer", "lam"), list(itertools.product(mixtures.LAYERS, [0.0, 0.35, 1.0])))
def test_every_mixture_can_be_drawn_at_one_size(layer, lam):
    mixture = mixtures.mix(0, 9, lam, layer)
    assert float(mixture.probabilities.sum()) == pytest.approx(1.0, abs=1e-5)
    assert size_of(png(mixtures.draw_mixture(mixture, (0, 9)))) == size_of(
        png(mixtures.draw_mixture(mixtures.mix(1, 1, 0.5, "input"), (1, 1)))
    )


# --- all of them


@pytest.mark.parametrize(
    ("make", "description", "value"),
    [
        (features.feature_maps, "image", 39),
        (features.feature_maps, "layer", "pool"),
        (doors.border, "step", 5),
        (mixtures.mixing, "first", 9),
        (mixtures.mixing, "λ", 0.0),
        (mixtures.mixing, "mixed at", "pool"),
    ],
)
def test_an_explorer_follows_its_control_and_leaves_no_figure(make, description, value):
    explorer = make()
    picture, sentence = explorer.children[-2:]
    before = picture.value, sentence.value
    controls_of(explorer)[description].value = value
    assert picture.value != before[0]
    assert sentence.value != before[1]
    assert size_of(picture.value) == size_of(before[0])
    assert plt.get_fignums() == []


@pytest.mark.parametrize("make", [features.feature_maps, doors.border, mixtures.mixing])
def test_every_explorer_opens_with_something_to_try(make):
    assert "Try this: " in make().children[0].value


def test_a_drawing_is_a_picture_before_pyplot_has_made_a_figure():
    show = InteractiveShell().display_formatter.format
    assert "image/png" not in show(Figure())[0]
    data, _ = show(doors.draw_border(doors.record_border(), 5))
    assert data["image/png"].startswith(b"\x89PNG")


def test_a_picture_has_the_bytes_that_savefig_writes():
    figure = doors.draw_border(doors.record_border(), 5)
    saved = BytesIO()
    figure.savefig(saved, format="png", dpi=DPI, facecolor="white")
    assert png(figure) == saved.getvalue()


def test_no_public_name_is_also_a_module():
    """Importing such a module would put it in the name's place: the second call would find a module."""
    modules = {module.name for module in pkgutil.iter_modules(hooklab.__path__)}
    assert modules.isdisjoint(hooklab.__all__)


def test_where_no_kernel_runs_an_explorer_is_a_picture_that_says_so():
    explorer = doors.border()
    shown = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"].startswith(f"{WITHOUT_KERNEL}. Try this: ")
    (width, height), (inside_width, inside_height) = size_of(shown["image/png"]), size_of(explorer.children[-2].value)
    assert width == inside_width
    assert height > inside_height
