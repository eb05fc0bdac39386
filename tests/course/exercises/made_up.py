"""Made-up exercises, to try the machinery without a lesson."""

import torch
from torch import nn

from hooklab.course.exercises import attempt, checking, judge
from hooklab.course.exercises.exercise import Exercise
from hooklab.course.exercises.records import Records


def outcome_of(run, answer, monkeypatch, **options):
    """The outcome of a made-up exercise, in whose scene this function gets the trial."""

    def scene(trial, world):
        run(trial)
        yield "the scene", "it ran"

    monkeypatch.setattr(checking, "find", lambda id: Exercise("9.9", "made up", "it ran", scene))
    monkeypatch.setattr(judge, "records_of_lesson", lambda lesson: {"9.9": Records([[["the scene", "it ran"]]], {})})
    return attempt("9.9", answer, **options)


def calls_with(*args, **options):
    """A scene that calls the answer with these arguments."""
    return lambda trial: trial.call(*args, **options)


def calls_with_tensor(trial):
    trial.call(torch.ones(2, requires_grad=True))


def calls_with_model(trial):
    trial.call(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def hooks_a_tensor(trial):
    """A scene whose answer may hook the tensor, and of which a backward pass is taken."""
    x = torch.ones(2, requires_grad=True)
    trial.call(x, may_hook=True)
    x.sum().backward()
