"""The checks of exercises 6.2 to 6.4: a class of the reader's must do, program for program, what torch's does."""

from __future__ import annotations

from functools import cache
from typing import Any

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, Trial
from hooklab.course.lesson06.faulty import Always, Border, Hooks
from hooklab.course.lesson06.like_torch import after, always, back, case, expect_like_torch, failing, interrupted, pre
from hooklab.course.lesson06.programs import Program, random_programs

_TWO = ("m(x, 5, y)",)
_BACKWARD = ("m(x).sum().backward()",)
_TWICE = ("z = m(x).sum(); z.backward(retain_graph=True); (2 * z).backward()",)
_REMOVED = ("z = m(x).sum(); a.remove(); z.backward()",)

HOOKS = [
    case("pre-hooks run, then forward, then forward hooks, each once", pre(), after()),
    case("a call without hooks gives what forward gives"),
    case("all arguments reach forward and the hooks", pre(), after(), steps=_TWO),
    case("a call without arguments works", pre(), after(), steps=("m()",)),
    case("hooks of one kind run in the order of their table", pre(), pre(), after(), after(prepend=True)),
    case("what a pre-hook returns takes the place of the arguments", pre("returns_a_tuple"), after(), steps=_TWO),
    case("the next pre-hook gets what this one has made", pre("returns_a_tuple"), pre("returns_a_tuple"), pre()),
    case("a pre-hook may return fewer arguments", pre("keeps_the_first"), after(), steps=_TWO),
    case("a pre-hook's value that is no tuple becomes the one argument", pre("doubles"), pre(), after(), steps=_TWO),
    case("a list is no tuple", pre("returns_a_list"), pre(), after(), steps=_TWO),
    case("a pre-hook may return 0", pre("returns_zero"), pre(), after()),
    case("a pre-hook may return an empty tuple", pre("returns_no_args"), pre(), after()),
    case("what a forward hook returns takes the place of the output", after("adds_one")),
    case("the next forward hook gets what this one has made", after("adds_one"), after("triples"), after()),
    case("a forward hook may return 0", after("returns_zero"), after()),
    case("whatever a forward hook returns is the output, as it is", after("returns_a_pair"), after()),
    case("a forward hook may return a list", after("returns_a_list"), after()),
    case("None leaves the output as it is", after("adds_one"), after(), after()),
    case("a hook that is registered after a call runs in the next one", after("adds b"), pre(at_start=False)),
    case("a function that is registered twice runs twice", after("adds b"), pre(at_start=False), steps=2 * ("m(x)",)),
    failing("an error of forward reaches the caller", pre(), after()),
    case("an error of a pre-hook reaches the caller", pre("raises"), after()),
    case("an error of a forward hook reaches the caller", pre(), after("raises_once"), after()),
]


@cache
def _random(seed: int, *groups: str) -> list[Program]:
    return random_programs(40, seed, groups)


@exercise("6.2", "Around forward")
def around_forward(trial: Trial) -> str:
    expect_like_torch(trial, HOOKS, _random(62, "look", "replace"), Hooks)
    return "23 rules and 80 random programs: every hook gets, and every call gives, what it does in torch"


BORDER = [
    case("without backward hooks nothing crosses: forward gets x itself", pre(), after()),
    case("a backward hook gets grad_input and grad_output", back(), steps=_BACKWARD),
    case("grad_input has an entry for every argument", back(), steps=("m(x, 5, y).sum().backward()",)),
    case("what a backward hook returns takes the place of grad_input", back("doubles_each"), steps=_BACKWARD),
    case("the next backward hook gets what this one has made", back("doubles_each"), back(), steps=_BACKWARD),
    case("the inputs cross behind the pre-hooks", pre("doubles"), back(), steps=_BACKWARD),
    case("the output crosses behind the forward hooks", after("triples"), back(), steps=_BACKWARD),
    case(
        "backward hooks run in each backward pass",
        back(),
        steps=_TWICE,
    ),
    case("each call has crossings of its own", back(), steps=("(m(x) + m(x)).sum().backward()",)),
    case(
        "a hook that was there when the call began is part of it",
        back(),
        steps=_REMOVED,
    ),
    case("a hook that comes after the call is no part of it", back("adds b"), back(at_start=False), steps=_BACKWARD),
    case("under no_grad nothing crosses", back(), steps=("with torch.no_grad(): m(x)",)),
    case("after a call that raised, the next is as usual", after("raises_once"), back(), steps=_BACKWARD),
    case(
        "a hook that is registered during the call is there for the next",
        after("adds b"),
        pre(at_start=False),
        back(),
        steps=_BACKWARD,
    ),
    case("the hooks before and after forward still run", pre("returns_a_tuple"), after("adds_one"), steps=("m(x, y)",)),
]


def _looks(module: Any, grad_input: Any, grad_output: Any) -> None:
    pass


@exercise("6.3", "Both ends")
def both_ends(trial: Trial) -> str:
    expect_like_torch(trial, BORDER, _random(63, "look", "replace", "go back"), Border, both_require_grad=True)
    if interrupted(trial, "register_full_backward_hook", _looks).pre_hooks:
        raise NotYet(
            "after an interrupt in forward, a crossing is still registered",
            expected="no pre-hook of yours is left, whatever has ended the call",
            likely="`except Exception`: an interrupt (■) is none of these; `with` takes the crossing out",
        )
    return "backward hooks run in every pass, between what forward got and what the caller gets, and may replace"


ALWAYS = [
    case(
        "without an error every hook runs once, and may replace",
        pre("doubles"),
        always("adds_one"),
        after(),
    ),
    failing("forward's error reaches the caller", after()),
    failing("after an error always_call hooks run, and no others", after(), always()),
    failing(
        "they run in the order of the table",
        always(),
        always(prepend=True),
    ),
    failing(
        "they get the arguments as the pre-hooks left them",
        pre("doubles"),
        always(),
    ),
    case("a pre-hook may raise, too", pre("raises"), always()),
    case("and what the pre-hooks before it have made counts", pre("doubles"), pre("raises"), always()),
    case(
        "a forward hook may raise, too: the hooks behind it get the real output",
        after("raises"),
        always(),
        after(),
    ),
    case("and they get it as the hooks before have left it", after("adds_one"), after("raises"), always()),
    case(
        "what was reached before the error came does not run again",
        always(),
        always("raises"),
    ),
    failing(
        "an error of an always_call hook, after another, becomes a warning",
        always("raises"),
    ),
    failing("and the others still run", always("raises"), always()),
    failing(
        "after an error, too, the next hook gets what this one has made",
        always("returns_zero"),
        always(),
    ),
    case("None from one of them leaves the output as it is", after("raises"), always(), always()),
    case("without an error the error of a hook is an error", always("raises"), always()),
    case("the call after an error is as usual", after("raises_once"), always()),
    case("a hook may remove another while they run", after("removes b"), after(), after()),
    case("a pre-hook may remove itself while they run", pre("removes a"), pre(), after()),
]


@exercise("6.4", "Whatever happens")
def whatever_happens(trial: Trial) -> str:
    more = _random(64, "look", "replace", "come and go", "raise")
    expect_like_torch(trial, ALWAYS, more, Always)
    called: list[Any] = []
    interrupted(trial, "register_forward_hook", lambda *received: called.append(received), always_call=True)
    if called:
        raise NotYet(
            "forward was interrupted, and an always_call hook ran",
            expected="they run after an `Exception`; an interrupt (■) is none",
            likely="caught too much: `except BaseException`, or `except` alone, catches an interrupt, too",
        )
    return "always_call hooks run after any Exception, with what is there by then; the first error reaches the caller"
