"""Random programs as plain data: modules, inputs, hooks, and the steps to take with them.

Nothing here knows an engine. hypothesis draws bytes, ``decode`` reads them as a program (a byte is one decision, and 0
is the plainest one, so that a failing program shrinks to a small one), and ``driver.run`` runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

CALM_LEAVES = ("scale", "shift", "power", "relu", "identity", "pair", "first_only", "product")
KINDS = ("forward", "pre", "backward", "backward_pre")
LEAVES = {
    "calm": (*CALM_LEAVES, *CALM_LEAVES, "mul_", "detach", "named"),
    "crowded": CALM_LEAVES,
    "late": CALM_LEAVES,
    "wild": (*CALM_LEAVES, "mul_", "detach", "dict", "list", "named", "number", "raise"),
    "failing": ("scale", "identity", "raise", "raise", "stop"),
}
PARTS = ("chain", "residual", "twice", "join", "join_pair", "keyword")

# What a hook returns, as names that the driver knows: first what is allowed, then what is odd, wrong or an error.
CALM_RETURNS = {
    "pre": ("none", "none", "tuple_double", "bare_double", "same", "pair"),
    "forward": ("none", "none", "double", "plus", "same"),
    "backward_pre": ("none", "none", "double", "same", "fill"),
    "backward": ("none", "none", "double", "same", "fill"),
    "tensor": ("none", "double", "plus"),
}
WILD_GRADS = (
    *("none", "double", "list", "nones", "nones", "first", "bare", "itself", "itself", "rows", "rows", "short", "long"),
    *("floats", "wrong_shape", "string", "number", "raise"),
)
WILD_RETURNS = {
    "pre": (
        *("none", "tuple_double", "bare_double", "pair", "list", "list_args", "empty", "string", "number"),
        *("detached", "wrong_shape", "one", "triple", "bad_kwargs", "extra_arg", "raise"),
    ),
    "forward": (
        *("none", "double", "same", "fresh", "fresh_grad", "string", "number", "list", "tuple", "dict", "detached"),
        *("wrong_shape", "raise", "raise"),
    ),
    "backward_pre": WILD_GRADS,
    "backward": WILD_GRADS,
    "tensor": ("none", "double", "plus", "const", "const_grad", "wrong_shape", "number", "tuple", "string", "raise"),
}

# What a hook, or a forward, does besides: (what, which hook).
Act = tuple[str, int]
ACTS = {
    "module": ("register", "remove"),
    "pre": ("register", "remove", "remove", "remove", "hook_arg", "retain_arg", "keep_arg", "inplace_arg"),
    "forward": (
        *("register", "remove", "remove", "remove", "hook_out", "retain_out", "keep_out", "keep_arg", "hook_arg"),
        *("inplace_out", "rehook_out"),
    ),
    "backward_pre": ("register", "remove", "hook_kept"),
    "backward": ("register", "remove", "hook_kept"),
    "tensor": ("remove_tensor_hook", "hook_arg", "hook_kept", "register", "remove"),
}

Step = tuple[object, ...]
SHAPES = ((2,), (2,), (1,), (1, 2), (2, 1))
POWERS = (2.0, 2.0, 3.0, 1.0, 0.0, -1.0, 0.5)


@dataclass(frozen=True)
class ModuleSpec:
    """``parts`` are indices of earlier modules, so a module can be used at several places."""

    kind: str
    parts: tuple[int, ...] = ()
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class HookSpec:
    """``target`` is the index of a module; None means a global hook."""

    kind: str
    target: int | None
    returns: str = "none"
    acts: tuple[Act, ...] = ()
    prepend: bool = False
    with_kwargs: bool = False
    always_call: bool = False
    at_start: bool = True


@dataclass(frozen=True)
class TensorHookSpec:
    returns: str = "none"
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Program:
    modules: tuple[ModuleSpec, ...]
    inputs: tuple[tuple[tuple[float, ...], bool], ...]  # values, requires_grad
    steps: tuple[Step, ...]
    shape: tuple[int, ...] = (2,)  # of every tensor
    power: float = 2.0  # of the modules that raise to a power
    hooks: tuple[HookSpec, ...] = ()
    tensor_hooks: tuple[TensorHookSpec, ...] = ()


def programs() -> st.SearchStrategy[Program]:
    return st.binary(min_size=LENGTH, max_size=LENGTH).map(decode)


LENGTH = 300  # bytes; after the last one every decision is the plainest


def decode(data: bytes) -> Program:
    """The program that ``data`` stands for; every sequence of bytes is one."""
    choices = _Choices(data)
    n_hooks = 2 + choices.below(7)
    # Programs have characters, because one in which anything may happen ends at its first error. In most, almost all
    # hooks return something sensible; "failing" is about always_call, with modules that raise; in "crowded" all hooks
    # are of one kind and nearly all on one module, so that they meet; "late" ones are registered while modules run.
    character = choices.pick(("calm", "calm", "wild", "failing", "crowded", "late"))
    modules = [_leaf(choices, character, n_hooks) for _ in range(1 + choices.below(3))]
    if len(modules) == 3 and choices.below(2):
        modules.append(ModuleSpec(choices.pick(PARTS), (choices.below(3), choices.below(3))))
    if len(modules) > 1:  # the last module is the one that is called: let it reach all others
        parts = tuple(choices.below(len(modules)) for _ in range(choices.below(2)))
        modules.append(ModuleSpec(choices.pick(PARTS), (*range(len(modules)), *parts)))
    inputs = [_input(choices) for _ in range(1 + choices.below(2))]
    crowd = choices.below(len(modules))  # the module that gets most of the hooks
    kinds = {"failing": ("forward", "pre"), "crowded": (choices.pick(KINDS),)}.get(character, KINDS)
    hooks = [_hook(choices, character, kinds, crowd, len(modules), n_hooks) for _ in range(n_hooks)]
    tensor_hooks = [_tensor_hook(choices, n_hooks) for _ in range(1 + choices.below(3))]
    steps = [_tensor_step(choices, len(modules), ("input", "weight")) for _ in range(choices.below(3))]
    steps.append(_call_backward(choices) if choices.below(4) else _call(choices))
    steps += [_step(choices, len(modules), n_hooks) for _ in range(1 + choices.below(6))]
    shape, power = choices.pick(SHAPES), choices.pick(POWERS)
    return Program(tuple(modules), tuple(inputs), tuple(steps), shape, power, tuple(hooks), tuple(tensor_hooks))


class _Choices:
    """Decisions, read from bytes."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, n: int) -> int:
        return next(self._bytes, 0) % n

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def sometimes(self) -> bool:
        return self.below(4) == 3


def _leaf(choices: _Choices, character: str, n_hooks: int) -> ModuleSpec:
    kind = choices.pick(LEAVES[character])
    return ModuleSpec(
        kind, acts=_acts(choices, "module", n_hooks) if character == "late" or choices.sometimes() else ()
    )


def _acts(choices: _Choices, kind: str, n_hooks: int) -> tuple[Act, ...]:
    number = choices.pick((0, 0, 0, 1, 1, 2))
    return tuple((choices.pick(ACTS[kind]), choices.below(n_hooks)) for _ in range(number))


def _input(choices: _Choices) -> tuple[tuple[float, ...], bool]:
    values = tuple(choices.pick((1.0, 2.0, -1.0, 0.5, 0.0, -2.0, 3.0)) for _ in range(2))
    return values, choices.pick((True, True, True, False))


def _returns(choices: _Choices, character: str, kind: str) -> str:
    often = character == "wild" or kind not in ("pre", "forward")  # an error in forward leaves nothing for backward
    wild = choices.below(2 if often else 5) == 1
    return choices.pick(WILD_RETURNS[kind] if wild else CALM_RETURNS[kind])


def _hook(
    choices: _Choices, character: str, kinds: Sequence[str], crowd: int, n_modules: int, n_hooks: int
) -> HookSpec:
    kind = choices.pick(kinds)
    target = crowd if character == "crowded" or choices.below(2) else choices.below(n_modules)
    with_kwargs = choices.below(2) == 1
    returns = _returns(choices, character, kind)
    if kind == "pre" and with_kwargs and returns in CALM_RETURNS["pre"]:
        returns = choices.pick(("none", "same", "pair"))
    return HookSpec(
        kind,
        target=None if choices.sometimes() else target,
        returns=returns,
        acts=_acts(choices, kind, n_hooks),
        prepend=choices.sometimes(),
        with_kwargs=with_kwargs,
        always_call=choices.sometimes() != (character == "failing"),
        at_start=character != "late" and choices.below(8) != 7,
    )


def _tensor_hook(choices: _Choices, n_hooks: int) -> TensorHookSpec:
    return TensorHookSpec(_returns(choices, "wild", "tensor"), _acts(choices, "tensor", n_hooks))


def _step(choices: _Choices, n_modules: int, n_hooks: int) -> Step:
    match choices.pick(("call_backward", "call_backward", "call", "backward", "tensor", "tensor", "hook", "within")):
        case "call":
            return _call(choices)
        case "backward":
            return _backward(choices)
        case "call_backward":
            return _call_backward(choices)
        case "tensor":
            return _tensor_step(choices, n_modules, ("output", "made", "output", "made", "input", "weight"))
        case "within":
            inner = choices.pick((_call, _call_backward))(choices)
            return ("within", choices.below(n_hooks), inner, choices.pick(("", "raise", "remove")))
        case _:
            return (choices.pick(("register", "remove")), choices.below(n_hooks))


def _tensor_step(choices: _Choices, n_modules: int, places: tuple[str, ...]) -> Step:
    return (
        choices.pick(("hook", "hook", "retain", "inplace", "hold")),
        choices.pick(places),
        choices.below(n_modules),
        choices.below(3),
    )


def _call(choices: _Choices) -> Step:
    which_input = choices.below(2)
    other = choices.pick(("", "", "", "input", "input", "float"))  # a second positional argument
    k = choices.pick((None, None, 2.0))  # a keyword argument
    mode = choices.pick(("",) * 11 + ("no_grad",))
    origin = choices.pick(("leaf", "made"))  # the input itself, or a non-leaf made from it
    return ("call", which_input, other, k, mode, origin)


def _call_backward(choices: _Choices) -> Step:
    between = _tensor_step(choices, 1, ("output", "made", "made")) if choices.below(2) else ()
    return ("call_backward", _call(choices), between, _backward(choices))


def _backward(choices: _Choices) -> Step:
    what = choices.pick(("first", "all") * 3 + ("kept", "both", "again", "direct"))
    return ("backward", what, choices.pick((False, True)))
