"""What :func:`hooklab.monitor` says about the first inf or nan that it meets."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hooklab._shared.trees import tensors
from hooklab.tallies import Sample, numbers_of, sample_now

Key = tuple[int, str, str]

_LIBRARIES = tuple(os.path.dirname(file) + os.sep for file in (torch.__file__, __file__))


class Finding(NamedTuple):
    """The first value of its kind that was not finite: in which step, of which module; ``text`` tells it."""

    step: int
    kind: str
    module: str
    text: str


def describe_output(
    key: Key, call: int, sample: Sample, output: Tensor | None = None, module: nn.Module | None = None, inputs: Any = ()
) -> str:
    """Where the values are at hand, also whether the module was given any that were not finite."""
    said = _said(key, sample, f" in call {call}" if call > 1 else "")
    if output is None or module is None:
        return said
    came_in = [sample_now(values, None) for tensor in tensors(inputs) if (values := numbers_of(tensor)) is not None]
    if any(one.nonfinite for one in came_in):
        return f"{said} So does its input: they came from the data, or were made between the modules that are watched."
    if broken := [name for name, parameter in module.named_parameters() if not parameter.isfinite().all()]:
        return f"{said} So does its {' and '.join(broken)}: a step of the optimizer broke it before."
    largest = max((one.largest for one in came_in), default=0.0)
    limit = ""
    if output.dtype == torch.float16 and torch.isinf(output).any():
        limit = f" {str(output.dtype).removeprefix('torch.')} holds no more than {torch.finfo(output.dtype).max:.0f}."
    return (
        f"{said} Its inputs (largest magnitude {largest:.3g}) and parameters are finite: they are made in here.{limit}"
    )


def describe_gradient(key: Key, sample: Sample, forward_was_finite: bool) -> str:
    """A gradient arrives from what comes after the module."""
    forward = "the forward was finite, and " if forward_was_finite else ""
    return f"{_said(key, sample)} It arrives there: {forward}what made it comes after {key[2]!r} in the forward."


def describe_update(key: Key, parameter: str, sample: Sample) -> str:
    """The parameter of a module is broken from this step on."""
    return f"{_said(key, sample, f' to its {parameter}')} From here on the parameter is not finite."


def warn_caller(text: str) -> None:
    """Warn at the line outside of torch and this package; always, even if the same was said before."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    file, line = ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(text, RuntimeWarning, file, line, registry={})


def _said(key: Key, sample: Sample, detail: str = "") -> str:
    step, kind, module = key
    what = {"output": "the output", "gradient": "the gradient of the output", "update": "the update"}[kind]
    return f"step {step}: {what} of {module!r}{detail} has {sample.nonfinite} of {sample.values} values inf or nan."
