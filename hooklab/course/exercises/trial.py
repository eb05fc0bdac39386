"""Trial: one run of a learner's answer, and the words a check has for what it found.

`trial.call(...)` runs the answer and survives whatever it does. Hooks that the answer leaves on its arguments are
removed and noted; so are arguments that it changed in place.
"""

from __future__ import annotations

import inspect
import site
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hooklab.course.exercises.guards import remove_new_hooks, snapshot_hooks

_NOT_THE_LEARNERS = tuple(
    str(Path(folder).resolve())
    for folder in {
        str(Path(__file__).parents[2]),
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
    }
)


class NotYet(Exception):
    """An answer falls short: what is missing, what was expected, what came, and the likely misconception."""

    def __init__(self, missing: str, *, expected: object = None, got: object = None, likely: str | None = None):
        super().__init__(missing)
        self.missing = missing
        pairs = (("expected", expected), ("got", got), ("likely", likely))
        self.details = tuple((label, str(text)) for label, text in pairs if text is not None)


class StillTheStub(Exception):
    """The answer reached the line `raise NotImplementedError()`."""


class Trial:
    """One trial of an answer. Checks use `answer`, `call` and the words below; notes gather on the way."""

    def __init__(self, answer: Any):
        self.answer = answer
        self.notes: list[str] = []
        self.faults: list[NotYet] = []

    @property
    def name(self) -> str:
        """The answer's name, as the learner wrote it."""
        return getattr(self.answer, "__name__", type(self.answer).__name__)

    def call(self, *args: Any, may_change: bool = False, may_hook: bool = False, **kwargs: Any) -> Any:
        """Call the answer with these arguments and return what it returns.

        Raises NotYet when the answer cannot be called like that or raises. Hooks found on the arguments afterwards
        are a fault unless `may_hook`; a tensor argument with other values than before is one unless `may_change`.
        """
        with self.watch(*args, *kwargs.values(), may_change=may_change, may_hook=may_hook):
            return self.run(self.answer, *args, **kwargs)

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function of the learner's; an exception becomes NotYet with its type, message and line."""
        name = getattr(function, "__name__", self.name)
        _refuse_wrong_signature(function, name, args, kwargs)
        try:
            return function(*args, **kwargs)
        except NotImplementedError as error:
            if _raised_by_library(error):
                raise learners_error(error, name) from error
            raise StillTheStub from error
        except (Exception, SystemExit) as error:
            raise learners_error(error, name) from error

    @contextmanager
    def watch(self, *objects: Any, may_change: bool = False, may_hook: bool = False) -> Iterator[None]:
        """Watch tensors and modules while a learner's code runs; new hooks are removed and noted at the end."""
        before = snapshot_hooks(objects)
        values = _values(objects)
        try:
            yield
        finally:
            if not may_hook:
                for description in remove_new_hooks(objects, before):
                    self.faults.append(
                        NotYet(
                            f"your code left a hook behind: {description} (it was removed)",
                            expected="no hook of yours is left when your function returns",
                            likely="lost handle: keep what register_… returns and call remove(), or use `with`",
                        )
                    )
            if not may_change:
                for name in _changed(objects, values):
                    self.faults.append(
                        NotYet(
                            f"your code changed {name} in place",
                            expected="the values that you are given stay as they were",
                            likely="in-place change: `x *= 2` and `x.mul_(2)` write into x, `x * 2` makes a new tensor",
                        )
                    )


def learners_error(error: BaseException, name: str) -> NotYet:
    """Describe an exception of the learner's code: type, message and the last line that is the learner's own."""
    first = first_words(error)
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    where = learners_line(error)
    missing = f"{name} raised {what}" if where is None else f"{name} raised {what}, {where}"
    return NotYet(missing, expected="no exception")


def first_words(error: BaseException, most: int = 240) -> str:
    """Return the first line of an exception's message, cut where it is very long."""
    first = (str(error).splitlines() or [""])[0]
    return first if len(first) <= most else f"{first[:most]} …"


def learners_line(error: BaseException) -> str | None:
    """Return "at line 4: `h.remove()`" for the innermost frame that is neither hooklab's nor a library's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    frames = [f for f in frames if not f.filename.startswith("<frozen")]
    if not frames:
        return None
    last = frames[-1]
    return f"at line {last.lineno}: `{last.line}`" if last.line else f"at line {last.lineno}"


def _raised_by_library(error: BaseException) -> bool:
    """Whether the innermost frame is not the learner's: torch raises NotImplementedError for a missing kernel."""
    # an operator of torch's is no frame of its own: there the learner's line is the last, and does not say `raise`
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename.startswith(_NOT_THE_LEARNERS) or bool(last.line and "raise" not in last.line)


def tensor_text(value: Any, digits: int = 4) -> str:
    """Return a short text for a value of an answer: small tensors as nested lists, large ones by dtype and shape."""
    if isinstance(value, torch.Tensor):
        if value.numel() > 12:
            return f"a tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
        return _rounded(value.detach().tolist(), digits)
    if isinstance(value, list | tuple) and len(value) <= 8:
        inner = ", ".join(tensor_text(one, digits) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict) and len(value) <= 8:
        return "{" + ", ".join(f"{key!r}: {tensor_text(one, digits)}" for key, one in value.items()) + "}"
    text = repr(value) if isinstance(value, str | int | float | bool | type(None)) else f"a {type(value).__name__}"
    return text if len(text) <= 120 else text[:117] + "..."


def expect_tensor(value: Any, what: str, shape: Sequence[int] | None = None) -> torch.Tensor:
    """Return `value` if it is a tensor (of this shape), else raise NotYet that says what came instead."""
    wanted = "a tensor" if shape is None else f"a tensor of shape {tuple(shape)}"
    if value is None:
        raise NotYet(
            f"{what} is None", expected=wanted, got="None", likely="forgotten return, or a .grad that was never stored"
        )
    if not isinstance(value, torch.Tensor):
        raise NotYet(f"{what} is not a tensor", expected=wanted, got=f"{tensor_text(value)} ({type(value).__name__})")
    if shape is not None and tuple(value.shape) != tuple(shape):
        raise NotYet(f"{what} has another shape", expected=wanted, got=f"shape {tuple(value.shape)}")
    return value


def same(a: Any, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    """Whether `a` is a tensor with the shape and, within the tolerance, the values of `b`."""
    if not isinstance(a, torch.Tensor) or a.shape != b.shape:
        return False
    return torch.allclose(a.detach().to(b.dtype), b.detach(), rtol=tolerance, atol=tolerance)


def _refuse_wrong_signature(function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin without a signature: calling it will tell
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise NotYet(
            f"{name} cannot be called the way the exercise says: {error}",
            expected=f"{len(args) + len(kwargs)} argument{'s' if len(args) + len(kwargs) != 1 else ''}",
            got=f"{name}{signature}",
        ) from error


def _values(objects: Sequence[Any]) -> list[list[torch.Tensor]]:
    return [[tensor.detach().clone() for _, tensor in _tensors(one)] for one in objects]


def _changed(objects: Sequence[Any], before: list[list[torch.Tensor]]) -> list[str]:
    names = []
    for one, old_values in zip(objects, before, strict=True):
        now = _tensors(one)
        if len(now) != len(old_values):
            continue
        for (name, new), old in zip(now, old_values, strict=True):
            if new.shape != old.shape or not torch.equal(new.detach(), old):
                names.append(name)
    return names


def _tensors(one: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors whose values an answer must leave alone: tensor arguments and parameters, not buffers."""
    if isinstance(one, torch.Tensor):
        return [("a tensor that it was given", one)]
    if isinstance(one, nn.Module):
        return [(f"the parameter {name!r}", parameter) for name, parameter in one.named_parameters()]
    if isinstance(one, list | tuple):
        return [pair for item in one for pair in _tensors(item)]
    if isinstance(one, dict):
        return [pair for item in one.values() for pair in _tensors(item)]
    return []


def _rounded(value: Any, digits: int) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_rounded(one, digits) for one in value) + "]"
    if isinstance(value, float):
        return f"{round(value, digits) + 0.0:g}"
    return str(value)
