"""Checks of lesson 4: forward pre-hooks, which see and change what goes into a module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, Trial, first_words, learners_line, same, tensor_text

NO_RETURN = "forgotten return: the hook ran but returned None, so the arguments stayed as they were"


@exercise("4.1", "Double what goes in")
def double_what_goes_in(trial: Trial) -> str:
    for values in ([1.0, 2.0], [-3.0, 0.5]):
        layer, seen = _recorder(nn.Linear(2, 1))
        x = torch.tensor([values])
        handle = trial.call(layer, may_hook=True)
        with trial.watch(x):
            _run(trial, layer, x)
        _expect_one_tensor(seen)
        shown = {"expected": tensor_text(2 * x), "got": tensor_text(seen[-1][0][0])}
        if trial.faults:
            raise trial.faults[0]
        if same(seen[-1][0][0], x):
            raise NotYet("the layer got the input as it was", **shown, likely=_no_pre_hook(layer) or NO_RETURN)
        if not same(seen[-1][0][0], 2 * x):
            raise NotYet("the layer did not get twice the input", **shown)
        wants_grad = x.clone().requires_grad_()
        _run(trial, layer, wants_grad).sum().backward()
        if not same(wants_grad.grad, 2 * layer.get_parameter("weight")):
            raise NotYet(
                "the right gradient does not come back to the input",
                expected=f"x.grad = {tensor_text(2 * layer.get_parameter('weight'))}",
                got=tensor_text(wants_grad.grad),
                likely="cut off: .data, .detach() and no_grad() in the hook end the graph there",
            )
        _expect_handle_works(trial, handle, layer, x, seen)
    return "the layer gets 2·x, your x is untouched, and handle.remove() ends it"


@exercise("4.2", "A guard at the door")
def a_guard_at_the_door(trial: Trial) -> str:
    layer, seen = _recorder(nn.Linear(3, 1))
    handle = trial.call(layer, may_hook=True)
    good = torch.tensor([[1.0, 2.0, 3.0]])
    _run(trial, layer, good)
    if seen[-1][0][0] is not good:
        raise NotYet(
            "a good input does not arrive as the very object that was passed in",
            expected="the same tensor",
            got=tensor_text(seen[-1][0][0]),
            likely="too much: a guard looks and returns None",
        )
    for bad, why in (
        (torch.tensor([[1.0, float("nan"), 3.0]]), "NaN"),
        (torch.tensor([[1.0, float("inf"), 3.0]]), "inf"),
        (torch.tensor([[1.0, float("-inf"), 3.0]]), "-inf"),
        (torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, float("nan")]]), "NaN in its second row"),
    ):
        seen.clear()
        try:
            layer(bad)
        except ValueError:
            pass
        except Exception as error:
            raise NotYet(
                f"an input with {why} raised another kind of error",
                expected="ValueError",
                got=type(error).__name__,
                likely="assert raises AssertionError, and python -O removes it"
                if isinstance(error, AssertionError)
                else None,
            ) from error
        else:
            likely = {
                "inf": "only NaN: torch.isfinite is False for NaN and for both infinities",
                "-inf": "only one infinity: torch.isfinite is False for NaN and for both",
                "NaN in its second row": "only a part was looked at: `torch.isfinite(x).all()` looks at every number",
            }.get(why)
            raise NotYet(
                f"an input with {why} was let in",
                expected="ValueError before forward runs",
                got="no error",
                likely=likely or _no_pre_hook(layer) or "the condition is never true, or the hook only prints",
            )
        if seen:
            raise NotYet(
                f"forward had already run when the error for {why} came",
                expected="the guard stands before forward",
                likely="forward hook: it runs after forward; register_forward_pre_hook runs before",
            )
    _expect_handle_works(trial, handle, layer, torch.tensor([[1.0, float("nan"), 3.0]]), seen)
    return "finite inputs pass untouched; NaN and inf raise ValueError before forward runs"


def _scaled() -> Any:
    """A module with keyword arguments that callers may leave out, of a class that no answer has touched before."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[dict[str, Any]] = []

        def forward(self, x: Tensor, *, scale: float = 1.0, shift: float = 0.0) -> Tensor:
            self.seen.append({"x": x, "scale": scale, "shift": shift})
            return x * scale + shift

    return Scaled()


@exercise("4.3", "A default for a keyword argument")
def a_default_for_a_keyword(trial: Trial) -> str:
    for default in (10.0, 3.0):
        module, x = _scaled(), torch.tensor([1.0, 2.0])
        handle = trial.call(module, default, may_hook=True)
        _run(trial, module, x)
        got = module.seen[-1]["scale"]
        if got != default:
            raise NotYet(
                "a call without scale still uses the module's own default",
                expected=f"scale = {default:g}",
                got=f"scale = {got:g}",
                likely=_no_pre_hook(module) or NO_RETURN,
            )
        for scale in (2.0, 0.0, 1.0, 20.0):
            _run(trial, module, x, scale=scale, shift=5.0)
            got = module.seen[-1]
            if got["scale"] != scale:
                raise NotYet(
                    "a scale that the caller gave was replaced",
                    expected=f"scale = {scale:g}",
                    got=f"scale = {got['scale']:g}",
                    likely="overwritten: only fill in what is missing"
                    if scale
                    else 'truth instead of presence: 0 is a scale, too; ask whether `"scale" in kwargs`',
                )
        if got["shift"] != 5.0 or got["x"] is not x:
            raise NotYet(
                "the other arguments did not come through",
                expected="x and shift = 5 as the caller gave them",
                got=f"x = {tensor_text(got['x'])}, shift = {got['shift']:g}",
                likely="lost arguments: return all of args and all of kwargs",
            )
        _run(trial, module, x=x, shift=5.0)
        got = module.seen[-1]
        if (got["scale"], got["shift"]) != (default, 5.0) or got["x"] is not x:
            raise NotYet(
                "module(x=x, shift=5.0) does not get what it should",
                expected=f"x and shift = 5 as given, scale = {default:g}",
                got=f"x = {tensor_text(got['x'])}, shift = {got['shift']:g}, scale = {got['scale']:g}",
                likely="every mix of named arguments may come: fill in scale alone, whatever else is there",
            )
        _expect_handle(handle)
        handle.remove()
        _run(trial, module, x)
        if module.seen[-1]["scale"] != 1.0:
            raise NotYet(
                "after handle.remove() the new default is still there",
                expected="scale = 1, the module's own",
                got=f"scale = {module.seen[-1]['scale']:g}",
            )
    return "a missing scale is filled in, a given one is kept, and everything else comes through"


@exercise("4.4", "First in the line")
def first_in_the_line(trial: Trial) -> str:
    layer, seen = _recorder(nn.Linear(1, 1))
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    handle = trial.call(layer, lambda module, args: (args[0] * 10,), may_hook=True)
    if before.id not in layer._forward_pre_hooks:
        raise NotYet(
            "the hook that was there is gone",
            expected="the old hook, under the id of its own handle",
            got="its handle can no longer remove it",
            likely="never remove hooks that are not yours: whoever holds their handle relies on them",
        )
    _run(trial, layer, torch.tensor([[2.0]]))
    got = float(seen[-1][0][0])
    if got == 30.0:
        raise NotYet(
            "the new hook runs after the old one",
            expected="2 · 10 + 1 = 21",
            got="(2 + 1) · 10 = 30",
            likely="order of registration: the last one registered runs last, unless you say prepend=True",
        )
    if got != 21.0:
        raise NotYet("the two hooks do not both run, the new one first", expected="21", got=f"{got:g}")
    _expect_handle(handle)
    handle.remove()
    _run(trial, layer, torch.tensor([[2.0]]))
    if float(seen[-1][0][0]) != 3.0:
        raise NotYet(
            "the handle does not remove the new hook alone", expected="2 + 1 = 3", got=f"{float(seen[-1][0][0]):g}"
        )
    return "the new hook runs first, the old one is still there, and the handle removes yours alone"


@exercise("4.5", "Weight norm by a pre-hook")
def weight_norm_by_a_pre_hook(trial: Trial) -> str:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    weight, x = layer.weight.detach().clone(), torch.randn(4, 3)
    wanted = layer(x).detach()
    handle = trial.call(layer, may_hook=True, may_change=True)
    names = sorted(name for name, _ in layer.named_parameters())
    if names != ["bias", "weight_g", "weight_v"]:
        raise NotYet(
            "the layer's parameters are not the new ones",
            expected="bias, weight_g, weight_v",
            got=", ".join(names),
            likely="weight is still a parameter: `del layer.weight` first" if "weight" in names else None,
        )
    shape = tuple(layer.get_parameter("weight_g").shape)
    if shape != (2, 1):
        raise NotYet(
            "weight_g is not one length for each row",
            expected="shape (2, 1)",
            got=f"shape {shape}",
            likely="one norm for the whole matrix, or keepdim is missing: give dim=1 and keepdim=True",
        )
    if not same(layer.get_parameter("weight_v"), weight):
        raise NotYet("weight_v does not start as the old weight", expected="the weight, as it was")
    if not same(_run(trial, layer, x), wanted):
        raise NotYet("the layer computes something else than before", expected="the same output, to rounding")
    lengths, directions = layer.get_parameter("weight_g"), layer.get_parameter("weight_v")
    with torch.no_grad():
        lengths.mul_(2)
        directions.mul_(3)
    got = _run(trial, layer, x)
    if same(got, wanted):
        raise NotYet(
            "new values of weight_g do not reach the output",
            expected="twice the product, once weight_g is doubled",
            got="the old output",
            likely="computed once: the weight must be computed in the hook, before every forward",
        )
    if not same(got, x @ (2 * weight).T + layer.bias):
        raise NotYet(
            "after doubling weight_g and tripling weight_v the output is another one",
            expected="twice the product: the length of weight_v must not matter",
            likely="not normalised: divide weight_v by the norm of its own rows",
        )
    got.sum().backward()
    if lengths.grad is None or directions.grad is None:
        raise NotYet(
            "no gradient reaches weight_g and weight_v",
            expected="both have a .grad after backward()",
            likely="cut off: .data, .detach(), no_grad() or a new nn.Parameter in the hook ends the graph there",
        )
    g, v = lengths.detach().requires_grad_(), directions.detach().requires_grad_()
    grad_g, grad_v = torch.autograd.grad((x @ (g * v / v.norm(dim=1, keepdim=True)).T).sum(), (g, v))
    if not same(lengths.grad, grad_g) or not same(directions.grad, grad_v):
        raise NotYet(
            "the gradients of weight_g and weight_v are not those of the formula",
            expected=f"weight_v.grad = {tensor_text(grad_v)}",
            got=tensor_text(directions.grad),
            likely="cut off in part: the norm depends on weight_v, too, and belongs to the graph",
        )
    _expect_handle(handle)
    handle.remove()
    with torch.no_grad():
        lengths.mul_(2)
    if not same(_run(trial, layer, x), got):
        raise NotYet("after handle.remove() the hook is still at work", expected="the weight that was computed last")
    return "same output at first, weight_g sets the rows' lengths, and both parameters learn"


# --- the checks' own words


def _recorder(layer: nn.Module) -> tuple[nn.Module, list[tuple[Any, ...]]]:
    """Return the layer and a list that gets (args, kwargs) of each call, as `forward` itself receives them."""
    seen: list[tuple[Any, ...]] = []
    forward = layer.forward

    def recording_forward(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return forward(*args, **kwargs)

    layer.forward = recording_forward
    return layer, seen


def _run(trial: Trial, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call the module; an error that the layer itself raises for what a hook gave it is explained."""
    try:
        return module(*args, **kwargs)
    except AttributeError as error:
        if "no attribute 'weight'" in str(error) and learners_line(error) is None:
            raise NotYet(
                "forward finds no `layer.weight`",
                expected="a pre-hook that sets it before each forward",
                got=first_words(error),
                likely=_no_pre_hook(module),
            ) from error
        raise
    except TypeError as error:
        if learners_line(error) is not None:  # an error in the hook's own lines names itself
            raise
        if "must be Tensor, not tuple" in str(error) or "must be Tensor, not list" in str(error):
            raise NotYet(
                "the layer got a list or tuple in place of a tensor",
                expected="return the new tensor, or a tuple of all arguments",
                got=str(error).split("\n")[0],
                likely="a list counts as one argument; only a tuple is unpacked",
            ) from error
        if "takes 2 positional arguments but 3" in str(error) and "forward" in str(error):
            raise NotYet(
                "the layer got the input twice",
                expected="one argument",
                got=str(error),
                likely="tuple times two: args is a tuple, and (x,) * 2 is (x, x); unpack it first",
            ) from error
        if "positional argument" in str(error):
            raise NotYet(
                f"a call of the layer raised TypeError: {first_words(error)}",
                expected="no exception",
                likely="another hook's arguments: a pre-hook is called with (module, args), and with_kwargs=True adds "
                "kwargs",
            ) from error
        raise


def _expect_one_tensor(seen: list[tuple[Any, ...]]) -> None:
    args = seen[-1][0]
    if len(args) != 1 or not isinstance(args[0], Tensor):
        raise NotYet("the layer did not get one tensor", expected="one tensor", got=tensor_text(args))


def _no_pre_hook(module: nn.Module) -> str | None:
    if module._forward_pre_hooks:
        return None
    if module._forward_hooks:
        return "forward hook: it runs after forward; register_forward_pre_hook runs before"
    return "no hook: nothing is registered on the module"


def _expect_handle(handle: Any) -> None:
    if not callable(getattr(handle, "remove", None)):
        raise NotYet(
            "your function did not return the handle",
            expected="what register_forward_pre_hook returns",
            got=tensor_text(handle),
            likely="forgotten return: without the handle nobody can remove the hook",
        )


def _expect_handle_works(trial: Trial, handle: Any, layer: nn.Module, x: Tensor, seen: list[tuple[Any, ...]]) -> None:
    _expect_handle(handle)
    handle.remove()
    _run(trial, layer, x)
    if seen[-1][0][0] is not x:
        raise NotYet(
            "after handle.remove() a hook is still at work", expected="the input as it is", got="a changed input"
        )
