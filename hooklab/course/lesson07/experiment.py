"""Does mixing help? The experiment's data, its network, and one training: :func:`run`.

What is chosen for each arm is what :func:`run` takes: the places, α, and the number of steps. All else is a constant
here, the same for every arm. Network, learning rate and its decay were fixed after looking at plain training with
seeds from 1000 on, which are not among the reported ones.

Public: :func:`run`, :func:`split`, :class:`SmallCNN`, and the constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.course.digits import raw_digits
from hooklab.course.lesson07.shapes import shapes
from hooklab.mixup import ManifoldMixup

PLACES = ("input", "block1", "block2", "hidden")  # the places 0, 1, 2, 3 of a set
POOL = 1000  # examples to train and validate on; the test examples are separate, and always the same
BATCH_SIZE, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 50, 0.05, 0.9, 1e-4


@dataclass(frozen=True)
class Scenario:
    """What is trained on: which data, how many examples of the pool, and which share of their labels is wrong."""

    data: str
    train_size: int
    wrong_labels: float


SCENARIOS = {
    "few clean labels": Scenario("digits", 100, 0.0),
    "20 % wrong labels": Scenario("digits", 600, 0.2),
    "shapes in noise": Scenario("shapes", 500, 0.0),
}


class SmallCNN(nn.Module):
    """Logits of shape (n, 10) for images of shape (n, 1, 8, 8) or, with ``stride=2``, (n, 1, 16, 16)."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, stride=stride), nn.BatchNorm2d(16), nn.ReLU())
        self.block2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(self.block2(self.block1(x))))
        return logits


@dataclass(frozen=True)
class Split:
    """The examples to train on, and those to judge on: x of shape (n, 1, side, side), y of shape (n,), int64."""

    x_train: Tensor
    y_train: Tensor
    x_judge: Tensor
    y_judge: Tensor


def split(seed: int, scenario: str, judged_on: str) -> Split:
    """The examples of one seed: a random part of the pool to train on, and the examples to judge on.

    ``judged_on``: "validation", the rest of the pool, with the same share of wrong labels as the training part, since
    in practice both would have them; or "test", the test examples, whose labels are right.
    """
    chosen, g = SCENARIOS[scenario], _generator(seed, "split")
    (x, y), test = _data(chosen.data)
    order = torch.randperm(POOL, generator=g)
    train, rest = order[: chosen.train_size], order[chosen.train_size :]
    y = y.clone()
    for part in train, rest:
        wrong = part[: round(chosen.wrong_labels * len(part))]  # the order is random, so these are
        y[wrong] = (y[wrong] + torch.randint(1, 10, (len(wrong),), generator=g)) % 10
    judge = {"validation": (x[rest], y[rest]), "test": test}[judged_on]
    return Split(x[train], y[train], *judge)


def run(
    seed: int, scenario: str, places: Sequence[int], alpha: float, steps: int, judged_on: str = "test"
) -> dict[str, Any]:
    """Train one network, by SGD whose learning rate falls to a tenth at half and at three quarters of the steps.

    Runs of one seed and scenario are paired: all share the examples, the wrong labels, the first weights and the order
    of the batches. The function has no side effects: global random state and the number of threads are as before.

    Args:
        seed: of everything random in the run.
        scenario: a key of ``SCENARIOS``.
        places: the set of places where a batch may be mixed, as positions in ``PLACES``; empty: no mixup.
        alpha: λ ~ Beta(α, α); without mixup it means nothing.
        steps: batches of 50 to train on.
        judged_on: "validation" or "test".

    Returns:
        The arguments, ``"error"`` in percent, and ``"nll"``, the negative log-likelihood (mean cross entropy) in nats.

    On one machine the result is always the same. Another CPU rounds otherwise, which hundreds of steps amplify: with
    older instructions, single runs moved by up to 1.5 points of error and 0.045 nats with the digits, and by up to 3.5
    points with the shapes; means over seeds move less.

    >>> run(0, "few clean labels", (), 0.0, steps=0)["error"] > 50
    True
    """
    data = split(seed, scenario, judged_on)
    with _reproducible(seed):
        model = SmallCNN(stride=data.x_train.shape[-1] // 8)
        _train(model, data, places, alpha, steps, seed)
        with torch.no_grad():
            logits = model.eval()(data.x_judge)
    error = 100 * (logits.argmax(dim=1) != data.y_judge).double().mean()
    return {
        "seed": seed,
        "scenario": scenario,
        "places": list(places),
        "alpha": alpha,
        "steps": steps,
        "judged_on": judged_on,
        "error": round(error.item(), 3),
        "nll": round(F.cross_entropy(logits, data.y_judge).item(), 5),
    }


def _train(model: SmallCNN, data: Split, places: Sequence[int], alpha: float, steps: int, seed: int) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    decay = torch.optim.lr_scheduler.MultiStepLR(sgd, [steps // 2, steps * 3 // 4])
    mix = None
    if places:
        layers = [PLACES[k] for k in places if k > 0]
        mix = ManifoldMixup(model, layers, alpha, include_input=0 in places, generator=_generator(seed, "mixup"))
    for x, y in _batches(data, steps, seed):
        if mix is None:
            loss = F.cross_entropy(model(x), y)
        else:
            with mix(x, y) as mixed:
                loss = mixed.loss(F.cross_entropy, model(mixed.x))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        decay.step()


def _batches(data: Split, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    g, served = _generator(seed, "batches"), 0
    while True:
        for batch in torch.randperm(len(data.y_train), generator=g).split(BATCH_SIZE):
            if served == steps:
                return
            served += 1
            yield data.x_train[batch], data.y_train[batch]


def _generator(seed: int, purpose: str) -> torch.Generator:
    """A stream of random numbers for each purpose: what one arm draws must not shift what the others draw."""
    streams = ("weights", "split", "batches", "mixup")
    return torch.Generator().manual_seed(len(streams) * seed + streams.index(purpose))


@cache
def _data(name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The pool, and the test examples: 797 digits or 2,000 shapes."""
    if name == "shapes":
        return shapes(POOL, seed=1), shapes(2000, seed=2)
    pixels, y = raw_digits()
    x = pixels.view(-1, 1, 8, 8) / 16
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(12))
    pool, test = order[:POOL], order[POOL:]
    return (x[pool], y[pool]), (x[test], y[test])


@contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Seeded, on one thread (more threads add up in another order); afterwards everything is as it was."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(_generator(seed, "weights").get_state())
            yield
    finally:
        torch.set_num_threads(threads)
