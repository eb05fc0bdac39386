"""Torch's own `_call_impl`, in parts: the lines that matter, taken from the torch that is installed."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import NamedTuple

from torch import nn


class Part(NamedTuple):
    """A part of the function: its title, words of its first line, and how many lines to show."""

    title: str
    first: str
    lines: int


PARTS = [
    Part("no hooks at all: straight to forward", "if not (self._backward_hooks", 4),
    Part("a pre-hook's turn", "args_result = hook(self, args)", 5),
    Part("the inputs cross", "bw_hook = None", 4),
    Part("forward", "result = forward_call(*args, **kwargs)", 1),
    Part("the forward hooks: both tables, copied into a tuple", "for hook_id, hook in (", 4),
    Part("a forward hook's turn", "if hook_result is not None:", 2),
    Part("the output crosses", "result = bw_hook.setup_output_hook(result)", 1),
    Part("the legacy hook, on grad_fn", "grad_fn = var.grad_fn", 4),
    Part("after an error: the hooks that always run", "for hook_id, hook in self._forward_hooks.items():", 2),
    Part("and the first error reaches the caller", "# raise exception raised in try block", 2),
]


def show(*numbers: int) -> None:
    """Print these parts, counted from 1, each under its title."""
    for number in numbers:
        part = PARTS[number - 1]
        print(f"# {number} · {part.title}\n{excerpt(part)}\n")


def show_whole() -> None:
    """Print the whole function, with each part's number in the margin."""
    lines = source_lines()
    margin = {first_line(part, lines): str(number) for number, part in enumerate(PARTS, start=1)}
    for place, line in enumerate(textwrap.dedent("\n".join(lines)).split("\n")):
        print(f"{margin.get(place, ''):>2} {line}".rstrip())


def excerpt(part: Part) -> str:
    """Return the lines of a part, without their common indentation and without comments for type checkers."""
    lines = source_lines()
    start = first_line(part, lines)
    text = textwrap.dedent("\n".join(lines[start : start + part.lines]))
    return re.sub(r"  # type: ignore\S*( \S+])?", "", text)


def first_line(part: Part, lines: list[str]) -> int:
    """Return the number of a part's first line, after the lines of all earlier parts."""
    start = 0
    for one in PARTS[: PARTS.index(part) + 1]:
        start = next(number for number in range(start, len(lines)) if one.first in lines[number])
    return start


def source_lines() -> list[str]:
    """Return the lines of `nn.Module._call_impl`."""
    return inspect.getsource(nn.Module._call_impl).split("\n")
