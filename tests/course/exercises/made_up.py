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


def calls_with_tensor(trial):
    trial.call(torch.ones(2, requires_grad=True))
    return "it ran"


def calls_with_model(trial):
    trial.call(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    return "it ran"
