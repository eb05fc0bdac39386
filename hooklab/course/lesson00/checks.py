"""The exercise of the start page: small on purpose, to try the three outcomes on."""

from __future__ import annotations

from typing import Any

import torch

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.trial import Trial


@exercise(
    "0.1",
    "Your first hook",
    worlds=([1.0, -2.0], [[0.5], [4.0], [-1e6]], 3.0),
    verified="three tensors, each doubled, and none of them changed",
)
def twice_as_large(trial: Trial, numbers: Any) -> Pairs:
    yield "your result", trial.call(torch.tensor(numbers))
