"""Is what a layer puts out only a part of what flows on? Read from the source of the module around it.

In a residual block, ``x + self.branch(x)``, a layer of the branch changes one summand; the other goes past it. This
is told from the text of ``forward``, statement by statement; nothing runs. Where a source is missing, or the sum is
made in a way that this reading does not follow, there is no answer, which counts as no.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import threading
from collections.abc import Iterable

_SUMS = {"add", "add_", "sub", "sub_", "lerp", "lerp_"}
_JOINS = {"cat", "concat", "concatenate", "stack", "sum"}  # of a list
# Python 3.11 counts in one place for all threads how deep a parse is: two at once may raise SystemError
# ("AST constructor recursion depth mismatch").
_parsing = threading.Lock()


@functools.lru_cache(maxsize=4096)
def goes_past(parent: type, child: str) -> bool:
    """Does ``parent.forward`` add to, or join with, the output of ``self.child`` what did not go through it?"""
    forward = _definition(getattr(parent, "forward", None))
    if forward is None:
        return False
    helpers = {
        name: method
        for name in _methods_called(forward)
        if (method := _definition(getattr(parent, name, None))) is not None and _mentions(method, child)
    }
    for method in (forward, *helpers.values()):
        reading = _Reading(_own_name(method), {child, *helpers}, _local_names(method))
        reading.visit_all(method.body)
        if reading.found:
            return True
    return False


class _Reading(ast.NodeVisitor):
    """Follows, through assignments, which local names hold something that went through one of ``self``'s attributes."""

    def __init__(self, own_name: str, attributes: set[str], local_names: set[str]) -> None:
        self.own_name = own_name
        self.attributes = attributes
        self.local_names = local_names
        self.went_through: set[str] = set()
        self.found = False

    def touches(self, node: ast.AST) -> bool:
        return any(
            (isinstance(part, ast.Name) and part.id in self.went_through)
            or _attribute(part, self.own_name) in self.attributes
            for part in ast.walk(node)
        )

    def is_other(self, node: ast.AST) -> bool:
        """Does it hold a local value, and nothing that went through? (``self.bias`` and numbers are no features.)"""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return bool(names & self.local_names) and not self.touches(node)

    def meet(self, parts: Iterable[ast.AST]) -> None:
        parts = list(parts)
        if any(map(self.touches, parts)) and any(map(self.is_other, parts)):
            self.found = True

    def visit_all(self, statements: Iterable[ast.AST]) -> None:
        for statement in statements:
            self.visit(statement)

    def visit_either(self, *branches: list[ast.stmt]) -> None:
        """Of several ways that the forward may go, what went through in one of them may have."""
        before, after = set(self.went_through), set()
        for branch in branches:
            self.went_through = set(before)
            self.visit_all(branch)
            after |= self.went_through
        self.went_through = after

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.visit_either(node.body, node.orelse)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self.touches(node):
            self.went_through.add(node.name)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            self.meet([node.left, node.right])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if isinstance(node.func, ast.Attribute) and name in _SUMS:
            given = [*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg != "alpha")]
            self.meet([*given, node.func.value] if len(given) == 1 else given)
        elif name in _JOINS and node.args and isinstance(node.args[0], ast.List | ast.Tuple):
            self.meet(node.args[0].elts)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.assign(target, self.touches(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.assign(node.target, self.touches(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.op, ast.Add | ast.Sub):
            self.meet([node.target, node.value])
        if self.touches(node.value):
            self.assign(node.target, True)

    def visit_For(self, node: ast.For) -> None:
        self.assign(node.target, self.touches(node.iter))
        self.visit_all(node.body + node.orelse)

    def assign(self, target: ast.AST, through: bool) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                (self.went_through.add if through else self.went_through.discard)(part.id)


def _definition(function: object) -> ast.FunctionDef | None:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))  # type: ignore[arg-type]
        with _parsing:
            tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError, ValueError, SystemError):  # the last: somebody else's thread parses too
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _own_name(function: ast.FunctionDef) -> str:
    """What the function calls ``self``."""
    named = [*function.args.posonlyargs, *function.args.args]
    return named[0].arg if named else ""


def _attribute(node: ast.AST, own_name: str) -> str | None:
    """``"fc"`` for ``self.fc``, else None."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own_name
    return node.attr if is_own else None  # type: ignore[attr-defined]


def _methods_called(function: ast.FunctionDef) -> set[str]:
    own_name = _own_name(function)
    called = (_attribute(node.func, own_name) for node in ast.walk(function) if isinstance(node, ast.Call))
    return {name for name in called if name is not None}


def _mentions(function: ast.FunctionDef, attribute: str) -> bool:
    own_name = _own_name(function)
    return any(_attribute(node, own_name) == attribute for node in ast.walk(function))


def _local_names(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    mine = {one.arg for one in named[1:]}  # all but self
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return mine | stored
