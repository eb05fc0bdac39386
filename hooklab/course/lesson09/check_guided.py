"""The check of exercise 9.2: guided backprop for any number of images, and a model that can be trained afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.guards import somebody_elses
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson09.judging import Program, World, judge, numbers, whole, with_gradients


class _Inner(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + x  # type: ignore[no-any-return]


def _model(seed: int) -> nn.Module:
    other = [nn.Conv2d(2, 2, 1), nn.LeakyReLU(0.5)]  # no nn.ReLU
    layers = [nn.Conv2d(2, 3, 2), nn.ReLU(), _Inner(3), nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)]
    return with_gradients(whole(nn.Sequential(*other, *layers), seed))


def _world(name: str, count: int, seed: int, frozen: bool = False) -> World:
    def make() -> tuple[nn.Module, Tensor, Tensor]:
        model, images = _model(seed).requires_grad_(not frozen), numbers(count, 2, 3, 4, seed=seed)
        _relus(model)[0].register_full_backward_hook(somebody_elses)
        return model, images, model(images).argmin(dim=1)

    return World(name, make)


WORLDS = [
    _world("one image", 1, 10),
    _world("three images", 3, 0),
    _world("two images, in a frozen model", 2, 3, frozen=True),
]


def _own(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.gather(1, labels.view(-1, 1)).sum()


def _program(rule: Program, score: Program = _own, which: Program = list, at_end: Program = Tensor.clone) -> Program:
    """Return a program whose ReLUs, those that `which` chooses, pass back rule(grad_input, grad_output)."""

    def run(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        with ExitStack() as hooks:
            for relu in which(_relus(model)):
                hooks.enter_context(relu.register_full_backward_hook(lambda m, gin, gout: (rule(gin[0], gout[0]),)))
            watched = images.clone().requires_grad_()
            gradient = torch.autograd.grad(score(model(watched), labels), watched)[0]
        return at_end(gradient)  # type: ignore[no-any-return]

    return run


def _relus(model: nn.Module) -> Sequence[nn.Module]:
    return [module for module in model.modules() if isinstance(module, nn.ReLU)]


def _as_it_is(grad_input: Tensor, grad_output: Tensor) -> Tensor:
    return grad_input


def _positive(grad_input: Tensor, grad_output: Tensor) -> Tensor:
    return grad_input.clamp(min=0)


RIGHT = _program(_positive)
GUESSES: dict[str, Program] = {
    "no rule: this is the plain gradient; no hook ran, or what it returned did not count": _program(_as_it_is),
    "the rule at the end only: it belongs at every ReLU": _program(_as_it_is, at_end=torch.relu),
    "the rule at the end as well: an image's gradient may be negative": _program(_positive, at_end=torch.relu),
    "sizes: the gradient of an image may be negative": _program(_positive, at_end=torch.abs),
    "the wrong part: pass back what is positive": _program(lambda gin, gout: gin.clamp(max=0)),
    "sizes: the negative part becomes 0, and not positive": _program(lambda gin, gout: gin.abs()),
    "grad_output in the place of grad_input: the ReLU's own 0 where it was not active is lost": _program(
        lambda gin, gout: gout.clamp(min=0)
    ),
    "all pairs: scores[:, labels] has every image with every label": _program(_positive, lambda s, y: s[:, y].sum()),
    "all classes: the sum of all scores, and not that of the label": _program(_positive, lambda s, y: s.sum()),
    "another class: the score that won, and not that of the label": _program(
        _positive, lambda s, y: s.max(dim=1)[0].sum()
    ),
    "the loss: it falls where the score rises, so its gradient has the other sign": _program(
        _positive, lambda s, y: F.cross_entropy(s, y, reduction="sum")
    ),
    "the mean over the images: each image's gradient is divided by their number": _program(
        _positive, lambda s, y: _own(s, y) / len(y)
    ),
    "the outer ReLUs only: modules() goes through all levels, children() through one": _program(
        _positive, which=lambda relus: [relus[0], relus[-1]]
    ),
    "one ReLU only: the first": _program(_positive, which=lambda relus: relus[:1]),
    "one ReLU only: the last": _program(_positive, which=lambda relus: relus[-1:]),
}
WORDS = {
    "invalid number of grad_input": "not a tuple: of a tensor, the rows are taken for the entries; return (…,)",
    "has changed the size of value": "not a tuple: of a tensor, the rows are taken for the entries; return (…,)",
    "'tuple' object has no attribute": "always tuples: grad_input is one, even for one input",
    "does not require grad": "no graph: where nothing requires grad, no gradient; a copy of the images can ask",
    "is a view and is being modified inplace": "in place: a gradient or an image belongs to others; clamp, not clamp_",
}


@exercise("9.2", "Mend it: guided backprop")
@named_by(WORDS)
def guided_backprop_mended(trial: Trial) -> str:
    judge(trial, WORLDS, RIGHT, GUESSES, "your gradient")
    return "right for one image and for several, twice in a row, in a frozen model; no hook and no .grad is left"
