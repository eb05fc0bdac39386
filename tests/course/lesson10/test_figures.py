"""Lesson 10's figures and its explorer show what was recorded and counted."""

import functools

import pytest
import torch
from matplotlib.colors import to_hex

from hooklab.course.lesson10 import figures
from hooklab.course.lesson10.explorer import PARTS, over_time
from hooklab.course.lesson10.memory import run
from hooklab.course.plots import CAPTURED, FORWARD
from tests.course.lesson10.test_memory import checkpoint

run_of = functools.cache(lambda parts: run(max(parts, 1), checkpoint if parts else None))


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_the_order_is_drawn_from_right_to_left_with_what_each_hook_found():
    steps = figures.order_at_two_nodes()
    (axes,) = figures.order(steps).axes
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert [places[str(number)] for number in range(1, 8)] == sorted(
        (places[str(number)] for number in range(1, 8)), reverse=True
    )
    assert places["2"] > places["works:\n5 · 3"] > places["3"]  # the node's work stands between its two hooks
    assert places["5"] > places["works:\n+ 15"] > places["6"]
    assert texts(axes).count("y.grad\nis 5") == 2 and texts(axes).count("x.grad\nis 15") == 2


def test_the_nan_is_drawn_where_it_is_made():
    x, y = torch.tensor([1.0, 1.0], requires_grad=True), torch.tensor([1.0, 0.0])
    flow = figures.down_the_graph((x * y).sum().acos())
    assert [name for name, _ in flow] == ["Acos", "Sum", "Mul"]
    (axes,) = figures.made_a_nan(flow).axes
    assert {"1.0", "−∞", "[−∞, NaN]"} <= set(texts(axes))


def test_an_arrow_leads_to_the_leafs_node_from_all_that_keep_it():
    panels = figures.who_keeps_the_node().axes
    arrows = [[text for text in axes.texts if getattr(text, "arrow_patch", None)] for axes in panels]
    assert [len(three) for three in arrows] == [0, 2, 3]
    assert [("kept" in texts(axes), "3 · w" in texts(axes)) for axes in panels] == [
        (False, False),
        (False, True),
        (True, True),
    ]


def test_the_valley_shows_each_peak_against_the_one_without_a_checkpoint():
    runs = {parts: run_of(parts) for parts in (1, 2, 4, 8, 16)}
    _, right = figures.valley(run_of(0), runs).axes
    level, peaks = right.lines
    assert [round(peak) for peak in peaks.get_ydata()] == [17, 10, 8, 10, 17]
    assert round(level.get_ydata()[0]) == 17
    assert (to_hex(level.get_color()).upper(), to_hex(peaks.get_color()).upper()) == (FORWARD, CAPTURED)


@pytest.mark.parametrize("parts", PARTS.values())
def test_every_position_of_the_explorer_has_its_own_picture_and_numbers(parts):
    _, (choice,), picture, sentence = (getattr(one, "children", one) for one in over_time(checkpoint).children)
    choice.value = 2 if parts != 2 else 8
    before = bytes(picture.value), sentence.value
    choice.value = parts
    assert bytes(picture.value) != before[0]
    counted = run_of(parts)
    kept = {0: 16, 1: 1}.get(parts, parts)
    assert f"{kept} outputs are kept" in sentence.value
    assert f"{counted.matmuls} layers are computed in forward passes" in sentence.value
