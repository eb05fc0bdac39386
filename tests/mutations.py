"""The small wrong changes of a Python file that `tests.mutants` tries, one at a time.

The numbers of a check's inputs stay as they are: those that stand in a call that makes a tensor (`torch.where` makes
one of two), a layer or a seed, in a call of a function with nothing but constants, in what a loop goes through, or in a
table at the top of a module. A check that draws 5 rows in place of 4 tells as much. A float so large that one more is
the same stays, too.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    path: Path
    line: int
    what: str
    make: Callable[[], str]
    lines: range | None = None  # of its statement; None where it runs at import, or its result is kept for later

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.what}"

    @property
    def source(self) -> str:
        """The changed file. It is made where it is asked for: a sample is a small share of all."""
        return self.make()

    def is_run_by(self, ran: frozenset[tuple[str, int]]) -> bool:
        """Whether lines that ran, each with its file, are of this statement; of this file, where its lines are None."""
        own = {line for path, line in ran if path == str(self.path)}
        return bool(own) if self.lines is None else not own.isdisjoint(self.lines)

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)


SWAPS: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
UNWRAPPED = ("list", "tuple", "set", "dict", "sorted", "reversed")  # f(x) -> x
LEFT_OUT = ("detach", "clone", "copy", "values")  # x.f() -> x


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], ast.AST | None]]]:
    """Yield (what, how) for each wrong change of one node; `how` makes the new node out of a twin of it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield "comparison", lambda twin: _with(twin, ops=[SWAPS[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            yield type(op).__name__.lower(), lambda twin: _with(twin, op=SWAPS[type(op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield "no not", lambda twin: twin.operand
        case ast.Constant(value=bool(value)):
            yield f"{value}", lambda twin: _with(twin, value=not value)
        case ast.Constant(value=int(value) | float(value)) if value + 1 != value:  # else a very large one
            yield f"{value} + 1", lambda twin: _with(twin, value=value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            if not isinstance(node, ast.While):
                yield "always", lambda twin: _with(twin, test=ast.Constant(True))
            yield "never", lambda twin: _with(twin, test=ast.Constant(False))
        case ast.Return(value=value) if value is not None and not _is_false(value):
            yield "return None", lambda twin: _with(twin, value=ast.Constant(None))
        case ast.AugAssign(target=target, value=value):
            yield "left out", lambda twin: ast.Pass()
            if isinstance(target, ast.Attribute) and not isinstance(value, ast.Constant):  # no number changes in place
                yield "no change in place", _plain_assignment
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield "left out", lambda twin: ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "left out", lambda twin: ast.Pass()
        case ast.ExceptHandler(type=ast.Name(id="Exception")):
            yield "every BaseException", lambda twin: _with(twin, type=ast.Name("BaseException", ast.Load()))
        case ast.Call(func=ast.Name(id=name), args=[_], keywords=[]) if name in UNWRAPPED:
            yield f"no {name}()", lambda twin: twin.args[0]
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in LEFT_OUT:
            yield f"no .{name}()", lambda twin: twin.func.value


def _with(node: ast.AST, **fields: object) -> ast.AST:
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def _plain_assignment(twin: ast.AST) -> ast.AST:
    assert isinstance(twin, ast.AugAssign)
    read = copy.deepcopy(twin.target)
    for part in ast.walk(read):
        if hasattr(part, "ctx"):
            part.ctx = ast.Load()
    return ast.Assign([twin.target], ast.BinOp(read, twin.op, twin.value))


def _is_false(node: ast.AST) -> bool:
    """Whether a returned value is None, or False, for which None does as well."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def mutants_of(path: Path) -> list[Mutant]:
    """Return every mutant of a file; the texts of messages stay as they are."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_alone = {id(part) for node in ast.walk(tree) for whole in _left_alone(node) for part in ast.walk(whole)}
    found, lines = [], _lines_of_statements(tree)
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in left_alone:
            continue
        for what, how in changes(node):
            line = ast.unparse(node).splitlines()[0]
            make = functools.partial(_changed, tree, number, how)
            place = path, getattr(node, "lineno", 0)
            found.append(Mutant(*place, f"{what}: `{line}`", make, lines.get(id(node))))
    return found


def _changed(tree: ast.AST, number: int, how: Callable[[ast.AST], ast.AST | None]) -> str:
    """Return the source of a tree in which the node of this number is another one."""
    changed = copy.deepcopy(tree)
    twin = list(ast.walk(changed))[number]
    return ast.unparse(ast.fix_missing_locations(_Replace(twin, how(twin)).visit(changed)))


def _lines_of_statements(tree: ast.AST) -> dict[int, range]:
    """Return the lines of the innermost statement round each node in a function that keeps no result for later."""
    found: dict[int, range] = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or any("cache" in ast.unparse(a) for a in function.decorator_list):
            continue
        for statement in [one for line in function.body for one in ast.walk(line) if isinstance(one, ast.stmt)]:
            lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            found |= {id(part): lines for part in ast.walk(statement)}
    return found


def _left_alone(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that only a reader sees (annotations, and what guards against faults of the code itself),
    and the numbers of inputs.
    """
    parts = [getattr(node, name, None) for name in ("annotation", "returns")] + [*inputs(node)]
    if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
        parts.append(node.value)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        parts.append(node)
    return [part for part in parts if isinstance(part, ast.AST)]


MAKERS = (
    *("tensor", "as_tensor", "zeros", "ones", "full", "empty", "eye", "arange", "linspace"),
    *("rand", "randn", "randint", "randperm", "manual_seed", "Generator", "zip", "linear", "where"),
)


def inputs(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the numbers of a node that are inputs of a check, as the docstring of this file says."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
            name in MAKERS or _is_layer(node.func) or (isinstance(node.func, ast.Name) and all(map(_fixed, node.args)))
        ):
            made_of = [*node.args, *(keyword.value for keyword in node.keywords)]
        case ast.For(iter=source) | ast.comprehension(iter=source):
            made_of = [source]
        case ast.Module(body=lines):
            made_of = [line.value for line in lines if isinstance(line, ast.Assign | ast.AnnAssign) and line.value]
            made_of = [value for value in made_of if not isinstance(value, ast.Constant)]
            made_of += [
                part for value in made_of if isinstance(value, ast.List) for row in value.elts for part in _args(row)
            ]
        case _:
            made_of = []
    for value in made_of:
        yield from _numbers(value)


def _args(row: ast.AST) -> list[ast.expr]:
    return row.args if isinstance(row, ast.Call) else []


def _is_layer(function: ast.AST) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "nn"


def _fixed(value: ast.AST) -> bool:
    """Whether an argument is made of numbers, and names of constants."""
    match value:
        case ast.Name(id=name):
            return name.isupper()
        case ast.Call(func=ast.Name(), args=parts):
            return all(map(_fixed, parts))
        case _:
            return all(_fixed(part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))


def _numbers(value: ast.AST) -> Iterator[ast.AST]:
    """Yield the numbers that stand in a literal, and not in something that is computed."""
    match value:
        case ast.Constant(value=int() | float()) if not isinstance(value.value, bool):
            yield value
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _numbers(part)
        case ast.UnaryOp(operand=inner) | ast.Starred(value=inner) | ast.Subscript(value=ast.Name(), slice=inner):
            yield from _numbers(inner)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST | None:
        return self.new if node is self.old else super().generic_visit(node)
