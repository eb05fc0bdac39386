"""All explorers: every position can be drawn and said, every control is followed, and nothing is left behind."""

import pkgutil
import struct
from io import BytesIO

import matplotlib.pyplot as plt
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from torch.nn.modules.module import _global_forward_hooks

import hooklab
from hooklab.course import one_call
from hooklab.course.digits import digits
from hooklab.course.explorers import DPI, WITHOUT_KERNEL, png
from hooklab.course.lesson01.explorer import backward_steps
from hooklab.course.lesson02.explorer import hooks_in_a_row
from hooklab.course.lesson03 import explorer as features
from hooklab.course.lesson04.explorer import at_the_door
from hooklab.course.lesson05 import explorer as doors
from hooklab.course.lesson06.explorer import call_order
from hooklab.course.lesson07 import explorer as mixtures
from hooklab.course.lesson08.explorer import going_wrong
from hooklab.course.lesson09.explorer import heads_at_work, what_it_looks_at
from hooklab.course.lesson10.explorer import over_time
from hooklab.course.lesson11.explorer import what_is_owed

MAKE = [
    backward_steps,
    hooks_in_a_row,
    features.feature_maps,
    at_the_door,
    doors.border,
    one_call.moving_call,
    call_order,
    mixtures.mixing,
    going_wrong,
    what_it_looks_at,
    heads_at_work,
    over_time,
    what_is_owed,
]


def size_of(picture):
    return struct.unpack(">II", picture[16:24])  # width and height in a PNG's header


def values_of(control):
    """All that a menu, a box or a short slider can be set to, and both ends of a longer one."""
    if hasattr(control, "options"):
        return [one[1] if isinstance(one, tuple) else one for one in control.options]
    if not hasattr(control, "min"):
        return [False, True]
    return list(range(control.max + 1)) if 1 < control.max < 9 else [control.min, control.max]


@pytest.mark.parametrize("make", MAKE)
def test_every_explorer_can_be_drawn_and_said_at_each_value_and_has_one_size(make):
    explorer = make()
    values = {name: values_of(control) for name, control in explorer.controls.items()}
    sizes, drawn = set(), {}
    for start in ({name: some[place] for name, some in values.items()} for place in (0, -1)):
        for position in [start | {name: one} for name, some in values.items() for one in some]:
            figure = explorer.draw(**position)
            assert figure.axes and explorer.say(**position).endswith("."), position
            sizes.add(tuple(figure.get_size_inches()))
            shows = repr(explorer.shows(**position))
            if (same := drawn.setdefault(shows, figure)) is not figure:
                assert png(same) == png(figure), f"another picture shows {shows}, too"
    assert len(sizes) == 1
    assert not _global_forward_hooks


@pytest.mark.parametrize("make", MAKE)
def test_every_explorer_follows_each_control_and_leaves_no_figure(make):
    explorer = make()
    assert "Try this: " in explorer.children[0].value
    picture, sentence = explorer.children[-2:]
    if "step" in explorer.controls:
        explorer.controls["step"].value = explorer.controls["step"].max
    for control in explorer.controls.values():
        at_first, shown = control.value, set()
        for value in values_of(control):
            control.value = value
            shown.add((bytes(picture.value), sentence.value))
        control.value = at_first
        assert len(shown) > 1, control.description
    assert plt.get_fignums() == []


@pytest.mark.parametrize("make", [backward_steps, doors.border])
def test_the_steps_end_where_the_run_of_the_chosen_switches_ends(make):
    explorer = make()
    *switches, slider = explorer.controls.values()
    _, _, (play, _), _, sentence = (getattr(one, "children", one) for one in explorer.children)
    slider.value = slider.max
    for switch in switches:
        switch.value = not switch.value
        slider.value = play.max
        assert slider.max == play.max
        assert f"Step {slider.max} of {slider.max}: after backward()" in sentence.value


# --- what lessons 3 and 7 show

IMAGE = digits().test_images[3]


def test_what_detach_gave_is_overwritten_only_where_an_in_place_relu_follows():
    overwritten = [layer for layer in features.LAYERS if not torch.equal(*features.kept_maps(IMAGE, layer).values())]
    assert overwritten == ["conv1", "conv2"]
    detached, cloned = features.kept_maps(IMAGE, "conv1").values()
    assert torch.equal(detached, cloned.relu()) and (cloned < 0).any()


def test_feature_maps_leave_no_hook():
    features.kept_maps(IMAGE, "conv2")
    assert not any(module._forward_hooks for module in features.network().modules())


def test_mixing_nothing_in_gives_the_first_digits_own_answer():
    alone = mixtures.mix(3, 7, 1.0, "relu2").probabilities
    assert torch.allclose(alone, mixtures.mix(3, 3, 0.5, "input").probabilities, atol=1e-6)


def test_the_mixture_at_the_input_is_the_mean_of_both_images():
    mixture = mixtures.mix(3, 7, 0.5, "input")
    assert torch.allclose(mixture.mixed[0], (mixture.first + mixture.second) / 2)


# --- a panel


def test_a_drawing_is_a_picture_before_pyplot_has_made_a_figure():
    show = DisplayFormatter().format
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
