"""What answers did, as plain data that can be stored: how it is written, compared, and read back.

A record consists of JSON types. Numbers keep six digits and are compared with a tolerance, so a record made on one
processor holds on any other. Lists and tuples count as equal, and so do 3 and 3.0, numpy's numbers and Python's.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hooklab.course.exercises.exercise import COURSE
from hooklab.course.exercises.faults import PASSING
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.values import Named

RTOL, ATOL = 1e-4, 1e-5
_MOST_NUMBERS = 4096  # of a tensor; larger ones are recorded by dtype and shape alone


class Claim(NamedTuple):
    """What must hold if the result itself cannot be stored, such as an accuracy after training.

    Only `holds` is recorded and compared; `expected` and `got` are what the learner reads.
    """

    holds: bool
    expected: str
    got: str


def plain(value: Any) -> Any:
    """Return a value of an answer as plain data; for an object of an unknown kind, its type's name.

    Example:
        >>> plain((1, torch.tensor([1.0, 2.0])))
        [1, {'tensor': [1.0, 2.0], 'shape': [2], 'dtype': 'float32'}]
    """
    try:
        return _plain(value)
    except PASSING:
        raise
    except BaseException:  # an object as odd as any answer may be
        return {"a": kind_of(value)}


def _plain(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Claim):
        return {"holds": bool(value.holds)}
    if isinstance(value, Tensor):
        return _plain_tensor(value)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return _digits(float(value))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted((plain(one) for one in value), key=str)}
    if isinstance(value, Mapping):
        return {"dict": sorted(([plain(key), plain(one)] for key, one in value.items()), key=lambda pair: str(pair[0]))}
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    return {"a": kind_of(value)}


def _plain_tensor(value: Tensor) -> Any:
    with torch._C.DisableTorchFunctionSubclass():  # a subclass of the learner's may answer for itself
        value = Tensor.detach(value if type(value) is Tensor else Tensor.as_subclass(value, Tensor))
        dtype = str(value.dtype).removeprefix("torch.")
        if value.device.type != "cpu" or value.layout is not torch.strided or value.numel() > _MOST_NUMBERS:
            return {"a": f"tensor of {dtype}, {str(value.layout).removeprefix('torch.')}", "shape": list(value.shape)}
        numbers = torch.view_as_real(value) if value.is_complex() else value
        numbers = numbers.double() if numbers.is_floating_point() else numbers
        return {
            "tensor": [_digits(one) for one in numbers.flatten().tolist()],
            "shape": list(value.shape),
            "dtype": dtype,
        }


def _digits(value: float) -> float:
    return float(f"{value:.6g}") + 0.0 if isinstance(value, float) else value


def alike(one: Any, other: Any) -> bool:
    """Whether two pieces of plain data are the same within the tolerance; NaN equals NaN, and infinity only itself."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if not (math.isfinite(one) and math.isfinite(other)):
            return one == other or (math.isnan(one) and math.isnan(other))
        return abs(one - other) <= ATOL + RTOL * max(abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return bool(one == other)


def value_of(data: Any) -> Any:
    """Return the value that plain data stands for, to show it; `plain` of it is the same data again."""
    if isinstance(data, list):
        return [value_of(one) for one in data]
    if not isinstance(data, dict):
        return data
    if "tensor" in data:
        dtype = getattr(torch, data["dtype"])
        numbers = torch.tensor(data["tensor"], dtype=torch.float64 if dtype.is_floating_point else None)
        if dtype.is_complex:
            return torch.view_as_complex(numbers.double().reshape(*data["shape"], 2)).to(dtype)
        return numbers.to(dtype).reshape(data["shape"])
    if "dict" in data:
        return {str(key): value_of(one) for key, one in data["dict"]}
    if "set" in data:
        return [value_of(one) for one in data["set"]]
    return Named(data)


class Records(NamedTuple):
    """What is stored of an exercise: what the solution does in each world, and how each misconception differs."""

    reference: list[list[list[Any]]]  # for each world: [what, plain data] in the order of the scene
    misconceptions: dict[str, list[Any]]  # label -> for each world, None or where it first differs


@functools.cache
def records_of_lesson(lesson: int) -> dict[str, Records]:
    """Return the stored records of a lesson's exercises, by id."""
    path = COURSE / f"lesson{lesson:02d}" / "records.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {id: Records(one["reference"], one["misconceptions"]) for id, one in data.items()}


def as_json(records: Mapping[str, Records]) -> str:
    """Return a lesson's records as the text of its records.json: a line for each world and each misconception."""
    exercises = []
    for id, one in records.items():
        worlds = ",\n  ".join(map(_compact, one.reference))
        wrongs = ",\n  ".join(f"{_compact(label)}: {_compact(found)}" for label, found in one.misconceptions.items())
        exercises.append(f'"{id}": {{"reference": [\n  {worlds}\n],\n "misconceptions": {{\n  {wrongs}\n}}}}')
    return "{\n" + ",\n".join(exercises) + "\n}\n"


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
