"""The statements of a notebook's cells, and which of them an answer needs.

An exercise is graded from the student's definitions: the answer, and what the names in it stand for, to any depth.
What else the notebook does (its figures, its trainings) is not run.
"""

from __future__ import annotations

import ast
import functools
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hooklab.course.classroom.reading import Cell

# What is IPython's alone: a line that is a command or asks for help, `x?`, and what `files = !ls` puts into a name.
_MAGIC = re.compile(r"^([ \t]*)(?:[%!?].*|[\w.]+\?\??[ \t]*)$", re.M)
_INTO_A_NAME = re.compile(r"^([ \t]*[\w., ]+=[ \t]*)[%!].*$", re.M)
_RUNS_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun")
# What a notebook shows to its reader, and a grader does not run again.
_SHOWN = frozenset(["check", "predict", "reveal", "progress", "display"])


@dataclass(frozen=True)
class Statement:
    """A statement at the top of a cell, with the names that it defines and those it changes."""

    cell: Cell
    node: ast.stmt
    defines: frozenset[str]
    changes: frozenset[str]

    @functools.cached_property
    def uses(self) -> set[str]:
        """The notebook's names that it needs: those of its own scope, and in functions those that are not local."""
        found: set[str] = set()
        try:
            tables = [symtable.symtable(ast.unparse(self.node), "<cell>", "exec")]
        except (SyntaxError, RecursionError):  # what Python's compiler will refuse as well
            return found
        for table in tables:
            is_top = table.get_type() == "module"
            found |= {
                one.get_name() for one in table.get_symbols() if one.is_global() or (is_top and one.is_referenced())
            }
            tables += table.get_children()
        return found

    @property
    def is_shown(self) -> bool:
        """Whether it does nothing but show: a check, a prediction."""
        value = self.node.value if isinstance(self.node, ast.Expr) else None
        return isinstance(value, ast.Call) and ast.unparse(value.func).removeprefix("hooklab.") in _SHOWN


def read_statements(cells: Sequence[Cell]) -> tuple[list[Statement], dict[int, str]]:
    """Return the statements of all cells, and by cell number why a cell is not Python."""
    statements, faults = [], {}
    for cell in cells:
        read = _read(cell.text)
        if isinstance(read, str):
            faults[cell.number] = read
        else:
            statements += [Statement(cell, *one) for one in read]
    return statements, faults


_Names = frozenset[str]


@functools.cache  # most cells of a notebook are the lesson's own: the server has read these before it makes children
def _read(text: str) -> list[tuple[ast.stmt, _Names, _Names]] | str:
    """Return a cell's statements with the names that each defines and changes, or why it is not Python."""
    try:
        return [(node, *_names(node)) for node in ast.parse(without_magics(text)).body]
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg}, at line {error.lineno}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: this is too deep or too odd for Python's parser"


def without_magics(text: str) -> str:
    """Return a cell's text as Python: a line that is IPython's alone becomes `pass`, at its place.

    Example:
        >>> without_magics("%matplotlib inline\\nfiles = !ls\\nx = 1")
        'pass\\nfiles = None\\nx = 1'
    """
    if text.startswith("%%") and not text.startswith(_RUNS_PYTHON):
        return ""
    try:
        ast.parse(text)  # such as a string, or a formula that goes on in a line with %
    except SyntaxError:
        return _INTO_A_NAME.sub(r"\1None", _MAGIC.sub(r"\1pass", text))
    except (ValueError, RecursionError, MemoryError):
        pass
    return text


def needed(statements: Sequence[Statement], answer: str, before: int, given: Sequence[Statement]) -> list[Statement]:
    """Return the statements that define `answer` and what it uses, in their order.

    Args:
        statements: those of the student's notebook.
        answer: the name of the answer.
        before: the number of the cell with the check. What a name stands for there is what was defined last before it;
            a definition behind it counts where there is no other, as in a notebook whose cells were moved.
        given: the lesson's own statements, for names that the student's notebook does not define (any more).
    """
    wanted, seen, chosen = [answer], {answer}, set()
    everything = [*given, *statements]
    while wanted:
        name = wanted.pop()
        for one in [*_defining(name, statements, before, given), *_stars(everything)]:
            if id(one) not in chosen:
                chosen.add(id(one))
                new = (one.uses | one.changes) - seen
                seen |= new
                wanted += sorted(new)
    return [one for one in everything if id(one) in chosen]


def _defining(
    name: str, statements: Sequence[Statement], before: int, given: Sequence[Statement]
) -> Iterator[Statement]:
    for source in ([one for one in statements if one.cell.number < before], statements, given):
        whole = [index for index, one in enumerate(source) if name in one.defines]
        if whole:
            last = _last_with_code(source, whole)
            yield source[last]
            if not isinstance(
                source[last].node, ast.Import | ast.ImportFrom
            ):  # what a module's functions do, is theirs
                yield from (one for one in source[last + 1 :] if name in one.changes)
            return


def _last_with_code(source: Sequence[Statement], places: Sequence[int]) -> int:
    """The last definition that is not the exercise's stub: a copied cell may stand below the one that was filled."""
    filled = [place for place in places if not is_stub(source[place].node)]
    return (filled or places)[-1]


def is_stub(node: ast.stmt) -> bool:
    """Whether a definition still ends in the lesson's `raise NotImplementedError()` and does nothing else."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return False
    bodies = [one.body for one in ast.walk(node) if isinstance(one, ast.FunctionDef)]
    return any(isinstance(body[-1], ast.Raise) and _is_bare(body[:-1]) for body in bodies if body)


def _is_bare(body: Sequence[ast.stmt]) -> bool:
    return all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in body)


def _stars(statements: Sequence[Statement]) -> list[Statement]:
    """Statements such as `from torch.nn import *`, which may define any name."""
    return [one for one in statements if "*" in one.defines]


def _names(node: ast.stmt) -> tuple[_Names, _Names]:
    """Return the names that a statement defines, and those of what it changes."""
    defines, changes = set(), set()
    for one in _own_nodes(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defines.add(one.name)
        elif isinstance(one, ast.Import | ast.ImportFrom):
            defines |= {alias.asname or alias.name.split(".")[0] for alias in one.names}
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            defines.add(one.id)
        elif isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store):
            changes |= _root(one)
    if isinstance(node, ast.AugAssign):
        changes, defines = changes | defines, set()
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # such as `registry.update(…)`
        changes |= _root(node.value.func) if isinstance(node.value.func, ast.Attribute) else set()
    return frozenset(defines), frozenset(changes)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that run in the notebook's own scope."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.comprehension | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from _own_nodes(child)


def _root(node: ast.AST) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
