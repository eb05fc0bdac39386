"""Calls with one fault each: what people write, and what it is called.

When the reader's class falls short, a check runs them on the same programs. If one of them does there, line by line,
what the reader's class does, the check gives its reason. To add a misconception, add a line.
"""

from __future__ import annotations

import warnings
from typing import Any

from hooklab.course.lesson06.border import cross
from hooklab.course.lesson06.tables import ReadyTables


class Hooks(ReadyTables):
    """Hooks before and after forward, in pieces: a fault is another piece."""

    def in_order(self, table: dict[int, Any]) -> Any:
        return list(table.items())

    def is_new_args(self, new: Any) -> bool:
        return new is not None

    def is_new_output(self, new: Any) -> bool:
        return new is not None

    def as_args(self, new: Any) -> Any:
        return new if isinstance(new, tuple) else (new,)

    def as_output(self, new: Any) -> Any:
        return new

    def to_pre_hooks(self, first: Any, args: Any) -> Any:
        return (args,)

    def to_forward(self, args: Any) -> Any:
        return args

    def to_hooks(self, first: Any, args: Any, first_output: Any, output: Any) -> Any:
        return args, output

    def to_caller(self, output: Any) -> Any:
        return output

    def __call__(self, *first: Any) -> Any:
        args = self.before(first)
        return self.to_caller(self.after(first, args, self.forward(*self.to_forward(args))))  # type: ignore[attr-defined]

    def before(self, first: Any) -> Any:
        args = first
        for _, hook in self.in_order(self.pre_hooks):
            new = hook(self, *self.to_pre_hooks(first, args))
            args = self.as_args(new) if self.is_new_args(new) else args
        return args

    def after(self, first: Any, args: Any, first_output: Any) -> Any:
        output = first_output
        for _, hook in self.in_order(self.forward_hooks):
            new = hook(self, *self.to_hooks(first, args, first_output, output))
            output = self.as_output(new) if self.is_new_output(new) else output
        return output


class Always(Hooks):
    """Forward hooks after an error: a fault is another flag."""

    covers: tuple[str, ...] = ("pre", "forward", "hooks")
    sends_on = silences = goes_on = warns = counts = counts_first = chains = only_always = by_table = True
    knows_the_output = knows_the_args = True
    after_success = rescues = takes_none = False

    def __call__(self, *first: Any) -> Any:
        self.args, self.output, self.reached, at = first, None, set[int](), "pre"
        try:
            for _, hook in self.in_order(self.pre_hooks):
                new = hook(self, self.args)
                self.args = self.args if new is None else self.as_args(new)
            at = "forward"
            self.output = self.forward(*self.args)  # type: ignore[attr-defined]
            at = "hooks"
            for key, hook in self.in_order(self.forward_hooks):
                if self.counts_first:
                    self.reached.add(key)
                new = hook(self, self.args, self.output)
                self.reached.add(key)
                self.output = self.output if new is None else new
        except Exception:
            if at in self.covers:
                self.late(first)
            if self.sends_on or at not in self.covers:
                raise
            return self.output if self.rescues else None
        else:
            if self.after_success:
                self.late(first)
        return self.output

    def late(self, first: Any) -> None:
        keys = list(self.forward_hooks) if self.by_table else sorted(self.forward_hooks)
        args, output = self.args if self.knows_the_args else first, self.output if self.knows_the_output else None
        for key in keys:
            if (self.only_always and key not in self.always_called) or (self.counts and key in self.reached):
                continue
            try:
                new = self.forward_hooks[key](self, args, output)
                output = output if (new is None and not self.takes_none) or not self.chains else new
            except Exception as error:
                if not self.silences:
                    raise
                if self.warns:
                    warnings.warn(str(error), stacklevel=2)
                if not self.goes_on:
                    return


class Border(Hooks):
    """Backward hooks between two crossings: a fault is another flag."""

    crosses = output_crosses = gives_back = chains = behind_pre_hooks = behind_hooks = True
    is_swapped = looks_up_late = stays = stays_after_errors = stays_without_errors = False
    which = -1  # of the gradients that have arrived, one for each backward pass

    def __call__(self, *first: Any) -> Any:
        arrived: list[Any] = []
        fixed = list(self.backward_hooks.values()) if self.crosses else []

        def at_the_inputs(grad_input: Any) -> Any:
            new_grads = grad_input
            for hook in list(self.backward_hooks.values()) if self.looks_up_late else fixed:
                given = (new_grads if self.chains else grad_input, arrived[self.which])
                new = hook(self, *(reversed(given) if self.is_swapped else given))
                new_grads = new_grads if new is None else new
            return new_grads if self.gives_back else None

        def inputs(args: Any) -> Any:
            return cross(args, at_the_inputs) if fixed else args

        def outputs(output: Any) -> Any:
            return cross((output,), arrived.append)[0] if fixed and self.output_crosses else output

        if fixed and (self.stays or self.stays_after_errors or self.stays_without_errors):
            handle = self.register_forward_pre_hook(lambda module, args: inputs(args))
            try:
                output = super().__call__(*first)
            except Exception:
                if self.stays_without_errors:
                    handle.remove()
                raise
            if self.stays_after_errors:
                handle.remove()
            return outputs(output)
        args = inputs(self.before(first)) if self.behind_pre_hooks else self.before(inputs(first))
        output = self.forward(*args)  # type: ignore[attr-defined]
        if self.behind_hooks:
            return outputs(self.after(first, args, output))
        return self.after(first, args, outputs(output))


def faulty_calls(kind: type[Hooks]) -> dict[str, type]:
    """Return reason -> class, for each fault of a kind: `Hooks`, `Always` or `Border`."""
    return _CALLS[kind]


# kind -> reason -> the pieces that are other ones
FAULTS: dict[type[Hooks], dict[str, dict[str, Any]]] = {
    Hooks: {
        "no hook ran: `__call__` goes straight to forward": {"in_order": lambda self, table: []},
        "the other way round: hooks run in the order of their table": {
            "in_order": lambda self, table: reversed(table.items())
        },
        "forgotten return": {"to_caller": lambda self, output: None},
        "truth instead of None: a pre-hook may return 0 or (), too; ask `is not None`": {
            "is_new_args": lambda self, new: bool(new)
        },
        "truth instead of None: a forward hook may return 0, too; ask `is not None`": {
            "is_new_output": lambda self, new: bool(new)
        },
        "truth instead of None: a hook may return 0, too; ask `is not None`": {
            "is_new_args": lambda self, new: bool(new),
            "is_new_output": lambda self, new: bool(new),
        },
        "not wrapped: a pre-hook's value that is no tuple becomes a tuple of one": {"as_args": lambda self, new: new},
        "only a tuple means all arguments: a list is one argument": {
            "as_args": lambda self, new: tuple(new) if isinstance(new, tuple | list) else (new,)
        },
        "wrapped twice: a tuple that a pre-hook returns already is all arguments": {
            "as_args": lambda self, new: (new,)
        },
        "unpacked: a forward hook's tuple is the output, as it is": {
            "as_output": lambda self, new: new[0] if isinstance(new, tuple) else new
        },
        "wrapped: only a pre-hook's value becomes a tuple; a forward hook's is the output, as it is": {
            "as_output": lambda self, new: new if isinstance(new, tuple) else (new,)
        },
        "what a pre-hook returns is lost": {"is_new_args": lambda self, new: False},
        "what a forward hook returns is lost": {"is_new_output": lambda self, new: False},
        "what a hook returns is lost": {
            "is_new_args": lambda self, new: False,
            "is_new_output": lambda self, new: False,
        },
        "None took the place of the output: a hook that returns None leaves it as it is": {
            "is_new_output": lambda self, new: True
        },
        "not chained: each pre-hook gets what the pre-hook before it has made": {
            "to_pre_hooks": lambda self, first, args: (first,)
        },
        "not chained: each forward hook gets what the hook before it has made": {
            "to_hooks": lambda self, first, args, first_output, output: (args, first_output)
        },
        "forward hooks got the caller's arguments: they get those that forward got": {
            "to_hooks": lambda self, first, args, first_output, output: (first, output)
        },
        "only the first argument reached forward: `*args` hands over all of them": {
            "to_forward": lambda self, args: args[:1]
        },
        "a hook got the bare argument: it gets `args`, the tuple, even for one argument": {
            "to_pre_hooks": lambda self, first, args: (args[0],),
            "to_hooks": lambda self, first, args, first_output, output: (args[0], output),
        },
        "unpacked for the hooks: a hook gets `args` as one tuple; only forward gets `*args`": {
            "to_pre_hooks": lambda self, first, args: args,
            "to_hooks": lambda self, first, args, first_output, output: (*args, output),
        },
    },
    Always: {
        "nothing ran after this error, a Boom: `except Exception` catches errors of every kind, and the "
        "hooks whose id is in `always_called` run there": {"covers": ()},
        "only forward stands in the `try`: a pre-hook and a forward hook can raise as well": {"covers": ("forward",)},
        "the pre-hooks stand outside of the `try`: they can raise as well": {"covers": ("forward", "hooks")},
        "the forward hooks stand outside of the `try`: when one raises, the always_call hooks behind it still run": {
            "covers": ("pre", "forward")
        },
        "swallowed: `raise` alone, at the end of `except`, sends the error on": {"sends_on": False},
        "swallowed, and the output returned: `raise` alone, at the end of `except`, sends the error on": {
            "sends_on": False,
            "rescues": True,
        },
        "the error of an always_call hook took the place of the first one: it becomes a warning": {"silences": False},
        "one `try` for all of them: after one always_call hook has failed, the others still run": {"goes_on": False},
        "the error of an always_call hook left no trace: it becomes a warning": {"warns": False},
        "a hook ran twice: one that was reached before the error came, whether it raised or not, has had its turn": {
            "counts": False
        },
        "a hook that raises ran twice: it has had its turn, so write its id down before you call it": {
            "counts_first": False
        },
        "None took the place of the output: after an error, too, a hook that returns None leaves it": {
            "takes_none": True
        },
        "a hook ran twice: without an error each hook runs once, as ever": {"counts": False, "after_success": True},
        "the output was there already: when a forward hook raises, the hooks behind it get what forward has made": {
            "knows_the_output": False
        },
        "the arguments of the caller: the hooks get them as the pre-hooks have left them": {"knows_the_args": False},
        "after an error, too, each hook gets what the one before it has made": {"chains": False},
        "after an error only the hooks in `always_called` run": {"only_always": False},
        "a set has no order of its own: go through `forward_hooks`, and ask which ids are in the set": {
            "by_table": False
        },
    },
    Border: {
        "no backward hook ran: nothing crosses the border": {"crosses": False},
        "what a backward hook returns is lost: your function at the inputs returns the gradients that go on": {
            "gives_back": False
        },
        "the output does not cross: so nothing puts grad_output into `arrived`": {"output_crosses": False},
        "not chained: each backward hook gets what the one before it has made": {"chains": False},
        "swapped: a hook gets (module, grad_input, grad_output)": {"is_swapped": True},
        "the inputs crossed before the pre-hooks: grad_input belongs to what forward gets": {"behind_pre_hooks": False},
        "the output crossed before the forward hooks: grad_output belongs to what the caller gets": {
            "behind_hooks": False
        },
        "both crossed too early: the inputs cross behind the pre-hooks, the output behind the forward hooks": {
            "behind_pre_hooks": False,
            "behind_hooks": False,
        },
        "the crossing at the inputs stays registered when the call is over: `with` takes it out": {"stays": True},
        "the crossing at the inputs stays registered when something raises: `with` takes it out, whatever happens": {
            "stays_after_errors": True
        },
        "the crossing at the inputs is taken out after an error alone: `with` takes it out on every way": {
            "stays_without_errors": True
        },
        "looked up in the backward pass: which hooks belong to a call is decided when it begins": {
            "looks_up_late": True
        },
        "the grad_output of the first pass: a second backward pass puts another one behind it into `arrived`": {
            "which": 0
        },
    },
}
_CALLS: dict[type[Hooks], dict[str, type]] = {
    kind: {reason: type("Faulty", (kind,), pieces) for reason, pieces in faults.items()}
    for kind, faults in FAULTS.items()
}
