"""Made-up exercises, to try the machinery without a lesson."""

from types import SimpleNamespace

import torch
from torch import nn

from hooklab.course.exercises import attempt, checking


def outcome_of(verify, answer, monkeypatch, **options):
    """The outcome of a made-up exercise."""
    made_up = SimpleNamespace(id="9.9", title="made up", verify=verify)
    monkeypatch.setattr(checking, "find", lambda id: made_up)
    return attempt("9.9", answer, **options)


def calls_with(*args, **options):
    """A check that calls the answer with these arguments."""
    return lambda trial: trial.call(*args, **options) or "it ran"


def calls_with_tensor(trial):
    return calls_with(torch.ones(2, requires_grad=True))(trial)


def calls_with_model(trial):
    return calls_with(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))(trial)


def hooks_a_tensor(trial):
    """A check whose answer may hook the tensor, and of which a backward pass is taken."""
    x = torch.ones(2, requires_grad=True)
    trial.call(x, may_hook=True)
    x.sum().backward()
    return "it ran"
