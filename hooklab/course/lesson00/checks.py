"""The check of the start page: small on purpose, to try the three outcomes on."""

from __future__ import annotations

import torch

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_returned
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text


@exercise("0.1", "Try a check")
def twice_as_large(trial: Trial) -> str:
    for x in (torch.tensor([1.0, -2.0]), torch.tensor([[0.5], [4.0], [-1e6]]), torch.tensor(3.0)):
        before = x.clone()
        got = trial.call(x)
        expect_returned(got, "a tensor", "forgotten return: print shows a value, return hands it over")
        wanted = before * 2
        if isinstance(got, torch.Tensor) and same(got, before**2) and not same(got, wanted):
            raise NotYet(
                "each number was squared",
                expected=tensor_text(wanted),
                got=tensor_text(got),
                likely="`**` is a power: twice as large is `x * 2`",
            )
        if not same(expect_tensor(got, "your result", x.shape), wanted):
            raise NotYet("the numbers are others", expected=tensor_text(wanted), got=tensor_text(got))
    return "three tensors, each doubled, and none of them changed"
