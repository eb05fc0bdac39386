"""The check of exercise 9.1: Grad-CAM at any layer, for each image's own label, and nothing left behind."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import NotYet, Trial
from hooklab.course.lesson09.judging import Program, World, judge, numbers, whole, with_gradients


class _Net(nn.Module):
    """Two convolutions; the scores do not come from the mean over places, so gradients differ from place to place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.first, self.act = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()
        self.second, self.head = nn.Conv2d(3, 4, 2), nn.Linear(4 * 3 * 4, 3)
        whole(self, seed)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.second(self.act(self.first(images))).flatten(1).square() / 16)
        return scores


def _world(name: str, layer: str, count: int, seed: int, frozen: bool = False) -> World:
    def make() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
        model = with_gradients(_Net(seed)).requires_grad_(not frozen)
        images = numbers(count, 2, 4, 5, seed=seed)
        least = model(images).argmin(dim=1)  # labels that the model does not choose
        return model, model.get_submodule(layer), images, least

    return World(name, make)


WORLDS = [
    _world("the last convolution, three images", "second", 3, 0),
    _world("the first convolution, three images", "first", 3, 1),
    _world("an activation, one image", "act", 1, 2),
    _world("a model whose parameters are all frozen", "second", 2, 3, frozen=True),
]


def _program(combine: Program, score: Program | None = None, of_input: bool = False) -> Program:
    """Return a program that combines a layer's values with the gradients of what `score` makes of (scores, labels)."""

    def run(model: nn.Module, layer: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        kept: list[Tensor] = []
        keep = layer.register_forward_hook(lambda module, args, output: kept.append(args[0] if of_input else output))
        with keep:
            scores = model(images.clone().requires_grad_())
        chosen = score(scores, labels) if score else _own(scores, labels)
        return combine(kept[0].detach(), torch.autograd.grad(chosen, kept[0])[0])  # type: ignore[no-any-return]

    return run


def _own(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.gather(1, labels.view(-1, 1)).sum()


def _mean(gradient: Tensor) -> Tensor:
    return gradient.mean(dim=(2, 3), keepdim=True)


def _usual(values: Tensor, gradient: Tensor) -> Tensor:
    return (values * _mean(gradient)).sum(dim=1).relu()


RIGHT = _program(_usual)
GUESSES: dict[str, Program] = {
    "another class: the score that won, and not that of the label": _program(
        _usual, lambda s, y: s.max(dim=1)[0].sum()
    ),
    "all classes: the sum of all scores, and not that of the label": _program(_usual, lambda s, y: s.sum()),
    "all pairs: scores[:, labels] has every image with every label": _program(_usual, lambda s, y: s[:, y].sum()),
    "the mean of the images' scores: it divides each image's gradient by their number": _program(
        _usual, lambda s, y: _own(s, y) / len(y)
    ),
    "the loss: it falls where the score rises, so its gradient has the other sign": _program(
        _usual, lambda s, y: F.cross_entropy(s, y, reduction="sum")
    ),
    "the mean loss: it falls where the score rises, so its gradient has the other sign": _program(
        _usual, F.cross_entropy
    ),
    "probabilities: the softmax lets the other classes' scores take part": _program(
        _usual, lambda s, y: _own(s.softmax(dim=1), y)
    ),
    "log-probabilities: the softmax lets the other classes' scores take part": _program(
        _usual, lambda s, y: _own(s.log_softmax(dim=1), y)
    ),
    "the third step: what is negative becomes 0": _program(lambda a, g: (a * _mean(g)).sum(dim=1)),
    "sizes: what is negative becomes 0, and not positive": _program(lambda a, g: (a * _mean(g)).sum(dim=1).abs()),
    "the first step: a channel has one weight, the mean of the gradient over its places": _program(
        lambda a, g: (a * g).sum(dim=1).relu()
    ),
    "one weight for all images: the mean goes over the places, not over the images": _program(
        lambda a, g: (a * g.mean(dim=(0, 2, 3)).view(1, -1, 1, 1)).sum(dim=1).relu()
    ),
    "the sum over the places in the place of their mean": _program(
        lambda a, g: (a * g.sum(dim=(2, 3), keepdim=True)).sum(dim=1).relu()
    ),
    "the mean over the channels in the place of their sum": _program(lambda a, g: (a * _mean(g)).mean(dim=1).relu()),
    "too early: the sum becomes 0 where it is negative, not each weight": _program(
        lambda a, g: (a * _mean(g).relu()).sum(dim=1).relu()
    ),
    "too early: the sum becomes 0 where it is negative, not each channel": _program(
        lambda a, g: (a * _mean(g)).relu().sum(dim=1)
    ),
    "no values: the gradients alone, without the feature maps": _program(lambda a, g: g.sum(dim=1).relu()),
    "no gradient: the sum of the feature maps, which is the same for every class": _program(
        lambda a, g: a.sum(dim=1).relu()
    ),
    "scaled: the map was divided by its largest number": _program(
        lambda a, g: _usual(a, g) / _usual(a, g).amax(dim=(1, 2), keepdim=True).clamp(min=1e-8)
    ),
    "scaled: all maps were divided by their largest number": _program(lambda a, g: _usual(a, g) / _usual(a, g).max()),
}
NO_GRAPH = {
    "does not require grad": "no graph: where nothing requires grad, or under no_grad, there is no gradient; a copy "
    "of the images can ask for one",
    "not have been used in the graph": "another tensor: ask for the gradient at the very tensor that the layer "
    "put out, not at a copy or a detached one",
}


@exercise("9.1", "Grad-CAM")
@named_by(NO_GRAPH)
def a_map_by_hand(trial: Trial) -> str:
    judge(trial, WORLDS, RIGHT, GUESSES, "your map")
    if any(note.startswith("your code left something on") for note in trial.notes):
        raise NotYet("your function leaves something behind", expected="what it needs is in variables of its own")
    return "right at two convolutions and an activation, for labels that lose, in a frozen model, and nothing is left"
