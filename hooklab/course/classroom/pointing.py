"""What in a student's cells the teacher should look at: names that no exercise needs. Nothing runs here."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from IPython.core.inputtransformer2 import TransformerManager

from hooklab.course.classroom.reading import Cell

UNSEEN = "no check has seen this answer"
# What walks from an answer to the grader's own frames and variables: no "correct" counts that comes with it.
REACHING = {"_getframe", "cell_contents", "cr_frame", "currentframe", "f_back", "f_globals", "f_locals"}
REACHING |= {"get_objects", "get_referrers", "gi_frame", "setprofile", "settrace", "tb_frame", "walk_stack", "walk_tb"}
_NAMES = REACHING | {"__builtins__", "__closure__", "__code__", "__globals__", "__subclasses__"}
_NAMES |= {"__eq__", "__torch_function__", "__torch_dispatch__", "__instancecheck__", "as_subclass"}  # to pretend
_CALLED = {"__import__", "compile", "eval", "exec", "globals"}
_MODULES = {"builtins", "ctypes", "gc", "importlib", "inspect", "os", "shutil", "signal", "socket", "subprocess", "sys"}
_COURSE = ("hooklab.course", "tests", "solutions")


def pointed_out(cells: Sequence[Cell], given: Sequence[str]) -> dict[int, list[str]]:
    """Return, by cell number, the names that a teacher should look at, in cells that are not the lesson's own.

    `given` are the texts of the lesson's cells; what these import, students may import as well. But what the page runs
    while an exercise is open, `ready` in `yours_or(id, yours, ready)`, is no answer.
    """
    usual = {"hooklab.course.graded"}  # which nbgrader's graded cells import
    usual |= {module for text in given for node in _nodes(text) for module in _imported(node)}
    ready = {name for text in given for node in _nodes(text) for name in _ready(node)}
    found = {cell.number: set(_odd(cell.text, usual, ready)) for cell in cells if cell.text not in given}
    return {number: sorted(names) for number, names in found.items() if names}


def _odd(text: str, usual: set[str], ready: set[str]) -> Iterator[str]:
    for node in _nodes(text):
        for module in _imported(node) - usual:
            if module.split(".")[0] in _MODULES or module.startswith(_COURSE):
                yield module[:200]
        match node:
            case ast.Attribute() if ast.unparse(node) in ready:
                yield ast.unparse(node)
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) if name in _NAMES:
                yield name
            case ast.Name(name) if name in _NAMES | _CALLED:
                yield name


def _ready(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name("yours_or"), args=[_, _, ready]):
            yield ast.unparse(ready.func if isinstance(ready, ast.Call) else ready)


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module} if isinstance(node, ast.ImportFrom) and node.module else set()


def _nodes(text: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(TransformerManager().transform_cell(text))))  # type: ignore[no-untyped-call]
    except Exception:  # what is not Python does not run either
        return []
