"""What people get wrong in lesson 6: a class with one piece exchanged for each misconception."""

import contextlib
import itertools
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from hooklab.course.lesson06.border import cross
from hooklab.course.lesson06.tables import ReadyTables


def with_pieces(base, **pieces):
    return type(base.__name__, (base,), pieces)


# --- 6.1


class Handle:
    ids = itertools.count()

    def __init__(self, table, hook, prepend=False):
        self.table, self.hook, self.id = table, hook, self.key(table, hook)
        table[self.id] = hook
        if prepend:
            self.to_front(table)

    def key(self, table, hook):
        return next(self.ids)

    def to_front(self, table):
        table.move_to_end(self.id, last=False)

    def remove(self):
        self.table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.remove()


class HidesItsId(Handle):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.name, self.id = self.id, None

    def remove(self):
        self.table.pop(self.name, None)


class NoBlock:
    __init__, key, remove, ids, to_front = Handle.__init__, Handle.key, Handle.remove, Handle.ids, Handle.to_front


def id_alone(table, hook, prepend=False):
    return Handle(table, hook, prepend).id


def removes_first_of_the_function(self):
    key = next((key for key, hook in self.table.items() if hook is self.hook), None)
    self.table.pop(key, None)


def removes_all_of_the_function(self):
    for key in [key for key, hook in self.table.items() if hook is self.hook]:
        del self.table[key]


def removes_and_swallows(self, *error):
    self.remove()
    return True


def raises_another(self, kind, error, trace):
    self.remove()
    if error is not None:
        raise RuntimeError("in the block")


def deletes(self, *error):
    del self.table[self.id]


counts: dict[int, Any] = {}


def counted_in_the_table(self, table, hook):
    _, count = counts.setdefault(id(table), (table, itertools.count()))
    return next(count)


# --- 6.2 to 6.4


class Hooks(ReadyTables):
    """Hooks before and after forward, in pieces."""

    in_order = staticmethod(lambda table: list(table.items()))
    is_new_args = is_new_output = staticmethod(lambda new: new is not None)
    as_args = staticmethod(lambda new: new if isinstance(new, tuple) else (new,))
    as_output = to_forward = to_caller = staticmethod(lambda value: value)
    to_pre_hooks = staticmethod(lambda first, args: (args,))
    to_hooks = staticmethod(lambda first, args, first_output, output: (args, output))

    def __call__(self, *first):
        args = self.before(first)
        return self.to_caller(self.after(first, args, self.forward(*self.to_forward(args))))

    def before(self, first):
        args = first
        for _, hook in self.in_order(self.pre_hooks):
            new = hook(self, *self.to_pre_hooks(first, args))
            args = self.as_args(new) if self.is_new_args(new) else args
        return args

    def after(self, first, args, first_output):
        output = first_output
        for _, hook in self.in_order(self.forward_hooks):
            new = hook(self, *self.to_hooks(first, args, first_output, output))
            output = self.as_output(new) if self.is_new_output(new) else output
        return output


class ForwardTwice(Hooks):
    def __call__(self, *args):
        self.forward(*args)
        return super().__call__(*args)


def hooks(**pieces):
    return with_pieces(Hooks, **{name: staticmethod(piece) for name, piece in pieces.items()})


class Border(Hooks):
    """Backward hooks between two crossings: a fault is another flag."""

    crosses = output_crosses = gives_back = chains = behind_pre_hooks = behind_hooks = True
    swapped = looks_up_late = stays = stays_after_errors = stays_without_errors = always_crosses = runs_once = False
    which = -1  # of the gradients that have arrived, one for each backward pass
    fails = Exception  # what takes out a crossing that is registered by hand
    bare_output, through_self = False, True
    cross, in_turn = staticmethod(cross), staticmethod(list)

    def __call__(self, *first):
        arrived: list[Any] = []
        fixed = self.in_turn(self.backward_hooks.values()) if self.crosses else []
        is_crossed = fixed or self.always_crosses
        crossing = self.cross if self.through_self else cross

        def at_the_inputs(grad_input):
            new_grads = grad_input
            for hook in list(self.backward_hooks.values()) if self.looks_up_late else fixed:
                grad_output = arrived[self.which][0] if self.bare_output else arrived[self.which]
                given = (new_grads if self.chains else grad_input, grad_output)
                new = hook(self, *(reversed(given) if self.swapped else given))
                new_grads = new_grads if new is None else new
            if self.runs_once:
                fixed.clear()
            return new_grads if self.gives_back else None

        def inputs(args):
            return crossing(args, at_the_inputs) if is_crossed else args

        def outputs(output):
            return crossing((output,), arrived.append)[0] if is_crossed and self.output_crosses else output

        if fixed and (self.stays or self.stays_after_errors or self.stays_without_errors):
            handle = self.register_forward_pre_hook(lambda module, args: inputs(args))
            try:
                output = super().__call__(*first)
            except self.fails:
                if self.stays_without_errors:
                    handle.remove()
                raise
            if self.stays_after_errors:
                handle.remove()
            return outputs(output)
        args = inputs(self.before(first)) if self.behind_pre_hooks else self.before(inputs(first))
        output = self.forward(*args)
        if self.behind_hooks:
            return outputs(self.after(first, args, output))
        return self.after(first, args, outputs(output))


def border(**flags):
    return with_pieces(Border, **flags)


class Always(Hooks):
    """Forward hooks after an error: a fault is another flag."""

    covers: tuple[str, ...] = ("pre", "forward", "hooks")
    catches: tuple[type[BaseException], ...] = (Exception,)
    sends_on = silences = goes_on = warns = counts = counts_first = chains = only_always = by_table = True
    knows_the_output = knows_the_args = copies = copies_late = True
    after_success = rescues = takes_none = by_function = a_new_error = False

    def __call__(self, *first):
        self.args, self.output, self.reached, at = first, None, set(), "pre"
        in_order = self.in_order if self.copies else lambda table: table.items()
        try:
            for _, hook in in_order(self.pre_hooks):
                new = hook(self, self.args)
                self.args = self.args if new is None else self.as_args(new)
            at = "forward"
            self.output = self.forward(*self.args)
            at = "hooks"
            for key, hook in in_order(self.forward_hooks):
                if self.counts_first:
                    self.reached.add(hook if self.by_function else key)
                new = hook(self, self.args, self.output)
                self.reached.add(hook if self.by_function else key)
                self.output = self.output if new is None else new
        except self.catches as error:
            if at in self.covers:
                self.late(first)
            if self.a_new_error:
                raise type(error)(*error.args) from error
            if self.sends_on or at not in self.covers:
                raise
            return self.output if self.rescues else None
        else:
            if self.after_success:
                self.late(first)
        return self.output

    def late(self, first):
        args, output = self.args if self.knows_the_args else first, self.output if self.knows_the_output else None
        table = self.forward_hooks
        for key in (list(table) if self.copies_late else table) if self.by_table else sorted(table):
            turn = table[key] if self.by_function else key
            if (self.only_always and key not in self.always_called) or (self.counts and turn in self.reached):
                continue
            try:
                new = table[key](self, args, output)
                output = output if (new is None and not self.takes_none) or not self.chains else new
            except Exception as error:
                if not self.silences:
                    raise
                if self.warns:
                    warnings.warn(str(error), stacklevel=2)
                if not self.goes_on:
                    return


def always(**flags):
    return with_pieces(Always, **flags)


# --- 6.5


class Tracer:
    def __init__(self, at_the_end, by):
        self.lines, self.depth, self.at_the_end, self.by = [], 0, at_the_end, by

    def write(self, module):
        self.lines.append(self.by * self.depth + type(module).__name__)

    def enter(self, module, args):
        if not self.at_the_end:
            self.write(module)
        self.depth += 1

    def leave(self, module, args, output):
        self.depth -= 1
        if self.at_the_end:
            self.write(module)


def tracing(run=lambda model, x: model(x), give=lambda lines: lines, by="  ", at_the_end=False, always_call=True):
    """Return an answer with both hooks in `with`."""

    def answer(model, x):
        tracer = Tracer(at_the_end, by)
        with (
            register_module_forward_pre_hook(tracer.enter),
            register_module_forward_hook(tracer.leave, always_call=always_call),
        ):
            run(model, x)
        return give(tracer.lines)

    return answer


def by_hand(
    remove=lambda *handles: [handle.remove() for handle in handles],
    on=lambda model: None,
    anyway=False,
    always_call=True,
):
    """Return an answer with hooks that it removes itself; `on` gives the modules, by default it is all of them."""

    def answer(model, x):
        tracer, handles = Tracer(False, "  "), []
        for module in on(model) or [None]:
            before = register_module_forward_pre_hook if module is None else module.register_forward_pre_hook
            behind = register_module_forward_hook if module is None else module.register_forward_hook
            handles += [before(tracer.enter), behind(tracer.leave, always_call=always_call)]
        try:
            model(x)
        except BaseException:
            if anyway:
                remove(*handles)
            raise
        remove(*handles)
        return tracer.lines

    return answer


def clears_the_tables(*handles):
    nn.modules.module._global_forward_pre_hooks.clear()
    nn.modules.module._global_forward_hooks.clear()


def sets_other_hooks_aside(model, x):
    tables = (nn.modules.module._global_forward_pre_hooks, nn.modules.module._global_forward_hooks)
    others = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    try:
        return tracing()(model, x)
    finally:
        for table, hooks in zip(tables, others, strict=True):
            table.update(hooks)


def in_eval(model, x):
    was = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        model(x)
    finally:
        for module, mode in was:
            module.training = mode


def without_gradients(model, x):
    with torch.no_grad():
        model(x)


def quietly(model, x):
    with contextlib.suppress(Exception):
        model(x)


MISCONCEPTIONS: dict[str, dict[str, Any]] = {
    "6.1": {
        "length-as-id": with_pieces(Handle, key=lambda self, table, hook: len(table)),
        "one-key": with_pieces(Handle, key=lambda self, table, hook: 0),
        "id-of-the-function": with_pieces(Handle, key=lambda self, table, hook: id(hook)),
        "one-more-than-the-largest": with_pieces(
            Handle, key=lambda self, table, hook: max((key for key in table if isinstance(key, int)), default=-1) + 1
        ),
        "own-address": with_pieces(Handle, key=lambda self, table, hook: id(self)),
        "id-per-table": with_pieces(Handle, key=counted_in_the_table),
        "never-prepends": with_pieces(Handle, to_front=lambda self, table: None),
        "id-is-no-key": HidesItsId,
        "removes-once-only": with_pieces(Handle, remove=lambda self: self.table.pop(self.id) and None),
        "removes-by-function": with_pieces(Handle, remove=removes_first_of_the_function),
        "removes-every-entry": with_pieces(Handle, remove=removes_all_of_the_function),
        "clears-the-table": with_pieces(Handle, remove=lambda self: self.table.clear()),
        "remove-does-nothing": with_pieces(Handle, remove=lambda self: None),
        "swallowed": with_pieces(Handle, __exit__=removes_and_swallows),
        "exit-raises": with_pieces(Handle, __exit__=raises_another),
        "exit-deletes": with_pieces(Handle, __exit__=deletes),
        "exit-does-nothing": with_pieces(Handle, __exit__=lambda self, *error: None),
        "only-after-an-error": with_pieces(Handle, __exit__=lambda self, kind, *_: self.remove() if kind else None),
        "only-without-an-error": with_pieces(Handle, __exit__=lambda self, kind, *_: None if kind else self.remove()),
        "enter-returns-nothing": with_pieces(Handle, __enter__=lambda self: None),
        "removed-when-dropped": with_pieces(Handle, __del__=lambda self: self.remove()),
        "id-alone": id_alone,
        "no-block": NoBlock,
    },
    "6.2": {
        "no-hook-ran": hooks(in_order=lambda table: []),
        "other-way-round": hooks(in_order=lambda table: list(reversed(table.items()))),
        "forward-twice": ForwardTwice,
        "forgotten-return": hooks(to_caller=lambda output: None),
        "truth-of-args": hooks(is_new_args=bool),
        "truth-of-output": hooks(is_new_output=bool),
        "truth": hooks(is_new_args=bool, is_new_output=bool),
        "not-wrapped": hooks(as_args=lambda new: new),
        "list-as-args": hooks(as_args=lambda new: tuple(new) if isinstance(new, tuple | list) else (new,)),
        "wrapped-twice": hooks(as_args=lambda new: (new,)),
        "output-unpacked": hooks(as_output=lambda new: new[0] if isinstance(new, tuple) else new),
        "output-wrapped": hooks(as_output=lambda new: new if isinstance(new, tuple) else (new,)),
        "args-lost": hooks(is_new_args=lambda new: False),
        "output-lost": hooks(is_new_output=lambda new: False),
        "value-lost": hooks(is_new_args=lambda new: False, is_new_output=lambda new: False),
        "none-for-output": hooks(is_new_output=lambda new: True),
        "none-for-args": hooks(is_new_args=lambda new: True),
        "pre-hooks-not-chained": hooks(to_pre_hooks=lambda first, args: (first,)),
        "hooks-not-chained": hooks(to_hooks=lambda first, args, first_output, output: (args, first_output)),
        "callers-args": hooks(to_hooks=lambda first, args, first_output, output: (first, output)),
        "one-argument": hooks(to_forward=lambda args: args[:1]),
        "bare-argument": hooks(
            to_pre_hooks=lambda first, args: args[:1], to_hooks=lambda first, args, _, output: (*args[:1], output)
        ),
        "args-unpacked": hooks(
            to_pre_hooks=lambda first, args: args, to_hooks=lambda first, args, _, output: (*args, output)
        ),
    },
    "6.3": {
        "nothing-crosses": border(crosses=False),
        "grads-lost": border(gives_back=False),
        "output-does-not-cross": border(output_crosses=False),
        "grads-not-chained": border(chains=False),
        "grads-swapped": border(swapped=True),
        "inputs-too-early": border(behind_pre_hooks=False),
        "output-too-early": border(behind_hooks=False),
        "both-too-early": border(behind_pre_hooks=False, behind_hooks=False),
        "crossing-stays": border(stays=True),
        "crossing-stays-after-errors": border(stays_after_errors=True),
        "crossing-stays-without-errors": border(stays_without_errors=True, fails=BaseException),
        "crossing-after-interrupt": border(stays_without_errors=True, stays_after_errors=True),
        "looked-up-late": border(looks_up_late=True),
        "first-grad-output": border(which=0),
        "bare-grad-output": border(bare_output=True),
        "runs-in-one-pass": border(runs_once=True),
        "always-crosses": border(always_crosses=True),
        "not-self-cross": border(through_self=False),
    },
    "6.4": {
        "nothing-ran": always(covers=()),
        "only-forward-tried": always(covers=("forward",)),
        "pre-hooks-outside": always(covers=("forward", "hooks")),
        "hooks-outside": always(covers=("pre", "forward")),
        "swallowed": always(sends_on=False),
        "swallowed-and-returned": always(sends_on=False, rescues=True),
        "second-error-wins": always(silences=False),
        "one-try-for-all": always(goes_on=False),
        "no-warning": always(warns=False),
        "ran-twice": always(counts=False),
        "counted-too-late": always(counts_first=False),
        "none-for-output": always(takes_none=True),
        "ran-after-success": always(counts=False, after_success=True),
        "output-not-known": always(knows_the_output=False),
        "callers-args": always(knows_the_args=False),
        "late-output-lost": always(chains=False),
        "all-hooks-ran": always(only_always=False),
        "order-of-ids": always(by_table=False),
        "no-copy": always(copies=False),
        "no-copy-after-error": always(copies_late=False),
        "id-not-function": always(by_function=True),
        "new-error": always(a_new_error=True),
        "caught-too-much": always(catches=(BaseException,)),
    },
    "6.5": {
        "never-removed": by_hand(remove=lambda *handles: None),
        "out-of-step": tracing(always_call=False),
        "removed-after-success": by_hand(),
        "both-after-an-error": by_hand(always_call=False),
        "swallowed": tracing(quietly),
        "forward-alone": tracing(lambda model, x: model.forward(x)),
        "runs-in-eval": tracing(in_eval),
        "runs-without-gradients": tracing(without_gradients),
        "runs-twice": tracing(lambda model, x: (model(x), model(x))),
        "four-spaces": tracing(by="    "),
        "no-indentation": tracing(by=""),
        "tabs": tracing(by="\t"),
        "forgotten-return": tracing(give=lambda lines: None),
        "one-string": tracing(give="\n".join),
        "written-at-the-end": tracing(at_the_end=True),
        "hooks-on-each-module": by_hand(on=lambda model: list(model.modules()), anyway=True),
        "tables-cleared": by_hand(remove=clears_the_tables, anyway=True),
        "others-set-aside": sets_other_hooks_aside,
        "each-module-once": tracing(give=lambda lines: list(dict.fromkeys(lines))),
    },
}
