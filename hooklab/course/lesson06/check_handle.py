"""The check of exercise 6.1: a handle."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, StillTheStub, Trial, first_words, tensor_text

Table = OrderedDict[Any, Any]


@exercise("6.1", "A handle")
def a_handle(trial: Trial) -> str:
    _puts_hooks_in_order(trial)
    _stays_when_it_is_dropped(trial)
    _removes_its_own(trial)
    _ids_never_come_again(trial)
    _removes_at_the_end_of_a_block(trial)
    return "own ids, the right order, remove() once or twice, and `with` removes whatever happens"


def _puts_hooks_in_order(trial: Trial) -> None:
    table: Table = OrderedDict()
    handles = [trial.call(table, len), trial.call(table, max), trial.call(table, min, True)]
    for handle in handles:
        if not callable(getattr(handle, "remove", None)):
            raise NotYet("what came back cannot be asked to remove()", expected="a handle", got=tensor_text(handle))
    if len(table) != 3:
        raise NotYet(
            "three hooks were registered, and the table has another number",
            expected="3",
            got=f"{len(table)}",
            likely="the same key again: every hook needs an id of its own" if table else None,
        )
    if not all(hook in (len, max, min) for hook in table.values()):
        raise NotYet("the table holds something else than the hooks", expected="the very functions", got=_names(table))
    front = "prepend=True had no effect: move_to_end(key, last=False) moves a key to the front"
    likely = front if _names(table) == "len, max, min" else None
    _expect(table, [min, len, max], "the order in the table is not the order in which hooks shall run", likely)
    for handle, hook in zip(handles, (len, max, min), strict=True):
        if not hasattr(handle, "id") or table.get(handle.id) is not hook:
            raise NotYet(
                "the handle's id is not the key of its hook",
                expected="table[handle.id] is the hook",
                got=f"handle.id = {tensor_text(getattr(handle, 'id', None))}",
            )


def _removes_its_own(trial: Trial) -> None:
    table: Table = OrderedDict()
    handles = [trial.call(table, hook) for hook in (len, max, min)]
    _remove(trial, handles[1])
    _expect(table, [len, min], "remove() took out something else than this registration")
    table = OrderedDict()
    first, between = trial.call(table, len), trial.call(table, max)
    again = trial.call(table, len)
    _expect(
        table,
        [len, max, len],
        "the same function was registered twice, and the table has it once",
        "the same key for the same function: every registration needs an id of its own" if len(table) == 2 else None,
    )
    _remove(trial, again)
    own = "removed by the function, which may stand there twice: a handle removes what stands under its own id"
    likely = own if _names(table) in ("max, len", "max") else None
    _expect(table, [len, max], "remove() took out something else than this registration", likely)
    _remove(trial, again, "a second remove() of the same handle")
    _expect(table, [len, max], "a second remove() took out a hook that is not its own")
    _remove(trial, first)
    _expect(table, [max], "remove() took out something else than this registration")
    table.clear()
    _remove(trial, between, "remove(), when somebody has emptied the table,")


def _ids_never_come_again(trial: Trial) -> None:
    table: Table = OrderedDict()
    handles = [trial.call(table, hook) for hook in (len, max, min)]
    _remove(trial, handles[1])
    trial.call(table, sum)
    lost = "a removal and a registration, and another hook has vanished"
    likely = "an id that comes again after a removal, as len(table) does: it overwrites a hook"
    _expect(table, [len, min, sum], lost, likely if _names(table) == "len, sum" else None)
    other: Table
    table, other = OrderedDict(), OrderedDict()
    first, last = trial.call(table, len), trial.call(table, max)
    _remove(trial, last)
    trial.call(table, min)
    _remove(trial, last, "a second remove() of the same handle")
    likely = "an id that comes again after a removal: the old handle and the new one have the same"
    stale = "an old handle, removed again, took out a newer hook"
    _expect(table, [len, min], stale, likely if _names(table) == "len" else None)
    elsewhere = trial.call(other, len)
    if elsewhere.id == first.id:
        raise NotYet(
            "two handles of different tables have the same id",
            expected="a number that no other handle has or had, in any table",
            got=f"{tensor_text(first.id)} twice",
        )
    other.clear()

    def twenty_registrations() -> None:
        for _ in range(20):  # one right after the other: what lies between them may take a number that has become free
            trial.answer(other, len)  # and nobody keeps the handle

    trial.run(twenty_registrations)
    if len(other) < 20:
        raise NotYet(
            "twenty hooks were registered, their handles dropped, and hooks have vanished",
            expected="an id that no handle has or had, even one that is gone",
            got=f"{len(other)} in the table",
            likely="id(self): Python gives the number of an object that is gone to a new one"
            if _is_address(trial)
            else None,
        )


def _is_address(trial: Trial) -> bool:
    handle = trial.call(OrderedDict(), len)
    return bool(handle.id == id(handle))


def _removes_at_the_end_of_a_block(trial: Trial) -> None:
    for error in (None, KeyError("on purpose"), KeyboardInterrupt("on purpose")):
        table: Table = OrderedDict()
        trial.call(table, len)
        handle = trial.call(table, max)
        came, opened = _in_a_block(trial, handle, error)
        if came is not error:
            raise NotYet(
                "the block raised, and the error vanished" if came is None else "the block raises another error",
                expected="the error of the block comes out of it",
                got="no error" if came is None else f"{type(came).__name__}: {first_words(came)}",
                likely="__exit__ returned something true, which swallows the error" if came is None else None,
            )
        what = "without an error" if error is None else "with an error"
        _expect(table, [len], f"a block ended {what}, and the table is not what it was before the handle")
        if opened is not handle:
            raise NotYet("`with handle as h` gives another object", expected="the handle", got=tensor_text(opened))
    handle = trial.call(OrderedDict(), len)

    def block() -> None:
        with handle:
            handle.remove()

    _run(trial, block, "the end of a block in which the handle was removed")


def _in_a_block(trial: Trial, handle: Any, error: BaseException | None) -> tuple[BaseException | None, Any]:
    """Return the exception that comes out of a block in which this one is raised, and what `as` gave."""
    opened = None
    try:
        with handle as opened:
            if error is not None:
                raise error
    except NotImplementedError as stub:
        raise StillTheStub from stub
    except BaseException as came:
        if came is not error and isinstance(came, TypeError | AttributeError) and opened is None:
            raise NotYet(
                "the handle does not work in a `with` block",
                expected="__enter__, which returns the handle, and __exit__, which takes three arguments",
                got=f"{type(came).__name__}: {first_words(came)}",
            ) from came
        return came, opened
    return None, opened


def _stays_when_it_is_dropped(trial: Trial) -> None:
    table: Table = OrderedDict()
    was_on = gc.isenabled()
    gc.disable()  # what the call makes stays young: collecting that is enough, and all objects of a process are many
    try:
        trial.call(table, len)
        gc.collect(0)
    finally:
        if was_on:
            gc.enable()
    _expect(
        table,
        [len],
        "nobody kept the handle, and the hook is gone",
        "`__del__`, or a weak reference, removes a hook whose handle nobody keeps: only remove() and `with` do",
    )


def _remove(trial: Trial, handle: Any, what: str = "remove()") -> None:
    """Call a handle's remove(); an exception of a second call is told as one."""
    _run(trial, handle.remove, what)


def _run(trial: Trial, removing: Callable[[], object], what: str) -> None:
    try:
        trial.run(removing)
    except NotYet as fault:
        if what == "remove()":
            raise
        raise NotYet(
            f"{what} raises",
            expected="nothing happens: the hook is out already",
            got=fault.missing,
            likely="the key is gone: table.pop(key, None) takes it only if it is there"
            if "KeyError" in fault.missing
            else None,
        ) from fault


def _expect(table: Table, wanted: list[Any], missing: str, likely: str | None = None) -> None:
    if list(table.values()) != wanted:
        names = ", ".join(hook.__name__ for hook in wanted)
        raise NotYet(missing, expected=names, got=_names(table) or "an empty table", likely=likely)


def _names(table: Table) -> str:
    return ", ".join(getattr(hook, "__name__", "something else") for hook in table.values())
