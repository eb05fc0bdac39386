"""The exercises of lesson 6: what happens between `module(x)` and `module.forward(x)`, built by the reader."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import NotYet, PlannedError, PlannedInterrupt
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import error_comes_out
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson06.border import torchs_cross
from hooklab.course.lesson06.like_torch import (
    Case,
    after,
    always,
    back,
    beside_torchs_logs,
    case,
    failing,
    interrupted,
    logs,
    pre,
)
from hooklab.course.lesson06.programs import random_programs

# --- 6.1: a handle; the worlds are lines of Python, and a line in brackets is looked at

HANDLES = 3000
PUT = "a = Handle(table, len); b = Handle(table, max)"
SCRIPTS = (
    f"{PUT}; c = Handle(table, min, True); d = Handle(table, sum, prepend=True); "
    "[table.get(handle.id) for handle in (a, b, c, d)]",
    f"{PUT}; c = Handle(table, len); c.remove(); c.remove(); a.remove(); b.remove()",
    f"{PUT}; c = Handle(table, min); b.remove(); d = Handle(table, sum); c.remove()",
    f"{PUT}; b.remove(); c = Handle(table, max); b.remove()",
    "a = Handle(table, len); Handle(other, max); b = Handle(other, sum); [other.get(a.id)]; b.remove()",
    "a = Handle(table, len); table.clear(); a.remove()",
    "Handle(table, len); gc.collect(0)",
    f"{PUT}; with b as h: pass; [h is b]",
    f"{PUT}; with a: a.remove()",
    f"{PUT}; with b: raise PlannedError",
    f"{PUT}; with b: raise PlannedInterrupt",
)
LABELS = {
    "[other.get(a.id)]": "id-per-table",
    "with b: raise PlannedInterrupt": "except-exception",
    "gc.collect(0)": "removed-when-dropped",
}
KINDS = {"with ": "end-of-block", "Handle(": "put", ".remove()": "own-registration"}


@exercise(
    "6.1",
    "A handle",
    worlds=(*SCRIPTS, ""),
    verified="own ids, the right order, remove() once or twice, and `with` removes whatever happens",
)
def a_handle(trial: Trial, script: str) -> Pairs:
    table: OrderedDict[Any, Any] = OrderedDict()
    space = {"Handle": trial.answer, "table": table, "other": OrderedDict(), "gc": gc}
    space |= {"PlannedError": PlannedError, "PlannedInterrupt": PlannedInterrupt}
    lines = script.split("; ") if script else []
    for number, line in enumerate(lines, 1):
        so_far = "; ".join(lines[:number])
        label = LABELS.get(line) or next((label for word, label in KINDS.items() if word in line), None)
        if line.startswith("["):
            looked_at = _named(_doing(trial, line, space, eval))
            yield f"`{line}` after `{'; '.join(lines[: number - 1])}`", looked_at, label
            continue
        if "raise" in line:
            comes_out = error_comes_out(trial, partial(_doing, trial, line, space, exec))
            yield f"whether the exception reaches the caller of `{so_far}`", comes_out, "swallowed"
        else:
            _doing(trial, line, space, exec)
        yield f"the hooks in the table after `{so_far}`", _named(table.values()), label
    if not lines:
        ids = _doing(trial, f"[Handle(table, len).id for _ in range({HANDLES})]", space, eval)
        yield "~ whether an id is an address", _doing(trial, "id(h := Handle(table, len)) == h.id", space, eval)
        claim = Claim(len(set(ids)) == HANDLES, f"{HANDLES}", f"{len(set(ids))}")
        yield f"the number of ids of {HANDLES} handles that nobody keeps", claim, "id-again"


def _doing(trial: Trial, line: str, space: dict[str, Any], by: Callable[..., Any]) -> Any:
    """Do a line that uses the learner's handle; an exception is recorded by its kind, for the ids in it vary."""

    def do() -> Any:
        return by(line, space)

    do.__name__ = f"`{line}`"
    try:
        return trial.run(do)
    except NotYet as fault:
        fault.label = f"raises {kind_of(fault.__cause__)}"
        raise


def _named(values: Any) -> list[Any]:
    return [getattr(one, "__name__", one) for one in values]


# --- 6.2 to 6.4: a class of the reader's writes the same logs as torch's, program for program

_TWO = ("m(x, 5, y)",)
_BACKWARD = ("m(x).sum().backward()",)


def at_random(seed: int, *groups: str) -> list[Case]:
    return [Case("a random program", tuple(random_programs(40, seed, groups)))]


HOOKS = (
    (
        case("pre-hooks, forward and forward hooks, each once", pre(), after(), label="each-once"),
        case("a call without hooks", label="each-once"),
        case("a call with three arguments", pre(), after(), steps=_TWO, label="all-args"),
        case("a call without arguments", pre(), after(), steps=("m()",)),
        case("the order of hooks of one kind", pre(), pre(), after(), after(prepend=True), label="table-order"),
    ),
    (
        case("a pre-hook that returns a tuple", pre("returns_a_tuple"), after(), steps=_TWO, label="tuple-is-args"),
        case("a pre-hook after two others that replace", pre("returns_a_tuple"), pre("returns_a_tuple"), pre()),
        case("a pre-hook that returns fewer arguments", pre("keeps_the_first"), after(), steps=_TWO),
        case("a pre-hook that returns a tensor", pre("doubles"), pre(), after(), steps=_TWO, label="bare-value"),
        case("a pre-hook that returns a list", pre("returns_a_list"), pre(), after(), steps=_TWO, label="bare-value"),
        case("a pre-hook that returns 0", pre("returns_zero"), pre(), after(), label="only-none-keeps"),
        case("a pre-hook that returns an empty tuple", pre("returns_no_args"), pre(), after(), label="only-none-keeps"),
    ),
    (
        case("a forward hook that replaces the output", after("adds_one"), label="replaces-output"),
        case("a forward hook after two others that replace", after("adds_one"), after("triples"), after()),
        case("a forward hook that returns 0", after("returns_zero"), after(), label="only-none-keeps"),
        case("a forward hook that returns a tuple", after("returns_a_pair"), after(), label="output-as-it-is"),
        case("a forward hook that returns a list", after("returns_a_list"), after(), label="output-as-it-is"),
        case("forward hooks that return None", after("adds_one"), after(), after(), label="none-keeps"),
    ),
    (
        case("a hook that is registered between two calls", after("adds b"), pre(at_start=False)),
        case("a function that is registered twice", after("adds b"), pre(at_start=False), steps=("m(x)", "m(x)")),
        failing("an error of forward", pre(), after(), label="error-to-caller"),
        case("an error of a pre-hook", pre("raises"), after(), label="error-to-caller"),
        case("an error of a forward hook", pre(), after("raises_once"), after(), label="error-to-caller"),
    ),
)


around_forward = exercise(
    "6.2",
    "Around forward",
    worlds=(*HOOKS, at_random(62, "look", "replace")),
    verified="23 rules and 80 random programs: every hook gets, and every call returns, the same as in torch",
)(beside_torchs_logs)


BORDER = (
    (
        case("a call without backward hooks: forward gets x itself", pre(), after(), label="no-hooks-no-crossing"),
        case("what a backward hook gets", back(), steps=_BACKWARD, label="two-tuples"),
        case("grad_input of three arguments", back(), steps=("m(x, 5, y).sum().backward()",), label="entry-for-each"),
        case("a backward hook that returns gradients", back("doubles_each"), steps=_BACKWARD, label="replaces-grads"),
        case(
            "a backward hook after one that replaces",
            back("doubles_each"),
            back(),
            steps=_BACKWARD,
            label="every-hook",
        ),
        case("grad_input after a pre-hook that replaces", pre("doubles"), back(), steps=_BACKWARD, label="inputs-late"),
        case(
            "grad_output with a forward hook that replaces",
            after("triples"),
            back(),
            steps=_BACKWARD,
            label="output-late",
        ),
    ),
    (
        case(
            "two backward passes through one call",
            back(),
            steps=("z = m(x).sum(); z.backward(retain_graph=True); (2 * z).backward()",),
            label="each-pass",
        ),
        case("two calls and one backward pass", back(), steps=("(m(x) + m(x)).sum().backward()",), label="each-call"),
        case("a call under no_grad", back(), steps=("with torch.no_grad(): m(x)",)),
        case("the hooks before and after forward", pre("returns_a_tuple"), after("adds_one"), steps=("m(x, y)",)),
    ),
    (
        case(
            "a backward hook that is removed after the call",
            back(),
            steps=("z = m(x).sum(); a.remove(); z.backward()",),
            label="hooks-of-the-call",
        ),
        case("a backward hook from during the backward pass", back("adds b"), back(at_start=False), steps=_BACKWARD),
        case(
            "a pre-hook that is registered during a call", after("adds b"), pre(at_start=False), back(), steps=_BACKWARD
        ),
    ),
    (case("the call after one that raised", after("raises_once"), back(), steps=_BACKWARD, label="crossing-left"),),
)
ANOTHER_CROSS = case("`cross` of a subclass", back(), steps=("m(x, 5, y).sum().backward()",), label="not-self-cross")


def _looks(module: Any, grad_input: Any, grad_output: Any) -> None:
    pass


@exercise(
    "6.3",
    "Both ends",
    worlds=(*BORDER, at_random(63, "look", "replace", "go back"), None),
    verified="backward hooks run in every pass, between what forward gets and what the caller gets, and may replace",
)
def both_ends(trial: Trial, cases: list[Case] | None) -> Pairs:
    if cases:
        yield from beside_torchs_logs(trial, cases, y_requires_grad=True)
        return
    module = interrupted(trial, "register_full_backward_hook", _looks, PlannedInterrupt())
    x = torch.ones(2, requires_grad=True)
    yield "whether an interrupt in forward reaches the caller", error_comes_out(trial, lambda: module(x)), "swallowed"
    yield "pre-hooks that are left after an interrupt in forward", len(module.pre_hooks), "crossing-after-interrupt"
    for pair in beside_torchs_logs(trial, [one for world in BORDER for one in world], y_requires_grad=True):
        yield pair
    if pair[1].holds:  # the same again, or `cross` would show another fault, too
        yield from beside_torchs_logs(trial, [ANOTHER_CROSS], cross=staticmethod(torchs_cross))


ALWAYS = (
    (
        case("hooks in a call without an error", pre("doubles"), always("adds_one"), after(), label="once-each"),
        failing("an error of forward", after(), label="error-to-caller"),
        failing("an always_call hook after an error of forward", after(), always(), label="they-run"),
        failing("the order of two always_call hooks", always(), always(prepend=True), label="table-order"),
        failing("the arguments of an always_call hook", pre("doubles"), always(), label="args-by-then"),
    ),
    (
        case("an always_call hook after an error of a pre-hook", pre("raises"), always(), label="they-run"),
        case("its arguments, after two pre-hooks", pre("doubles"), pre("raises"), always(), label="args-by-then"),
    ),
    (
        case("hooks after an error of a forward hook", after("raises"), always(), after(), label="they-run"),
        case("the output after such an error", after("adds_one"), after("raises"), always(), label="output-by-then"),
        case("hooks that have had their turn", always(), always("raises"), label="had-its-turn"),
        case("a function that is registered twice", pre("adds b"), always("raises_once"), label="id-not-function"),
        case(
            "a hook that removes itself, and an error", after("removes a"), after("raises"), always(), label="they-run"
        ),
    ),
    (
        failing("an error of an always_call hook after another error", always("raises"), label="becomes-a-warning"),
        failing("an always_call hook after such an error", always("raises"), always(), label="they-run"),
        failing("an always_call hook that returns 0", always("returns_zero"), always(), label="late-output"),
        case("always_call hooks that return None", after("raises"), always(), always(), label="none-keeps"),
        case("an error of an always_call hook alone", always("raises"), always(), label="error-to-caller"),
        case("the call after an error", after("raises_once"), always()),
    ),
    (
        case("a forward hook that removes the next one", after("removes b"), after(), after(), label="no-copy"),
        case("a pre-hook that removes itself", pre("removes a"), pre(), after(), label="no-copy"),
    ),
)
# Here torch itself makes no copy: see the end of the lesson.
REMOVES_LATE = failing("the log of an always_call hook that removes itself", always("removes a"), always())


@exercise(
    "6.4",
    "Hooks that always run",
    worlds=(*ALWAYS, at_random(64, "look", "replace", "come and go", "raise"), None),
    verified="always_call hooks run after any Exception, with what is there by then; the first error is the caller's",
)
def whatever_happens(trial: Trial, cases: list[Case] | None) -> Pairs:
    if cases:
        yield from beside_torchs_logs(trial, cases)
        return
    (ran,) = logs(trial, [replace(one, steps=("m(x)",)) for one in REMOVES_LATE.programs])
    yield REMOVES_LATE.what, ran.log, "no-copy-after-error"
    called: list[Any] = []
    hook: Callable[..., Any] = lambda *received: called.append(received)  # noqa: E731
    module = interrupted(trial, "register_forward_hook", hook, PlannedInterrupt(), always_call=True)
    yield "whether an interrupt in forward reaches the caller", error_comes_out(trial, lambda: module(1)), "swallowed"
    yield "always_call hooks that ran after an interrupt in forward", len(called), "caught-too-much"


# --- 6.5: a trace of all calls


class Part(nn.Module):
    """A part of a model, whose forward is a function of itself and x; it notes in which state it runs."""

    def __init__(self, seen: list[Any], function: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.seen, self.function = seen, function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append([self.training, torch.is_grad_enabled()])
        return self.function(self, x)


class Broken(Part):
    """Raises, as a part of a model may."""


class BadValue(PlannedError, ValueError):
    """Raised by such a part."""


class Fallback(Part):
    """Tries one part; if that raises ValueError, it calls a second part instead."""


class Recursive(Part):
    """Calls itself until x is large."""


def _raise(error: BaseException) -> Any:
    raise error


def _try(self: Any, x: Tensor) -> Tensor:
    try:
        return self.first(x)  # type: ignore[no-any-return]
    except ValueError:
        return self.second(x)  # type: ignore[no-any-return]


def _shared(seen: list[Any]) -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(relu, Part(seen, lambda _, x: x)), nn.Tanh(), relu, relu)


def _broken(seen: list[Any], error: BaseException | None = None) -> Part:
    return Broken(seen, lambda *_: _raise(error or BadValue()))


def _fallback(seen: list[Any], first: nn.Module) -> Part:
    return Fallback(seen, _try, first=first, second=nn.ReLU())


MODELS: dict[str, Callable[[list[Any]], nn.Module]] = {
    "a model of eight calls": _shared,
    "a model in evaluation mode": lambda seen: nn.Sequential(Part(seen, lambda _, x: x)).eval(),
    "a model that makes a part during its call": lambda seen: Part(seen, lambda _, x: nn.Sequential(nn.Tanh())(x)),
    "a model that calls itself": lambda seen: Recursive(seen, lambda self, x: x if x.sum() > 9 else self(x * 2)),
    "a model in which a part raises and another does the work": lambda seen: _fallback(seen, _broken(seen)),
    "a model in which a part of a part raises": lambda seen: nn.Sequential(
        _fallback(seen, nn.Sequential(_broken(seen))), nn.Identity()
    ),
    "a model that raises": lambda seen: nn.Sequential(_broken(seen)),
    "a model that is interrupted": lambda seen: nn.Sequential(_broken(seen, PlannedInterrupt())),
}


@exercise(
    "6.5",
    "Fix it: a trace of all calls",
    worlds=MODELS,
    verified="every call has its line, at its depth, whatever raises; no hook stays, and nobody else's is gone",
)
def a_trace_of_all_calls(trial: Trial, what: str) -> Pairs:
    seen: list[Any] = []
    theirs: list[str] = []
    model, traces = MODELS[what](seen), list[Any]()
    with (
        register_module_forward_pre_hook(lambda module, args: theirs.append("before")),
        register_module_forward_hook(lambda *_: theirs.append("after"), always_call=True),
        model.register_forward_hook(lambda *_: theirs.append("own"), always_call=True),
    ):
        comes_out = error_comes_out(trial, lambda: traces.append(trial.call(model, torch.ones(1, 2))))
    yield f"whether an exception comes out of {what}", comes_out, "swallowed"
    yield f"how often the parts of {what} ran", len(seen), "not-once"
    yield f"(training mode, gradients recorded) in {what}", seen[:1], "another-state"
    label = "after-an-error" if "raises" in what else "a-line-each"
    yield f"the lines of {what}", traces[-1] if traces else None, label
    yield f"the calls of other hooks in {what}", len(theirs), "others-hooks"
    if traces:
        first = traces[0]
        yield f"the lines of {what}, traced again", trial.call(model, torch.ones(1, 2)), "one-list"
        yield f"the first lines of {what}, after the second trace", first, "one-list"
