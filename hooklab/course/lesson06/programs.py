"""Random programs of hooks: data that can be drawn by chance, run with any module class, and read as code.

The programs of GROUPS are those of the lesson. The tests of `hooklab.mini` draw others, of more kinds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

METHODS = {
    "pre": "register_forward_pre_hook",
    "forward": "register_forward_hook",
    "backward": "register_full_backward_hook",
    "backward_pre": "register_full_backward_pre_hook",
}
# What a hook may do besides looking at what it gets: `running` knows each. "removes b" and "adds b" name another hook.
LOOKS = "looks"
KEEPS_TENSORS = {
    "pre": (LOOKS, "doubles", "returns_a_tuple"),
    "forward": (LOOKS, "adds_one", "triples", "returns_the_same"),
    "backward": (LOOKS, "doubles_each", "returns_the_same"),
}
REPLACES = {
    "pre": (*KEEPS_TENSORS["pre"], "returns_a_list", "returns_zero", "keeps_the_first", "returns_no_args"),
    "forward": (*KEEPS_TENSORS["forward"], "returns_a_pair", "returns_a_list", "returns_zero"),
}
CALLS = ("m(x)", "m(x, y)", "m(x, 5, y)")
BACKWARD = (
    "m(x).sum().backward()",
    "m(x, 5, y).sum().backward()",
    "(m(x) + m(x)).sum().backward()",
    "z = m(x).sum(); z.backward(retain_graph=True); (2 * z).backward()",
    "z = m(x).sum(); a.remove(); z.backward()",
)
OTHERS = ("m()", "with torch.no_grad(): m(x)")


@dataclass(frozen=True)
class Hook:
    """A hook of a program: its name, the kind of table it goes to, what it does, and how it is registered."""

    name: str
    kind: str
    does: str = LOOKS
    prepend: bool = False
    always_call: bool = False
    at_start: bool = True
    with_kwargs: bool = False
    everywhere: bool = False

    def __str__(self) -> str:
        """Return its registration as a line of Python; a comment, if it is for another hook to do."""
        what, _, other = self.does.partition(" ")
        arguments = [what + (f"({other})" if other else ""), *[f"{flag}=True" for flag in self.flags]]
        line = f"m.{METHODS[self.kind]}({', '.join(arguments)})"
        line = line.replace("m.register_", "register_module_") if self.everywhere else line
        return f"{self.name} = {line}" if self.at_start else f"# {self.name}, when it is added: {line}"

    @property
    def flags(self) -> list[str]:
        """The options with which it is registered."""
        return [flag for flag in ("prepend", "always_call", "with_kwargs") if getattr(self, flag)]


@dataclass(frozen=True)
class Program:
    """Hooks on a module that multiplies the sum of its arguments by 3, and lines of Python that use it."""

    hooks: tuple[Hook, ...]
    steps: tuple[str, ...]
    group: str = ""
    forward_raises: bool = False

    @property
    def made(self) -> list[str]:
        """How its module and its hooks are made, in lines of Python."""
        forward = "raises Boom" if self.forward_raises else "returns 3 * sum(args)"
        return [f"m = Module()   # forward {forward}", *map(str, self.hooks)]


def random_programs(each: int = 36, seed: int = 0, groups: Sequence[str] | None = None) -> list[Program]:
    """Draw programs, `each` of every group in GROUPS (or of some); the same ones for the same seed."""
    chance = random.Random(seed)
    drawn = [replace(draw(chance), group=group) for group, draw in GROUPS.items() for _ in range(each)]
    return [program for program in drawn if groups is None or program.group in groups]


def _look(chance: random.Random) -> Program:
    hooks = _hooks(chance, ("pre", "forward"), lambda kind: LOOKS)
    return Program(hooks, tuple(chance.choices((*CALLS, *OTHERS), k=2)))


def _replace(chance: random.Random) -> Program:
    hooks = _hooks(chance, ("pre", "forward"), lambda kind: chance.choice(REPLACES[kind]))
    return Program(hooks, tuple(chance.choices((*CALLS, "m()"), k=2)))


def _come_and_go(chance: random.Random) -> Program:
    names = "abcde"[: chance.randint(2, 5)]

    def does(kind: str) -> str:
        verb = chance.choice(("removes", "removes", "adds", *KEEPS_TENSORS[kind]))
        return f"{verb} {chance.choice(names)}" if verb in ("removes", "adds") else verb

    hooks = _hooks(chance, ("pre", "forward"), does, number=len(names))
    hooks = tuple(replace(hook, at_start=chance.random() < 0.7) for hook in hooks)
    later = (f"{chance.choice(names)}.remove()", f"with {chance.choice(names)}: m(x)", *CALLS)
    return Program(hooks, ("m(x)", *chance.choices(later, k=2), "m(x)"))


def _raise(chance: random.Random) -> Program:
    def does(kind: str) -> str:
        return chance.choice((*KEEPS_TENSORS[kind], "raises", "raises_once"))

    hooks = _hooks(chance, ("pre", "forward", "forward"), does, always=0.5)
    return Program(hooks, tuple(chance.choices(CALLS, k=2)), forward_raises=chance.random() < 0.4)


def _go_back(chance: random.Random) -> Program:
    def does(kind: str) -> str:
        return chance.choice(KEEPS_TENSORS[kind])

    hooks = _hooks(chance, ("pre", "forward", "backward", "backward"), does)
    return Program(hooks, tuple(chance.choices(BACKWARD, k=2)))


def _everything(chance: random.Random) -> Program:
    parts = [draw(chance) for draw in (_come_and_go, _raise, _go_back)]
    hooks = [replace(chance.choice(chance.choice(parts).hooks), name=name) for name in "abcde"]  # all that are named
    steps = [chance.choice(chance.choice(parts).steps) for _ in range(3)]
    return Program(tuple(hooks), tuple(steps), forward_raises=chance.random() < 0.1)


GROUPS: dict[str, Callable[[random.Random], Program]] = {
    "look": _look,
    "replace": _replace,
    "come and go": _come_and_go,
    "raise": _raise,
    "go back": _go_back,
    "everything": _everything,
}


def _hooks(
    chance: random.Random, kinds: Sequence[str], does: Callable[[str], str], number: int = 0, always: float = 0.0
) -> tuple[Hook, ...]:
    hooks = []
    for name in "abcde"[: number or chance.randint(2, 5)]:
        kind = chance.choice(kinds)
        always_call = kind == "forward" and chance.random() < always
        hooks.append(Hook(name, kind, does(kind), chance.random() < 0.25, always_call))
    return tuple(hooks)
