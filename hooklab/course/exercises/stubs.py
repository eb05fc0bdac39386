"""Whether an answer is still the exercise's stub."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any


def is_stub(answer: Any) -> bool:
    """Whether a function, or a method of a class, still consists of the stub's line alone."""
    try:
        answer = answer.func if isinstance(answer, functools.partial) else answer
        if inspect.isclass(answer):  # a method may be empty: only the stub's own line counts
            definitions = [node for value in vars(answer).values() for node in _definitions(value)]
            return any(_raises_not_implemented(_without_docstring(node.body)) for node in definitions)
        definitions = _definitions(answer)
    except Exception:
        return False  # a very odd object: the call will tell
    return bool(definitions) and _body_is_stub(definitions[0].body)


def has_stub_line(answer: type) -> bool:
    """Whether the stub's line stands anywhere in a method of the class."""
    nodes = (node for value in vars(answer).values() for one in _definitions(value) for node in ast.walk(one))
    return any(isinstance(node, ast.stmt) and _raises_not_implemented([node]) for node in nodes)


def _definitions(function: Any) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the definition of a function and those in it; none if its source is not at hand, or for anything else.

    A class is read method by method: to find the source of a whole class, Python may parse the file that it is in.
    """
    function = function.fget if isinstance(function, property) else getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except Exception:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def has_source(answer: Any) -> bool:
    """Whether Python finds the lines of an answer."""
    try:
        inspect.getsource(answer)
    except Exception:
        return False
    return True


def _body_is_stub(body: list[ast.stmt]) -> bool:
    rest = _without_docstring(body)
    empty = all(isinstance(line, ast.Pass) or ast.unparse(line) == "..." for line in rest)
    return empty or _raises_not_implemented(rest)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _raises_not_implemented(body: list[ast.stmt]) -> bool:
    if len(body) != 1 or not isinstance(body[0], ast.Raise) or body[0].exc is None:
        return False
    return "NotImplementedError" in ast.unparse(body[0].exc)
