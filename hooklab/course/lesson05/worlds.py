"""Small worlds for a learner's hook: what comes out of their passes, what arrives in which `.grad`, and why.

A world is a model with a layer for the hook. An answer is observed in every one, in several passes and both modes; so
is, when it falls short, each program that has a misconception: a reason is given only if one program does the same
everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from hooklab.course.exercises.expectations import expect_still_there
from hooklab.course.exercises.misconceptions import alike, fitting
from hooklab.course.exercises.trial import NotYet, Trial, apart
from hooklab.course.exercises.varying import every_pass
from hooklab.course.lesson05.passes import hooked, run_pass, run_without_gradients


@dataclass
class World:
    """A model, the layer in it that gets the hook, and what a pass does.

    Attributes:
        name: where the layer stands, in words that go on with ": the gradient of …".
        layer: gets the hook.
        model: runs in both modes.
        forward: returns the tensor that gradients are sent back from.
        watched: name -> tensor whose `.grad` is looked at.
        wanted: given what the answer is given besides the layer, returns what one pass adds to the `.grad` of each.
        sent: the gradient to send into the result; None for a result with one element.
        has_none: whether one of the layer's tuples holds a None.
    """

    name: str
    layer: nn.Module
    model: nn.Module
    forward: Callable[[], Tensor]
    watched: Mapping[str, Tensor]
    wanted: Callable[..., Sequence[Tensor]]
    sent: Tensor | None = None
    has_none: bool = False


class Moment(NamedTuple):
    """What was there after a pass: the output, or one `.grad`."""

    world: str
    which: str
    what: str
    value: Tensor | None


Worlds = Sequence[Callable[[], World]]
Rests = Sequence[tuple[Any, ...]]
# A misconception in words -> a program that has it: an answer as a learner could write it.
Programs = Mapping[str, Callable[..., Any]]


def judge(trial: Trial, worlds: Worlds, rests: Rests, programs: Programs, many: bool = False) -> None:
    """Observe the answer everywhere; raise NotYet for the first moment that is not as it should be.

    Args:
        trial: the trial.
        worlds: each makes the same world whenever it is called.
        rests: what the answer is given besides the layer: each in every world.
        programs: why an answer may do other things than it should.
        many: the answer returns a list of handles instead of one.
    """
    seen, fault = [], None
    try:
        for moment in _observe(trial, worlds, rests, many):
            seen.append(moment)
    except NotYet as stopped:
        fault = stopped
    if trial.faults and fault is None:
        raise trial.faults.pop(0)
    for got, wanted in zip(seen, _truth(worlds, rests), strict=False):
        if not alike(got.value, wanted.value):
            raise NotYet(
                f"{got.which}{got.world}: the {got.what} is not what it should be",
                **apart(wanted.value, got.value),
                likely=_why(trial, worlds, rests, programs, many, [one.value for one in seen]),
            )
    if fault:
        raise fault


def _why(
    trial: Trial, worlds: Worlds, rests: Rests, programs: Programs, many: bool, seen: list[Tensor | None]
) -> str | None:
    """Return the one misconception with which a program does the same, as far as the answer got; or None."""

    def does_the_same(program: Callable[..., Any], _: None = None) -> bool:
        moments = _observe(Trial(program), worlds, rests, many)  # one after the other: most programs differ early
        same = itertools.takewhile(lambda pair: alike(pair[0], pair[1].value), zip(seen, moments, strict=False))
        return sum(1 for _ in same) == len(seen)

    likely = fitting([True], {name: partial(does_the_same, one) for name, one in programs.items()}, [None])
    if likely is None and does_the_same(lambda *args: [] if many else _Nothing()):
        return why_unchanged(trial, worlds[0](), rests[0], many)
    return likely


class _Nothing:
    """The handle of no hook."""

    def remove(self) -> None:
        """Do nothing."""


def why_unchanged(trial: Trial, world: World, rest: tuple[Any, ...], many: bool = False) -> str | None:
    """Return why an answer's hooks change nothing: there is none, or all that ran returned None."""
    returned: list[Any] = []

    def noted(hook: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any) -> Any:
            returned.append(hook(*args))
            return returned[-1]

        return noting

    with hooked(trial, world.layer, *rest, many=many):
        tables = [world.layer._backward_hooks, world.layer._backward_pre_hooks]
        tables += [one._backward_hooks for one in world.layer.parameters() if one._backward_hooks]
        for table in tables:
            table.update({key: noted(hook) for key, hook in table.items()})
        if not any(tables):
            return "no backward hook: nothing is registered on the layer for the way back"
        run_pass(trial, world.forward, world.sent, world.has_none)
    nothing = returned and all(one is None for one in returned)
    return "forgotten return: your hook returns None, and so changes nothing" if nothing else None


def _observe(trial: Trial, worlds: Worlds, rests: Rests, many: bool) -> Iterator[Moment]:
    for rest, make in itertools.product(rests, worlds):
        world = make()
        with hooked(trial, world.layer, *rest, many=many) as handles:
            for which in every_pass(world.model):
                yield from _pass(trial, world, which)
                for handle in handles:
                    expect_still_there(handle)
            run_without_gradients(trial, world.forward)
        if trial.faults:
            return


def _truth(worlds: Worlds, rests: Rests) -> Iterator[Moment]:
    for rest, make in itertools.product(rests, worlds):
        world = make()
        output, wanted = world.forward().detach(), world.wanted(*rest)
        for times, which in enumerate(every_pass(world.model), start=1):
            yield Moment(world.name, which, "output", output)
            for name, grad in zip(world.watched, wanted, strict=True):
                yield Moment(world.name, which, name, times * grad)


def _pass(trial: Trial, world: World, which: str) -> list[Moment]:
    """Run one pass; return the output, and copies of the gradients that have gathered."""
    sent = None if world.sent is None else world.sent.clone()
    outputs = []

    def forward() -> Tensor:
        outputs.append(world.forward())
        return outputs[0]

    run_pass(trial, forward, sent, world.has_none)
    if sent is not None and world.sent is not None and not alike(sent, world.sent):
        raise NotYet(
            "your hook wrote into a gradient that belongs to somebody else",
            expected="the hook returns a new tensor, and the one that it was given stays as it was",
            likely="in-place change: `mul_` and `clamp_` write, `*` and `clamp` make a new tensor",
        )
    grads = {name: None if one.grad is None else one.grad.clone() for name, one in world.watched.items()}
    return [Moment(world.name, which, name, value) for name, value in ({"output": outputs[0]} | grads).items()]
