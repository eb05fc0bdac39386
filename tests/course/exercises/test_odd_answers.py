"""Answers of odd kinds, odd exceptions and odd values: each gets an outcome, and a right one is right."""

import asyncio
import functools

import pytest
import torch

from hooklab.course.exercises import attempt
from hooklab.course.exercises.values import same, tensor_text
from tests.course.exercises.made_up import calls_with_tensor, hooks_a_tensor, outcome_of


class Own(BaseException):
    pass


class Rude(Exception):
    def __str__(self):
        raise Rude


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SystemExit(3), "answer raised SystemExit: 3, at line"),
        (asyncio.CancelledError(), "answer raised CancelledError, at line"),
        (GeneratorExit(), "answer raised GeneratorExit, at line"),
        (StopIteration(3), "answer raised StopIteration: 3, at line"),
        (Own("text"), "answer raised Own: text, at line"),
        (BaseExceptionGroup("several", [Own(), ValueError()]), "raised BaseExceptionGroup: several (2 sub-exceptions)"),
        (Rude(), "answer raised Rude: (its message cannot be shown), at line"),
        (RecursionError("deep"), "answer raised RecursionError: deep, at line"),
        (ValueError("first\nsecond"), "answer raised ValueError: first, at line"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("in_a_hook", [False, True])
def test_any_exception_is_an_outcome_with_its_line(error, says, in_a_hook, monkeypatch):
    def answer(x):
        if in_a_hook:
            x.register_hook(answer_raises)
        else:
            raise error

    def answer_raises(grad):
        raise error

    outcome = outcome_of(hooks_a_tensor, answer, monkeypatch)
    assert outcome.state == "not yet"
    assert says in str(outcome)
    assert "`raise error`" in str(outcome)


@pytest.mark.parametrize("id", ["1.1", "6.3", "7.1"])
def test_no_message_makes_an_outcome_long(id):
    def answer(*args, **kwargs):
        raise ValueError("y" * 5_000_000)

    assert len(str(attempt(id, answer))) < 2000


# --- kinds of functions: the right answer to 4.1 in all of them


def double_what_goes_in(layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0] * 2)


def register_times(factor, layer):
    return layer.register_forward_pre_hook(lambda module, args: args[0] * factor)


class Doubling:
    def __call__(self, layer):
        return double_what_goes_in(layer)


@functools.wraps(double_what_goes_in)
def wrapped(*args, **kwargs):
    return double_what_goes_in(*args, **kwargs)


RIGHT = {
    "partial": functools.partial(register_times, 2.0),
    "callable object": Doubling(),
    "wrapped": wrapped,
    "decorated": torch.no_grad()(double_what_goes_in),
    "with options of its own": lambda layer, *, prepend=False: double_what_goes_in(layer),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_answer_is_right_whatever_kind_of_callable_it_is(kind):
    outcome = attempt("4.1", RIGHT[kind])
    assert (outcome.state, outcome.details) == ("correct", ())


# --- values


class Unshowable:
    def __repr__(self):
        raise Rude

    @property
    def __name__(self):
        raise Rude


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Unshowable(), "a Unshowable"),
        ({Unshowable(): 1}, "a dict that cannot be shown"),
        ("y" * 5000, "'" + "y" * 119 + " …"),
        (torch.empty(2, device="meta"), "a tensor of shape (2,), float32, on meta"),
        (torch.zeros(2).to_sparse(), "a Tensor that cannot be shown"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_has_a_short_text(value, text):
    assert tensor_text(value) == text


@pytest.mark.parametrize(
    "value", [torch.ones(2, device="meta"), torch.ones(2).to_sparse(), torch.ones(3), [1.0, 1.0], None]
)
def test_what_cannot_be_compared_is_not_the_same(value):
    assert not same(value, torch.ones(2))


def test_a_signature_is_shown_without_its_huge_defaults(monkeypatch):
    def answer(x, y, z="y" * 5000):
        return x

    outcome = outcome_of(calls_with_tensor, answer, monkeypatch)
    assert "got       answer(x, y, z)" in str(outcome)
