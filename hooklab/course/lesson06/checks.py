"""Checks of lesson 6: what happens between `module(x)` and `module.forward(x)`, built by the reader."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, StillTheStub, Trial, learners_error, tensor_text


class _Plain:
    """A module of the first days: two tables of hooks and a forward, which adds one and notes that it ran."""

    def __init__(self, log: list[str], raises: Exception | None = None) -> None:
        self.pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self.forward_hooks: OrderedDict[int, Any] = OrderedDict()
        self.always_called: set[int] = set()
        self.log, self.raises = log, raises

    def forward(self, x: float) -> float:
        self.log.append(f"forward({x:g})")
        if self.raises:
            raise self.raises
        return x + 1


@exercise("6.1", "The first era: a hook may only look")
def the_first_era(trial: Trial) -> str:
    log: list[str] = []
    module = _Plain(log)
    module.pre_hooks[0] = lambda module, args: log.append(f"pre{args!r}")
    module.forward_hooks[1] = lambda module, args, output: log.append(f"hook{args!r} -> {output!r}")
    got = trial.call(module, 2.0)
    wanted = ["pre(2.0,)", "forward(2)", "hook(2.0,) -> 3.0"]
    _expect_log(log, wanted)
    if got != 3.0:
        raise NotYet(
            "the call does not give forward's output", expected="3.0", got=tensor_text(got), likely=_forgot(got)
        )
    module.pre_hooks[0] = lambda module, args: (100.0,)
    if trial.call(module, 2.0) != 3.0:
        raise NotYet(
            "a pre-hook changed the input",
            expected="what it returns is ignored",
            got="forward ran on the returned value",
            likely="a later era: in this one, a pre-hook must not change its input",
        )
    for first, second in ((7.0, 7.0), (7.0, None), (None, 7.0), (0.0, None)):
        module.forward_hooks[1] = lambda module, args, output, value=first: value
        module.forward_hooks[2] = lambda module, args, output, value=second: value
        _expect_a_complaint(trial, module, first, second)
    return "pre-hooks, forward, hooks, in this order; only None may come back from a hook"


def _expect_a_complaint(trial: Trial, module: _Plain, first: float | None, second: float | None) -> None:
    try:
        trial.run(trial.answer, module, 2.0)
    except NotYet as fault:
        if not isinstance(fault.__cause__, RuntimeError):
            raise NotYet(
                "a hook that returns something raises the wrong kind of error",
                expected="RuntimeError",
                got=fault.missing,
            ) from fault
        return
    likely = "one hook only: each of them must return None"
    if first == second:
        likely = "a later era: here a forward hook must return None"
    if first == 0.0:
        likely = "truth instead of None: 0 is a value, too; ask `is not None`"
    raise NotYet(
        f"two forward hooks returned {first} and {second}, and nobody complained",
        expected="RuntimeError",
        got="no error",
        likely=likely,
    )


@exercise("6.2", "The second era: a hook may replace")
def the_second_era(trial: Trial) -> str:
    log: list[str] = []
    for values in ((10.0,), 10.0, (0.0,), 0.0):
        log.clear()
        module = _Plain(log)
        module.pre_hooks[0] = lambda module, args, values=values: values
        module.pre_hooks[1] = lambda module, args: log.append(f"second pre-hook got {args!r}")
        got = trial.call(module, 2.0)
        number = values[0] if isinstance(values, tuple) else values
        likely = {10.0: _WRAP, 0.0: "truth instead of None: a pre-hook may return 0, too; ask `is not None`"}
        _expect_log(
            log,
            [f"second pre-hook got ({number!r},)", f"forward({number:g})"],
            None if isinstance(values, tuple) else likely[values],
        )
        if got != number + 1:
            raise NotYet(
                "the output is not forward's",
                expected=f"{number:g} + 1 = {number + 1:g}",
                got=tensor_text(got),
                likely=_forgot(got),
            )
    log.clear()
    module = _Plain(log)

    def second(module: Any, args: Any) -> tuple[float]:
        log.append(f"second pre-hook got {args!r}")
        return (5.0,)

    module.pre_hooks[0] = lambda module, args: [10.0]
    module.pre_hooks[1] = second
    module.forward_hooks[0] = lambda module, args, output: log.append(f"hook got {args!r}")
    trial.call(module, 2.0)
    wanted = ["second pre-hook got ([10.0],)", "forward(5)", "hook got (5.0,)"]
    _expect_log(log, wanted, "only a tuple means all arguments, so a list is one; forward hooks get the new arguments")
    log.clear()
    module = _Plain(log)
    module.forward_hooks[0] = lambda module, args, output: output * 10
    module.forward_hooks[1] = lambda module, args, output: log.append(f"second hook got {output!r}")
    module.forward_hooks[2] = lambda module, args, output: 0.0
    got = trial.call(module, 2.0)
    _expect_log(
        log, ["forward(2)", "second hook got 30.0"], "not chained: each hook gets what the hook before it has made"
    )
    if got != 0.0 or got is False:
        raise NotYet(
            "the last hook returned 0, and the output is another value",
            expected="0.0",
            got=tensor_text(got),
            likely="truth instead of None: `if result:` skips 0 and empty values; ask `is not None`",
        )
    return "each hook gets what the one before has made; None leaves it, everything else replaces it"


@exercise("6.3", "A handle")
def a_handle(trial: Trial) -> str:
    table: OrderedDict[int, Any] = OrderedDict()
    first = trial.call(table, len)
    second = trial.call(table, max)
    front = trial.call(table, min, True)
    for handle in (first, second, front):
        if not callable(getattr(handle, "remove", None)):
            raise NotYet("what came back cannot be asked to remove()", expected="a handle", got=tensor_text(handle))
    if len(table) != 3:
        raise NotYet(
            "three hooks were registered, and the table has another number",
            expected="3",
            got=f"{len(table)}",
            likely="the same key again: every hook needs an id of its own",
        )
    if list(table.values()) != [min, len, max]:
        raise NotYet(
            "the order in the table is not the order in which hooks shall run",
            expected="the prepended one first, then in order of registration",
            got=", ".join(getattr(hook, "__name__", "?") for hook in table.values()),
            likely="move_to_end puts a key last, or first with last=False",
        )
    trial.run(second.remove)
    again = trial.call(table, sum)
    if list(table.values()) != [min, len, sum]:
        raise NotYet(
            "after one remove() and one more registration, another hook has vanished",
            expected="min, len, sum",
            got=", ".join(getattr(hook, "__name__", "?") for hook in table.values()),
            likely="len(table) as the id: it comes again after a removal, and overwrites a hook",
        )
    try:
        second.remove()
    except Exception as error:
        raise NotYet(
            "removing twice raises",
            expected="a second remove() does nothing",
            got=f"{type(error).__name__}: {error}",
            likely="pop without a default: table.pop(key, None)",
        ) from error
    _expect_own_hook_only(trial)
    _expect_block(trial, table, again)
    return "own ids, the right order, remove() once or twice, and `with` removes whatever happens"


def _expect_own_hook_only(trial: Trial) -> None:
    table: OrderedDict[int, Any] = OrderedDict()
    first, second = trial.call(table, len), trial.call(table, len)
    third = trial.call(table, max)
    _expect_table(
        table,
        [len, len, max],
        "the same function was registered twice, and the table has it once",
        likely="the function's id as the key: every registration needs an id of its own",
    )
    trial.run(first.remove)
    _expect_table(
        table,
        [len, max],
        "remove() took out another hook, or more than one",
        likely="a handle removes what stands under its own id, and nothing else",
    )
    trial.run(third.remove)
    trial.call(table, min)
    trial.run(third.remove)
    _expect_table(
        table,
        [len, min],
        "an old handle, removed again, took out a newer hook",
        likely="an id that comes again: `max(table) + 1` does so when the last hook has gone",
    )
    trial.run(second.remove)


def _expect_table(table: OrderedDict[int, Any], wanted: list[Any], missing: str, likely: str) -> None:
    if list(table.values()) != wanted:
        expected, got = (
            ", ".join(getattr(hook, "__name__", "?") for hook in hooks) for hooks in (wanted, table.values())
        )
        raise NotYet(missing, expected=expected, got=got, likely=likely)


def _expect_block(trial: Trial, table: OrderedDict[int, Any], handle: Any) -> None:
    try:
        with handle:
            raise KeyError("on purpose")
    except KeyError:
        pass
    except NotImplementedError as error:
        raise StillTheStub from error
    except (TypeError, AttributeError) as error:
        raise NotYet(
            "the handle does not work in a `with` block",
            expected="__enter__ and __exit__",
            got=f"{type(error).__name__}: {error}",
        ) from error
    else:
        raise NotYet(
            "the block raised, and the error vanished",
            expected="the KeyError comes out of the block",
            likely="__exit__ returned something true, which swallows the error",
        )
    if sum in table.values():
        raise NotYet("the block ended, and its hook is still there", expected="__exit__ removes it")


@exercise("6.4", "Today: hooks that run after an error")
def hooks_that_run_after_an_error(trial: Trial) -> str:
    log: list[str] = []
    module = _Plain(log, ValueError("boom"))

    def fails(module: Any, args: Any, output: Any) -> None:
        log.append("failing")
        raise KeyError("in a hook")

    module.forward_hooks[0] = lambda module, args, output: log.append("plain")
    module.forward_hooks[1] = fails
    module.forward_hooks[2] = lambda module, args, output: log.append(f"always({args!r}, {output!r})")
    module.always_called = {1, 2}
    error, warned = _raised_by(trial, module)
    if error is not module.raises:
        likely = "the hook's own error must not replace the first one: turn it into a warning"
        raise NotYet(
            "the caller does not get forward's error",
            expected="ValueError: boom",
            got="no error" if error is None else f"{type(error).__name__}: {error}",
            likely=likely
            if isinstance(error, KeyError)
            else "another error: `raise` alone sends on the very one that came"
            if error
            else "swallowed: `raise` again when the hooks have run",
        )
    if "plain" in log:
        raise NotYet("an ordinary hook ran after the error", expected="only those in always_called", got=f"{log}")
    likely = "the rest of the hooks must run after one has failed"
    if any(line.startswith("always(") and line != "always((2.0,), None)" for line in log):
        likely = "a hook gets (module, args, output): args is the tuple, and the output is None here"
    _expect_log(log, ["forward(2)", "failing", "always((2.0,), None)"], likely)
    if not warned:
        raise NotYet("the hook's own error left no trace", expected="a warning", got="none")
    log.clear()
    module.raises = None
    module.forward_hooks.pop(1)
    got = trial.call(module, 2.0)
    _expect_log(log, ["forward(2)", "plain", "always((2.0,), 3.0)"], "without an error each hook runs once, in order")
    if got != 3.0:
        raise NotYet("without an error, the output is not forward's", expected="3.0", got=tensor_text(got))
    log.clear()
    module.forward_hooks[3] = fails
    error, _ = _raised_by(trial, module)
    _expect_log(
        log,
        ["forward(2)", "plain", "always((2.0,), 3.0)", "failing"],
        "one `try` for all: only forward belongs into it; after success each hook runs once, whatever it raises",
    )
    if not isinstance(error, KeyError):
        raise NotYet(
            "forward went well, a hook raised, and its error did not reach the caller",
            expected="KeyError: in a hook",
            got="no error" if error is None else f"{type(error).__name__}: {error}",
            likely="only after an error of forward's do the errors of hooks become warnings",
        )
    log.clear()
    module.raises = ValueError("boom")
    module.forward_hooks[4] = lambda module, args, output: log.append("prepended")
    module.forward_hooks.move_to_end(4, last=False)
    module.always_called = {2, 4}
    _raised_by(trial, module)
    wanted = ["forward(2)", "prepended", "always((2.0,), None)"]
    _expect_log(log, wanted, "a set has no order: go through forward_hooks, and ask which ids are in the set")
    return "forward's error arrives, always_call hooks have run with output None, their errors are warnings"


def _raised_by(trial: Trial, module: _Plain) -> tuple[BaseException | None, int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trial.answer(module, 2.0)
        except (ValueError, KeyError) as error:
            return error, len(caught)
        except NotImplementedError as error:
            raise StillTheStub from error
        except Exception as error:
            raise learners_error(error, trial.name) from error
    return None, len(caught)


@exercise("6.5", "Count every call")
def count_every_call(trial: Trial) -> str:
    shared = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 2), shared, nn.Linear(2, 2), shared)
    x = torch.ones(1, 2)
    got = trial.call(model, x)
    wanted = {"Sequential": 1, "Linear": 2, "ReLU": 2}
    if not isinstance(got, dict):
        raise NotYet("that is not a dictionary", expected=f"{wanted}", got=tensor_text(got), likely=_forgot(got))
    got = dict(got)
    if got == {**wanted, "ReLU": 1}:
        raise NotYet(
            "a module that is used twice was counted once",
            expected=f"{wanted}",
            got=f"{got}",
            likely="modules instead of calls: count in the hook, not over model.modules()",
        )
    if got != wanted:
        raise NotYet("the counts are not right", expected=f"{wanted}", got=f"{got}")
    again = trial.call(model, x)
    if not trial.faults and again != wanted:
        raise NotYet(
            "a second run of your function counts on",
            expected=f"{wanted}",
            got=tensor_text(dict(again)) if isinstance(again, dict) else tensor_text(again),
            likely="an old dictionary: make a new one inside the function",
        )
    if trial.faults:
        raise NotYet(
            "when your function returns, its hook is still on every module of this process",
            expected="no global hook is left",
            got=trial.faults.pop().missing,
            likely="never removed: a global hook lives in the process, not in the model",
        )

    class OnTheFly(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = nn.Tanh()(x)
            return out

    got = trial.call(OnTheFly(), x)
    if got != {"OnTheFly": 1, "Tanh": 1}:
        raise NotYet(
            "a module that forward makes on the spot is not counted",
            expected="{'OnTheFly': 1, 'Tanh': 1}",
            got=tensor_text(dict(got)) if isinstance(got, dict) else tensor_text(got),
            likely="hooks on model.modules(): only a global hook sees a module that is not among them",
        )

    class Breaks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("on purpose")

    with trial.watch(model):
        try:
            trial.answer(nn.Sequential(Breaks()), x)
        except ValueError:
            pass
        else:
            raise NotYet(
                "the model raised, and the error did not come out",
                expected="ValueError: on purpose",
                likely="swallowed: remove the hook in `finally` or with `with`, and let the error pass",
            )
    if trial.faults:
        raise NotYet(
            "after a model that raises, your hook stays on every module of this process",
            expected="no global hook is left",
            got=trial.faults.pop().missing,
            likely="remove() was not reached: use `with` or `finally`",
        )
    return "every call is counted by its type, and no global hook stays, not even after an error"


# --- the checks' own words

_WRAP = "not wrapped: a single value that is no tuple becomes a tuple of one"


def _forgot(got: Any) -> str | None:
    return "forgotten return" if got is None else None


def _expect_log(log: list[str], wanted: list[str], likely: str | None = None) -> None:
    if log == wanted:
        return
    missing = [line for line in wanted if line not in log]
    what = f"`{missing[0]}` did not happen" if missing else "the order of the calls is another one"
    if not missing and len(log) > len(wanted):
        what = "something ran more often than it should"
    raise NotYet(what, expected=", ".join(wanted), got=", ".join(log) or "nothing ran", likely=likely)
