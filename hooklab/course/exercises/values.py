"""Values of an answer: how they are shown in an outcome, and whether they are the expected ones.

An answer's value may be anything: an object whose repr raises, a number of a million digits, a tensor without data.
"""

from __future__ import annotations

from typing import Any

import torch

from hooklab.course.exercises.faults import PASSING, cut
from hooklab.course.exercises.frames import kind_of

_MOST = 120  # characters of a value's own text
_SHOWN = 12  # numbers of a tensor that is shown whole


class Named:
    """Stands for an object of which only the kind is known."""

    def __init__(self, data: dict[str, Any]):
        shape = f" of shape {tuple(data['shape'])}" if "shape" in data else ""
        self.text = "nothing" if data["a"] == "nothing" else f"a {data['a']}{shape}"


def tensor_text(value: Any) -> str:
    """Return a short text for a value of an answer: small tensors as nested lists, large ones by dtype and shape."""
    try:
        return _text(value)
    except PASSING:
        raise
    except BaseException:
        return f"a {kind_of(value)} that cannot be shown"


def apart(wanted: Any, got: Any) -> dict[str, str]:
    """Return the texts of NotYet's `expected` and `got`; for large tensors, of a row in which they differ.

    Two values of different types that look alike are shown with their types.

    Example:
        >>> apart(torch.zeros(3, 5), torch.arange(15.0).view(3, 5))
        {'expected': 'at [0]: [0, 0, 0, 0, 0]', 'got': 'at [0]: [0, 1, 2, 3, 4]'}
    """
    if isinstance(wanted, torch.Tensor) and isinstance(got, torch.Tensor) and tensor_text(wanted) == tensor_text(got):
        place: list[int] = []
        while wanted.numel() > _SHOWN:
            number = next((n for n, pair in enumerate(zip(got, wanted, strict=True)) if not same(*pair)), 0)
            wanted, got = wanted[number], got[number]
            place.append(number)
        if place:
            return {"expected": f"at {place}: {tensor_text(wanted)}", "got": f"at {place}: {tensor_text(got)}"}
    told = {"expected": tensor_text(wanted), "got": tensor_text(got)}
    if told["expected"] == told["got"] and type(wanted) is not type(got):
        return {"expected": f"{told['expected']} ({kind_of(wanted)})", "got": f"{told['got']} ({kind_of(got)})"}
    return told


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        if value.numel() > _SHOWN or value.device.type == "meta":
            where = "" if value.device.type == "cpu" else f", on {value.device}"
            return f"a tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}{where}"
        return _rounded(value.detach().tolist())
    if isinstance(value, list | tuple) and len(value) <= 8:
        inner = ", ".join(tensor_text(one) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict) and len(value) <= 8:
        return "{" + ", ".join(f"{cut(repr(key), _MOST)}: {tensor_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Named):
        return value.text
    return cut(repr(value), _MOST) if isinstance(value, str | int | float | None) else f"a {kind_of(value)}"


def _rounded(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_rounded(one) for one in value) + "]"
    if isinstance(value, float):
        return f"{round(value, 4) + 0.0:g}"
    return str(value)


def same(a: Any, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    """Whether `a` is a tensor with the shape and, within the tolerance, the values of `b`; NaN never matches."""
    if not isinstance(a, torch.Tensor) or a.shape != b.shape or a.device != b.device or a.layout != b.layout:
        return False
    return torch.allclose(a.detach().to(b.dtype), b.detach(), rtol=tolerance, atol=tolerance)
