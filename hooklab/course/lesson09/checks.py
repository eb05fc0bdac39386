"""The exercises of lesson 9: maps, heads, patches, and what is lost when something is switched off."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.guards import somebody_elses
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import returns, runs_counted, whole
from hooklab.course.exercises.trial import Trial

GRAD = 7.0  # in the .grad of every parameter, as in the middle of training


def called_twice(trial: Trial, what: str, model: nn.Module, *arguments: Any) -> Pairs:
    """Pairs about what an answer returns in training mode and then in evaluation mode, and about every .grad."""
    with runs_counted(model) as runs:
        got = trial.call(model, *arguments)
    bypassed = max(0, runs.forwards - runs.calls)
    yield "calls of `model.forward(…)` that bypass the model's hooks", bypassed, "forward-alone"
    yield returns(got, Tensor, "a tensor", "not-a-tensor")
    yield "the .grad of the model's parameters", *grads_of(model)
    yield "the .grad of the tensors that your function received", [x.grad for x in arguments if isinstance(x, Tensor)]
    yield f"the shape of {what}", list(got.shape)
    yield what, got.float().clone()
    model.eval()
    again = trial.call(model, *arguments)
    yield f"{what}, in a second call with the same arguments", again.float(), "left-over"
    yield f"{what}, looked at again after the second call", got.float(), "left-over"


def grads_of(model: nn.Module) -> tuple[str, str | None]:
    grads = [parameter.grad for parameter in model.parameters()]
    if all(grad is not None and bool((grad == GRAD).all()) for grad in grads):
        return "as before", None
    erased = any(grad is None or not grad.any() for grad in grads)
    return ("erased", "grad-erased") if erased else ("changed", "grad-written")


def training(model: nn.Module, seed: int) -> nn.Module:
    """Give every parameter whole numbers, and a .grad."""
    for parameter in whole(model, seed).parameters():
        parameter.grad = torch.full_like(parameter, GRAD)
    return model


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(100 + seed)).float()


# --- 9.1


class Net(nn.Module):
    """Two convolutions; the scores don't come from the mean over places, so gradients differ from place to place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()
        self.second, self.head = nn.Conv2d(3, 4, 2), nn.Linear(4 * 3 * 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.second(self.act(self.first(images))).flatten(1).square() / 16)
        return scores


@exercise(
    "9.1",
    "Grad-CAM",
    worlds=(
        ("the last convolution, three images", "second", 3, 0, False),
        ("the first convolution, three images", "first", 3, 1, False),
        ("an activation, one image", "act", 1, 2, False),
        ("a model whose parameters are all frozen", "second", 2, 3, True),
    ),
    verified="right at convolutions and at an activation, for labels that lose, in a frozen model; nothing is left",
)
def a_map_by_hand(trial: Trial, world: tuple[str, str, int, int, bool]) -> Pairs:
    text, layer, count, seed, frozen = world
    model = training(Net(), seed).requires_grad_(not frozen)
    images = numbers(count, 2, 4, 5, seed=seed)
    labels = model(images).argmin(dim=1)  # labels that the model doesn't choose
    old = len(trial.notes)
    yield from called_twice(trial, f"your map, for {text}", model, model.get_submodule(layer), images, labels)
    left = Claim(len(trial.notes) == old, "nothing", "; ".join(trial.notes[old:]))
    yield "what your function leaves behind", left, "leaves-something"


# --- 9.2


class PreActivation(nn.Module):
    """Its ReLU's input is used by another part of the model as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + x  # type: ignore[no-any-return]


@exercise(
    "9.2",
    "Fix it: guided backprop",
    worlds=(
        ("one image", 1, 19, False),
        ("three images", 3, 22, False),
        ("two images, in a frozen model", 2, 26, True),
    ),
    verified="right for one image and for several, twice in a row, in a frozen model; no hook and no .grad is left",
)
def guided_backprop_mended(trial: Trial, world: tuple[str, int, int, bool]) -> Pairs:
    text, count, seed, frozen = world
    layers = [nn.Conv2d(2, 2, 1), nn.LeakyReLU(0.5), nn.Conv2d(2, 3, 2), nn.ReLU()]
    layers += [nn.Conv2d(3, 3, 1), PreActivation(), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)]
    model = training(nn.Sequential(*layers), seed).requires_grad_(not frozen)
    layers[3].register_full_backward_hook(somebody_elses)
    images = numbers(count, 2, 3, 4, seed=seed)
    labels = model(images).argmin(dim=1)
    yield from called_twice(trial, f"your gradient, for {text}", model, images, labels)


# --- 9.3


class Attention(nn.Module):
    """Its patterns, of shape (n, heads, to, from), depend on the tokens; rows have sum 1 and see later places too."""

    def __init__(self, heads: int, seed: int) -> None:
        super().__init__()
        self.pattern, self.heads, self.seed = nn.Identity(), heads, seed

    def forward(self, tokens: Tensor) -> Tensor:
        n, length = tokens.shape
        generator = torch.Generator().manual_seed(self.seed + int(tokens.sum()))
        weights = torch.randint(1, 999, (n, self.heads, length, length), generator=generator).double() ** 2
        pattern: Tensor = self.pattern((weights / weights.sum(dim=-1, keepdim=True)).float())
        return pattern.sum(dim=(1, 2))


class Reader(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Attention(heads, seed) for seed in range(3))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scale * torch.stack([block(tokens) for block in self.blocks]).sum(dim=0)


@exercise(
    "9.3",
    "The induction score of every head",
    worlds=(
        ("two modules with three heads, period 3", 3, 8, 3, (0, 2)),
        ("three modules in another order than the model's, period 5", 2, 11, 5, (2, 0, 1)),
        ("one module with one head, period 4", 1, 9, 4, (1,)),
    ),
    verified="right for three periods, any number of heads, and the names in any order",
)
def induction_score_of_every_head(trial: Trial, world: tuple[str, int, int, int, tuple[int, ...]]) -> Pairs:
    text, heads, length, period, blocks = world
    parts = [torch.randperm(9, generator=torch.Generator().manual_seed(row))[:period] for row in range(4)]
    tokens = torch.stack(parts)[:, torch.arange(length) % period]
    names = [f"blocks.{block}.pattern" for block in blocks]
    yield from called_twice(trial, f"your scores, for {text}", training(Reader(heads), 0), names, tokens, period)


# --- 9.4


class Mix(nn.Module):
    """Adds, to each position, a linear function of the sum of all positions up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.point, self.linear = nn.Identity(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.point(x).cumsum(dim=1)))  # x goes round `point`


class Stream(nn.Module):
    def __init__(self, after_embed: nn.Module) -> None:
        super().__init__()
        self.embed, self.act = nn.Linear(2, 3), after_embed
        self.layers, self.head = nn.ModuleList([Mix(), Mix()]), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.embed(x))
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.head(x)
        return scores


@exercise(
    "9.4",
    "Patch it",
    worlds=(
        ("the embedding", "embed", 2, 0),
        ("the first layer", "layers.0", 1, 1),
        ("the last layer", "layers.1", 4, 2),
        ("a module deep inside, whose input is used elsewhere too", "layers.0.point", 0, 3),
        ("a module whose output the next one changes in place", "embed", 3, 4),
    ),
    verified="right at the embedding, behind each layer and deep inside, at the first, a middle and the last position",
)
def patch_it(trial: Trial, world: tuple[str, str, int, int]) -> Pairs:
    text, name, position, seed = world
    model = training(Stream(nn.LeakyReLU(0.5, inplace=True) if "in place" in text else nn.Identity()), seed)
    clean, corrupted = numbers(3, 5, 2, seed=seed), numbers(3, 5, 2, seed=seed + 50)
    what = f"the model's output, with position {position} patched at {text}"
    yield from called_twice(trial, what, model, name, clean, corrupted, position)


# --- 9.5


class Round(nn.Module):
    """A layer that returns its input, which also goes round it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Conv2d(2, 4, 2), nn.Identity(), nn.Linear(4 * 2 * 3, 3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.first(images)
        scores: Tensor = self.head((2 * self.layer(maps) + maps.relu()).flatten(1))
        return scores


def classifier(kind: str) -> tuple[nn.Module, nn.Module]:
    if kind == "round":
        model = Round()
        return model, model.layer
    if kind == "vectors":
        layer: nn.Module = nn.Sequential(nn.Linear(24, 5), nn.ReLU())
        return nn.Sequential(nn.Flatten(), layer, nn.Linear(5, 3)), layer
    layer = nn.Conv2d(2, 4, 2)
    return nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 3, 3)), layer


@exercise(
    "9.5",
    "What each channel is worth",
    worlds=(
        ("feature maps, (n, 4, 2, 3)", "maps", 30, 36),
        ("vectors, (n, 5)", "vectors", 30, 8),
        ("feature maps of another model", "maps", 25, 0),
        ("feature maps that are also used elsewhere in the model", "round", 30, 3),
    ),
    verified="right for feature maps and for vectors, where channels help, do nothing and harm",
)
def what_each_channel_is_worth(trial: Trial, world: tuple[str, str, int, int]) -> Pairs:
    text, kind, count, seed = world
    model, layer = classifier(kind)
    training(model, seed)
    images = numbers(count, 2, 3, 4, seed=seed)
    said = model(images).argmax(dim=1)
    labels = torch.where(torch.arange(count) % 5 < 2, (said + 1) % 3, said)  # two of five are wrong
    yield from called_twice(trial, f"your scores, for {text}", model, layer, images, labels)
