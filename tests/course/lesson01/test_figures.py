"""Lesson 1's figures and its small autograd's surroundings."""

from __future__ import annotations

import torch

from hooklab.course.lesson01 import engine, figures
from solutions.misconceptions.lesson01 import value_class

Right = value_class()


class Stub(Right):
    def arrive(self, gradient, arriving):
        raise NotImplementedError


def test_the_order_of_a_backward_puts_each_value_after_all_that_use_it():
    x, a = Right(2.0), Right(3.0)
    y = x * a
    longer = y * a
    z = longer + y
    order = engine.backward_order(z)
    assert order[0] is z
    assert order.index(longer) < order.index(y) < order.index(x)
    assert len(order) == len(set(order)) == 5


def test_a_right_engine_and_torch_say_the_same():
    rows = [line.split() for line in engine.beside_torch(Right).splitlines()[1:]]
    assert [(row[-2], row[-1]) for row in rows] == [("7", "7"), ("None", "None"), ("None", "None"), ("[4.0]", "[4.0]")]


def test_an_engine_that_is_not_written_says_so_beside_torch():
    assert engine.beside_torch(Stub).count(engine.NOT_WRITTEN) == 4


def test_the_fork_shows_the_gradients_that_meet_and_their_sum():
    x = torch.tensor(1.0, requires_grad=True)
    y = x + 2
    s, t = y**2, 3 * y
    figure = figures.fork(x, y, {"s": s, "t": t}, s + t)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"6", "3", "9", "6 + 3 = 9", "passed on", "kept in .grad"} <= set(texts)
