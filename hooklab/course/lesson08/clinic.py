"""Six trainings that do not learn: `patient("A")` to `patient("F")`. Each takes a fraction of a second."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

import hooklab
from hooklab.course.digits import accuracy, digits
from hooklab.health import Health
from hooklab.selecting import What

STEPS = 80
BATCH = 64
WIDTH = 32
Before = Callable[[nn.Module, Tensor], object]


@dataclass
class Training:
    """A model, its optimizer, and a function that prepares the pictures. All of it may be replaced or changed.

    Attributes:
        model: turns pictures, rows of 64 pixels, into ten scores.
        optimizer: of `torch.optim`.
        prepare: turns the pixels, from 0 to 1, into the model's input.
        losses: of each step so far.
        handles: of the hooks that are registered on the model.
    """

    model: nn.Module
    optimizer: Optimizer
    prepare: Callable[[Tensor], Tensor] = lambda pixels: pixels
    losses: list[float] = field(default_factory=list)
    handles: list[RemovableHandle] = field(default_factory=list)

    def train(self, steps: int = STEPS, seed: int = 0, before: Before | None = None) -> Training:
        """Take this many steps, each on a random batch of 64 digits; return the training.

        `before` is called before each step with the model and its input.
        """
        data, generator = digits(), torch.Generator().manual_seed(seed)
        images, labels = data.train_images.flatten(1), data.train_labels
        for _ in range(steps):
            batch = torch.randint(len(labels), (BATCH,), generator=generator)
            x = self.prepare(images[batch])
            if before is not None:
                before(self.model, x)
            loss = F.cross_entropy(self.model(x), labels[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
        return self

    def accuracy(self) -> float:
        """Return the share of test digits that are read right, from 0 to 1."""
        data, was_training = digits(), self.model.training
        right = accuracy(self.model.eval(), self.prepare(data.test_images.flatten(1)), data.test_labels)
        self.model.train(was_training)
        return right


def layers(activation: type[nn.Module], depth: int, spread: float | None = None) -> nn.Sequential:
    """`depth` pairs fc1, act1, fc2, act2, … and `out`. PyTorch's default weights, or normal ones with this spread."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, depth + 1):
        parts[f"fc{number}"] = nn.Linear(64 if number == 1 else WIDTH, WIDTH)
        parts[f"act{number}"] = activation()
    parts["out"] = nn.Linear(WIDTH, 10)
    model = nn.Sequential(parts)
    if spread is not None:
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=spread / layer.in_features**0.5)
                nn.init.zeros_(layer.bias)
    return model


def _a() -> Training:
    model = layers(nn.ReLU, 4, spread=2**0.5)
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.3))


def _b() -> Training:
    model = layers(nn.Sigmoid, 8)
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.5))


def _c() -> Training:
    model = layers(nn.Tanh, 2)
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.01), lambda pixels: 255 * pixels)


class FineTuned(nn.Module):
    """A body, frozen, under a new head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.head = nn.Linear(128, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


def _d() -> Training:
    model = FineTuned()
    model.body.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.head = nn.Linear(128, 10)  # ten classes instead of five
    return Training(model, optimizer)


class Narrow(nn.Module):
    """An encoder that returns four numbers, and a reader that turns them into scores."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))
        self.reader = nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.reader(self.encoder(x))
        return scores


def keep_numbers(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    """Store the mean of each of the four numbers. What it returns replaces the output: that is the fault."""
    numbers = output.detach()
    module.kept = numbers.mean(dim=0).tolist()  # type: ignore[assignment]
    return numbers


def _e() -> Training:
    model = Narrow()
    handle = model.encoder.register_forward_hook(keep_numbers)
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.02), handles=[handle])


class Distances(nn.Module):
    """A score for each class: minus the distance to its centre. The root of 0 has no derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(10, WIDTH))
        self.eps = 0.0

    def forward(self, x: Tensor) -> Tensor:
        squares = (x.unsqueeze(1) - self.centres).square().sum(dim=2)
        return -(squares + self.eps).sqrt()


def _f() -> Training:
    model = nn.Sequential(OrderedDict(fc1=nn.Linear(64, WIDTH, bias=False), act1=nn.ReLU(), head=Distances()))
    return Training(model, torch.optim.Adam(model.parameters(), lr=0.02), some_are_empty)


def some_are_empty(pixels: Tensor) -> Tensor:
    """Every fortieth picture is empty: the scanner missed the page."""
    there = torch.arange(len(pixels)) % 40 != 0
    return pixels * there.unsqueeze(1)


MAKERS: dict[str, Callable[[], Training]] = {"A": _a, "B": _b, "C": _c, "D": _d, "E": _e, "F": _f}


def patient(name: str, seed: int = 0) -> Training:
    """A new, untrained copy of one of the six; the same for the same seed."""
    if name not in MAKERS:
        raise LookupError(f"the patients are {', '.join(MAKERS)}; not {name!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MAKERS[name]()


def examine(training: Training, *what: What, steps: int = STEPS, **options: Any) -> Health:
    """Train under a monitor that reports nothing while it runs; return it. `options` go to the monitor."""
    usual: dict[str, Any] = {"grads": True, "updates": training.optimizer, "on_nonfinite": "ignore"}
    with hooklab.monitor(training.model, *what, **usual | options) as health:
        training.train(steps)
    return health
