"""The check of exercise 9.5: the accuracy that is lost without each channel of a layer, alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson09.judging import Program, World, judge, numbers, whole, with_gradients


def _maps(seed: int) -> tuple[nn.Module, nn.Module]:
    layer = nn.Conv2d(2, 4, 2)
    return nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 3, 3)), layer


def _vectors(seed: int) -> tuple[nn.Module, nn.Module]:
    layer = nn.Sequential(nn.Linear(24, 5), nn.ReLU())
    return nn.Sequential(nn.Flatten(), layer, nn.Linear(5, 3)), layer


class _Round(nn.Module):
    """A layer that puts out what it was given, which also goes round it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Conv2d(2, 4, 2), nn.Identity(), nn.Linear(4 * 2 * 3, 3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.first(images)
        scores: Tensor = self.head((2 * self.layer(maps) + maps.relu()).flatten(1))
        return scores


def _round(seed: int) -> tuple[nn.Module, nn.Module]:
    model = _Round()
    return model, model.layer


def _world(name: str, build: Program, count: int, seed: int) -> World:
    def make() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
        model, layer = build(seed)
        with_gradients(whole(model, seed))
        images = numbers(count, 2, 3, 4, seed=seed)
        said = model(images).argmax(dim=1)
        labels = torch.where(torch.arange(count) % 5 < 2, (said + 1) % 3, said)  # two of five are wrong
        return model, layer, images, labels

    return World(name, make)


WORLDS = [
    _world("feature maps, (n, 4, 2, 3)", _maps, 30, 36),
    _world("vectors, (n, 5)", _vectors, 30, 8),
    _world("feature maps of another model", _maps, 25, 0),
    _world("feature maps that also go round the layer", _round, 30, 3),
]


def _program(score: Program, mask: Program | None = None, times: Program = torch.mul) -> Program:
    """Return a program that makes score(full accuracy, accuracy without the channel, number of images)."""

    def run(model: nn.Module, layer: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        widths: list[int] = []

        def accuracy(hook: Program) -> Tensor:
            with torch.no_grad(), layer.register_forward_hook(hook):
                is_right: Tensor = model(images).argmax(dim=1) == labels
            return is_right.float().mean()

        full = accuracy(lambda module, args, output: widths.append(output.shape[1]))
        scores = []
        for channel in range(widths[0]):
            keep = mask(widths[0], channel) if mask else torch.arange(widths[0]) != channel
            shape = lambda output, keep=keep: times(output, keep.view(1, -1, *[1] * (output.ndim - 2)))  # noqa: E731
            without = accuracy(lambda module, args, output, shape=shape: shape(output))
            scores.append(score(full, without, len(images)))
        return torch.stack(scores)

    return run


def _lost(full: Tensor, without: Tensor, count: int) -> Tensor:
    return full - without


RIGHT = _program(_lost)
GUESSES: dict[str, Program] = {
    "the sign: positive is what is lost": _program(lambda full, without, count: without - full),
    "the accuracy that is left, and not what is lost": _program(lambda full, without, count: without),
    "against perfect: what is lost is less than the full accuracy, which is not 1": _program(
        lambda full, without, count: 1 - without
    ),
    "a number of images: a share of them is asked for": _program(lambda full, without, count: (full - without) * count),
    "percent: a share from 0 to 1 is asked for": _program(lambda full, without, count: (full - without) * 100),
    "relative: what is lost is the difference of two accuracies, not divided by the first": _program(
        lambda full, without, count: (full - without) / full
    ),
    "sizes: a channel without which more is right has a negative number": _program(
        lambda full, without, count: (full - without).abs()
    ),
    "no number below zero: a channel without which more is right has a negative number": _program(
        lambda full, without, count: (full - without).relu()
    ),
    "in place: the output that you wrote into also goes round the layer; change a copy, and return it": _program(
        _lost, times=Tensor.mul_
    ),
    "the others: all channels but this one are zero": _program(_lost, lambda width, one: torch.arange(width) == one),
    "one after the other: each channel is zero alone, the ones before it are back": _program(
        _lost, lambda width, one: torch.arange(width) > one
    ),
    "the channel before: the first is channel 0": _program(
        _lost, lambda width, one: torch.arange(width) != (one - 1) % width
    ),
    "no change: nothing is lost, since no channel is off; a hook must return the new output": _program(
        lambda full, without, count: full - full
    ),
}
WORDS = {
    "must be Tensor, not": "accidental return: the next layer got what your hook returned in place of the output",
    "has no attribute 'out_channels'": "a layer is anything that puts out channels: read their number off its output",
    "has no attribute 'out_features'": "a layer is anything that puts out channels: read their number off its output",
    "too many indices": "one kind of output: behind (n, channels) may be places, or none; output[:, channel] fits both",
    "list index out of range": "an empty list: less had been stored than this line expects",
}


@exercise("9.5", "What each channel is worth")
@named_by(WORDS)
def what_each_channel_is_worth(trial: Trial) -> str:
    judge(trial, WORLDS, RIGHT, GUESSES, "your list of scores")
    return "right for feature maps and for vectors, where channels help, do nothing and harm"
