"""The check of exercise 3.5: a context manager that captures by name, and removes its hooks however the block ends."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.forward import (
    Net,
    expect_clean_block,
    expect_manager,
    look,
    misconception_named,
    refuse_disturbed,
    users_own,
    whole_numbers,
    why_not_detached,
)
from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks
from hooklab.course.exercises.trial import NotYet, Trial, expect_dtype, expect_tensor, same, tensor_text


@exercise("3.5", "A capture that cleans up")
@misconception_named()
def a_capture_that_cleans_up(trial: Trial) -> str:
    for names in (["body.first", "head"], ["head", "body.first"]):
        _check_values(trial, names)
    _check_own_dictionary(trial)
    _check_exception(trial)
    _check_wrong_name(trial)
    return "right values under right names, and no hook left: at the end, after an exception, after a wrong name"


def _check_values(trial: Trial, names: list[str]) -> None:
    model = Net(0).double()
    early, late = whole_numbers(1, 3, 2).double(), whole_numbers(2, 3, 2).double()
    wanted = {name: look(model, model.get_submodule(name), late)[1] for name in names}
    final = [model(one).detach() for one in (early, late)]
    model.forget()
    own = model.head.register_forward_hook(users_own)
    with trial.watch(model, names):
        manager = expect_manager(trial.run(trial.answer, model, names), "capturing")
        if len(model.head._forward_hooks) > 1 or model.body.first._forward_hooks:
            raise NotYet(
                "hooks are on the model before the block begins",
                expected="hooks from the start of the block to its end",
                likely="registered in __init__, or in a plain function: register when the block begins",
            )

        hooked: list[bool] = []
        filled: list[bool] = []

        def a_block() -> Any:
            with manager as captured:
                hooked.append(bool(model.body.first._forward_hooks))
                model(early)
                model(late)
                filled.append(isinstance(captured, dict) and bool(captured))
            return captured

        a_block.__name__ = "a block with capturing"
        captured = trial.run(a_block)
        refuse_disturbed(model, final)
        if not model.passes[0][0]:
            raise NotYet(
                "no graph is recorded inside the block",
                expected="the block's lines run as without it: somebody may train there",
                likely="torch.no_grad() around the yield; detach() in the hook is enough",
            )
        _expect_values(captured, wanted, hooked[0], filled[0])
    if own.id not in model.head._forward_hooks:
        raise NotYet(
            "a hook that was there before your block is gone",
            expected="only your own hooks are removed",
            likely="cleared: `_forward_hooks.clear()` removes everybody's; keep your handles and remove those",
        )
    if trial.faults:
        raise trial.faults[0]


def _why_empty(hooked: bool, filled: bool) -> str:
    if filled:
        return "emptied at the end: inside the block the entries were there; leave them"
    if hooked:
        return "another dictionary: your hooks were there, and what they stored is not in the one you yielded"
    return "never registered: in the block there is no hook on the model"


def _expect_values(captured: Any, wanted: dict[str, Tensor], hooked: bool, filled: bool) -> None:
    if not isinstance(captured, dict):
        raise NotYet(
            "what stands after `as` is not a dictionary",
            expected="a dictionary from names to outputs",
            got=tensor_text(captured),
            likely="bare yield: yield the dictionary" if captured is None else None,
        )
    last = list(wanted)[-1]
    if not captured:
        raise NotYet(
            "the dictionary is empty after the block",
            expected=f"entries {list(wanted)}",
            likely=_why_empty(hooked, filled),
        )
    if (hooked and list(captured) == [last]) or (
        len(captured) > 1 and len({id(one) for one in captured.values()}) == 1
    ):
        raise NotYet(
            "all outputs were stored under the last name",
            expected=f"entries {list(wanted)}",
            got=f"entries {list(captured)}",
            likely="late binding: a hook made in a loop looks up `name` when it runs, after the loop",
        )
    if sorted(map(str, captured)) != sorted(wanted):
        raise NotYet("the names are not those asked for", expected=f"{list(wanted)}", got=tensor_text(list(captured)))
    for name, value in wanted.items():
        got = captured[name]
        if isinstance(got, list | tuple):
            raise NotYet(
                f"captured[{name!r}] is a {type(got).__name__}",
                expected="the output of the last call, a tensor",
                got=tensor_text(got),
            )
        got = expect_tensor(got, f"captured[{name!r}]")
        if not same(got, value):
            others = [other for other in wanted if same(got, wanted[other])]
            raise NotYet(
                f"captured[{name!r}] is not what {name!r} put out in the last call",
                expected=tensor_text(value),
                got=tensor_text(got),
                likely=f"names and modules do not fit: {others[0]!r} put that out" if others else None,
            )
        if got.requires_grad:
            raise NotYet(
                f"captured[{name!r}] is not detached", expected="requires_grad is False", likely=why_not_detached(got)
            )
        expect_dtype(got, f"captured[{name!r}]", value.dtype)
    if not filled:
        raise NotYet(
            "inside the block the dictionary is still empty",
            expected="an entry as soon as its module has run",
            likely="filled at the end of the block",
        )


def _check_own_dictionary(trial: Trial) -> None:
    model, x = Net(3), whole_numbers(4, 3, 2)

    def two_blocks() -> list[Any]:
        with trial.answer(model, ["head"]) as first:
            model(x)
        before = dict(first)
        with trial.answer(model, ["body.first"]) as second:
            model(2 * x)
        return [before, first, second]

    two_blocks.__name__ = "a second block"
    before, first, second = trial.run(two_blocks)
    if first is second or list(first) != list(before) or list(second) != ["body.first"]:
        raise NotYet(
            "a second block writes into the dictionary of the first one",
            expected="each block has its own dictionary",
            got=f"entries {list(second)} after a block that asked for 'body.first' alone",
            likely="old entries: a default argument or a global dictionary is shared by all calls",
        )


def _check_exception(trial: Trial) -> None:
    model, x = Net(1), whole_numbers(3, 3, 2)

    def block(error: type[BaseException]) -> None:
        with trial.answer(model, ["body.second", "head"]):
            model(x)
            raise error

    expect_clean_block(trial, model, block)


def _check_wrong_name(trial: Trial) -> None:
    for names in (["body.first", "hed"], ["body.thrid", "head"]):
        model = Net(2)
        hooks = snapshot_hooks([model])
        entered = complained = False
        try:
            with trial.answer(model, names):
                entered = True
        except Exception:
            complained = True
        left = remove_new_hooks([model], hooks)
        wrong = next(name for name in names if name not in dict(model.named_modules()))
        if left:
            raise NotYet(
                f"after the wrong name {wrong!r}, a hook is still there",
                expected="no hook left: the block never began",
                got=left[0],
                likely="registered while searching: find all modules first, then register, inside try",
            )
        if entered or not complained:
            raise NotYet(
                f"the wrong name {wrong!r} was accepted",
                expected="an error before the block begins",
                got="the block ran, and the error came at its end" if complained else "the block ran",
                likely=None if complained else "skipped in silence: a name that no module has must raise",
            )
