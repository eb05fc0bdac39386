"""The check of exercise 10.1: the first node of a backward that puts out a NaN."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import error_comes_out, hidden_error
from hooklab.course.exercises.faults import PLANNED
from hooklab.course.exercises.frames import whose
from hooklab.course.exercises.misconceptions import Reason, fitting, in_torchs_line, named_by
from hooklab.course.exercises.trial import NotYet, Trial, tensor_text


class _Ran(NamedTuple):
    """A node that ran: its name, the gradients that it put out and was given, and where it is in the graph."""

    name: str
    made: list[Tensor | None]
    given: list[Tensor | None]
    is_first_way: bool  # whether every step from the loss to it is the first pair of next_functions
    last_found: str  # the name of the last node that `every_node` finds


def _leaf(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


def _graphs() -> list[tuple[str, Callable[[], Tensor]]]:
    """What the answers are tried on: in words, and what makes a loss, always the same one."""

    def branch() -> Tensor:
        x = _leaf(0.0, 4.0)
        return torch.where(x > 0, x.log(), 0.0).sum()

    def deeper() -> Tensor:
        x = _leaf(1.0, 4.0)
        shifted = (2 * x - 2).exp() - 1
        return torch.where(shifted > 0, shifted.sqrt(), 0.0).mean()

    def infinity_first() -> Tensor:
        return (_leaf(1.0, 3.0) * 0).sqrt().sum()

    def second_input() -> Tensor:
        a, b = _leaf(float("inf"), 2.0), _leaf(1.0, 1.0)
        return torch.where(torch.tensor([False, True]), a * b, 0.0).sum()

    def two_of_them() -> Tensor:
        x, y = _leaf(0.0, 1.0), _leaf(0.0, 2.0)
        early = torch.where(x > 0, x.log(), 0.0).exp()
        return (torch.where(y > 0, y.sqrt(), 0.0) * early).sum()

    def second_way() -> Tensor:
        x, y = _leaf(1.0, 2.0), _leaf(0.0, 4.0)
        return x.exp().sum() + torch.where(y > 0, y.sqrt(), 0.0).sum()

    def two_infinities() -> Tensor:
        return (_leaf(0.0, 0.0).sqrt() * torch.tensor([1.0, -1.0])).sum()

    def in_place() -> Tensor:
        x = _leaf(0.0, 4.0)
        y = x * 1
        y[:1].sqrt_()
        return torch.where(x > 0, y, 0.0).sum()

    def healthy() -> Tensor:
        x = _leaf(1.0, 2.0)
        return ((x + 1).log() * x.exp() + x).sum()

    def infinite() -> Tensor:
        return _leaf(0.0, 1.0).sqrt().sum()

    return [
        ("a loss with where and log", branch),
        ("a deeper one", deeper),
        ("one in which an infinity comes first", infinity_first),
        ("one where the NaN is in a second input's gradient", second_input),
        ("one in which two nodes make a NaN", two_of_them),
        ("one where the NaN is on the second way from the loss", second_way),
        ("one with infinite, but no NaN gradients", infinite),
        ("one with an infinity and minus infinity", two_infinities),
        ("one in which a part is changed in place", in_place),
        ("a healthy one", healthy),
    ]


def _first(log: list[_Ran], is_bad: Callable[[_Ran], bool]) -> str | None:
    return next((ran.name for ran in log if is_bad(ran)), None)


def _has_nan(grads: list[Tensor | None]) -> bool:
    return any(grad is not None and bool(grad.isnan().any()) for grad in grads)


_GUESSES: dict[str, Callable[[list[_Ran]], Any]] = {
    "the node that is given the first NaN: look at what a node makes, grad_inputs": lambda log: _first(
        log, lambda ran: _has_nan(ran.given)
    ),
    "the last node with a NaN: a NaN spreads from the node that made it": lambda log: _first(
        log[::-1], lambda ran: _has_nan(ran.made)
    ),
    "an infinity is no NaN: isfinite refuses both": lambda log: _first(
        log, lambda ran: any(grad is not None and not bool(grad.isfinite().all()) for grad in ran.made)
    ),
    "only the first gradient of each node is looked at": lambda log: _first(log, lambda ran: _has_nan(ran.made[:1])),
    "a sum of infinity and minus infinity is a NaN that is in no gradient: look at each number": lambda log: _first(
        log, lambda ran: any(grad is not None and bool(grad.sum().isnan()) for grad in ran.made)
    ),
    "only a node whose every gradient is NaN counts: `.any()` asks for one number": lambda log: _first(
        log, lambda ran: any(grad is not None and bool(grad.isnan().all()) for grad in ran.made)
    ),
    "only the first pair of each next_functions is followed: a node may have several": lambda log: _first(
        log, lambda ran: ran.is_first_way and _has_nan(ran.made)
    ),
    "late binding: every hook reports the last `node` of the loop": lambda log: (
        log[0].last_found if any(_has_nan(ran.made) for ran in log) else None
    ),
    "not all of the name: that of some nodes begins with the room they are in, as in torch::autograd::CopySlices": (
        lambda log: (_first(log, lambda ran: _has_nan(ran.made)) or "").rpartition("::")[2] or None
    ),
    "None for every loss: no hook has found anything, or nothing is returned": lambda log: None,
}

_LIKELY: dict[str, Reason] = {
    "'NoneType' object has no attribute": "a gradient that nobody needs is None in grad_inputs, and the end of the "
    "graph is None in next_functions",
    "positional argument": in_torchs_line(
        "another number of parameters: a node's hook is called with (grad_inputs, grad_outputs), a pre-hook with one"
    ),
    "expected tuple, but hook returned": "accidental return: what a hook returns replaces the gradients",
    "has returned an incorrect number of values": "accidental return: what a hook returns replaces the gradients",
    "backward through the graph a second time": "two backwards: run loss.backward() once",
    "tuple index out of range": "nothing at that place: grad_inputs and next_functions of a leaf's node are empty",
    "RecursionError": "a graph may be deeper than Python's stack: use a list of nodes that are still to visit",
}


@exercise("10.1", "Who made the first NaN?")
@named_by(_LIKELY)
def who_made_the_first_nan(trial: Trial) -> str:
    graphs = _graphs()
    answers, logs = [], []
    for what, make in graphs:
        loss = make()
        ends = [node for node in _nodes(loss) if hasattr(node, "variable")]  # kept, so that hooks on them stay
        log = _logged(make())
        answers.append(_answer(trial, loss, healthy=_first(log, lambda ran: _has_nan(ran.made)) is None))
        if all(node.variable.grad is None for node in ends):
            raise NotYet(
                f"{what}: no gradient has arrived", expected="loss.backward() in your function, run to its end"
            )
        _expect_one_backward(what, ends, make())
        _expect_no_hooks(ends)
        logs.append(log)
    for (what, _), got, log in zip(graphs, answers, logs, strict=True):
        wanted = _first(log, lambda ran: _has_nan(ran.made))
        if got != wanted:
            raise NotYet(
                f"{what}: your function does not name the node that made the first NaN",
                expected=repr(wanted),
                got=tensor_text(got),
                likely="the node instead of its name()" if isinstance(got, Node) else fitting(answers, _GUESSES, logs),
            )
    _expect_the_error(trial)
    return "the first node with a NaN is named, in the order in which they run, and no hook is left"


def _answer(trial: Trial, loss: Tensor, healthy: bool) -> Any:
    try:
        return trial.call(loss, may_change=True)
    except NotYet as fault:
        empty = ("list index out of range", "StopIteration", "pop from an empty", "empty sequence", "raised KeyError")
        if healthy and any(words in fault.missing for words in empty):
            likely = "this graph makes no NaN: where nothing was found, the answer is None"
            raise NotYet(fault.missing, expected="None", likely=likely) from fault
        raise


def _nodes(loss: Tensor) -> list[Any]:
    found: dict[Any, None] = {}
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = None
            waiting += [following for following, _ in node.next_functions]
    return list(found)


def _logged(loss: Tensor) -> list[_Ran]:
    """Run the loss back and return what each node did, in order."""
    log: list[_Ran] = []
    nodes, first_way, node = _nodes(loss), list[Any](), loss.grad_fn
    while node is not None:
        first_way.append(node)
        node = node.next_functions[0][0] if node.next_functions else None

    def watch(node: Any) -> None:
        where = node in first_way, nodes[-1].name()
        node.register_hook(lambda made, given: log.append(_Ran(node.name(), list(made), list(given), *where)))

    for node in nodes:
        watch(node)
    loss.backward()
    return log


def _expect_no_hooks(ends: list[Any], when: str = "") -> None:
    """Raise NotYet if hooks are left on the leaves' nodes."""
    ran: list[str] = []
    for node in ends:
        with _noting_hooks(ran):
            (node.variable * 1).sum().backward()
    if ran:
        raise NotYet(
            f"{when}your hooks are still there: a new backward to the same leaf ran one",
            expected="each handle's remove(), in a `finally`",
            likely="not removed: keep what register_hook returns and call its remove(), on every way out",
        )


def _expect_one_backward(what: str, ends: list[Any], again: Tensor) -> None:
    """Raise NotYet if the leaves' gradients are not those that one backward from the same loss gives."""
    others = [node.variable for node in _nodes(again) if hasattr(node, "variable")]
    again.backward()
    pairs = [(node.variable.grad, other.grad) for node, other in zip(ends, others, strict=True)]
    if not all(one is not None and torch.allclose(one, other, equal_nan=True) for one, other in pairs):
        raise NotYet(
            f"{what}: the gradients are not those of one backward",
            expected="loss.backward(), once: each one more adds the gradients to `.grad` again",
        )


@contextmanager
def _noting_hooks(ran: list[str]) -> Iterator[None]:
    """Note the learner's functions that run in the block, in which only hooks can. No node tells which it has."""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if whose(frame.f_code.co_filename) == "learner":
            ran.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _expect_the_error(trial: Trial) -> None:
    for error, words, _ in PLANNED:
        _expect_one_error(trial, error, words)


def _expect_one_error(trial: Trial, error: type[BaseException], words: str) -> None:
    """Raise NotYet unless the error of a backward comes out, with no hook left."""
    x = _leaf(1.0, 2.0)
    end = get_gradient_edge(x).node

    def fail(grad: Tensor) -> None:
        raise error

    y = x * 2
    handle = y.register_hook(fail)
    if not error_comes_out(trial, lambda: trial.answer(y.sum())):
        raise hidden_error("loss.backward()")
    handle.remove()
    _expect_no_hooks([end], f"after {words} in the backward, ")
