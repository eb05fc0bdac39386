"""What ManifoldMixup costs per training step, next to mixup written into the model's forward.

``python tests/benchmarks/mixup_overhead.py`` prints a table. The variants take turns in one run, in a new order
for each step, on one thread, and each step is timed in CPU time, so that other programs disturb the ratios little.
With ``--in-a-row`` they take turns round by round: a step then finds in the processor's caches what the one before it
has left there, as in a training, and not what three other variants have left.
Every step: zero_grad, forward, loss, backward, SGD, batch of 50 digits, layers {0, 1, 2}, alpha 2.

Where torchvision is installed, the last rows mix the input only: by hand, by ManifoldMixup, and by torchvision's
v2.MixUp, which has no other place. timm's Mixup would be one more of these. fastai's is a callback of its Learner,
whose loop calls dozens of others in each step: its cost cannot be told from theirs.
"""

import argparse
import importlib.util
import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hooklab
from hooklab.course.lesson07.experiment import SmallCNN, split

WARM_UP = 3  # steps that are not timed, where a variant begins anew

Step = Callable[[Tensor, Tensor], None]


class HandMixedCNN(SmallCNN):
    """The digits CNN with the mixing written into its forward, nothing checked."""

    def forward(self, x: Tensor, at: int = -1, lam: float = 1.0, permutation: Tensor | None = None) -> Tensor:
        if at == 0:
            x = lam * x + (1 - lam) * x[permutation]
        x = self.block1(x)
        if at == 1:
            x = lam * x + (1 - lam) * x[permutation]
        x = self.block2(x)
        if at == 2:
            x = lam * x + (1 - lam) * x[permutation]
        return self.head(self.hidden(x))


def plain(model: nn.Module) -> Step:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    return _training_step(model, loss)


def by_hand(model: HandMixedCNN) -> Step:
    rng = np.random.default_rng(0)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        lam, permutation = rng.beta(2.0, 2.0), torch.randperm(len(y))
        logits = model(x, random.randrange(3), lam, permutation)
        return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[permutation])

    return _training_step(model, loss)


def by_hand_at_the_input(model: nn.Module) -> Step:
    rng = np.random.default_rng(0)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        lam, permutation = rng.beta(2.0, 2.0), torch.randperm(len(y))
        logits = model(lam * x + (1 - lam) * x[permutation])
        return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[permutation])

    return _training_step(model, loss)


def with_torchvision(model: nn.Module) -> Step:
    from torchvision.transforms.v2 import MixUp

    mix = MixUp(alpha=2.0, num_classes=10)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        mixed_x, soft_y = mix(x, y)
        return F.cross_entropy(model(mixed_x), soft_y)

    return _training_step(model, loss)


def with_hooklab(model: nn.Module, layers: Sequence[str] = ("block1", "block2")) -> Step:
    mix = hooklab.ManifoldMixup(model, layers, generator=torch.Generator().manual_seed(0))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        with mix(x, y) as mixed:
            return mixed.loss(F.cross_entropy, model(mixed.x))

    return _training_step(model, loss)


def _training_step(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Step:
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> None:
        sgd.zero_grad()
        loss(x, y).backward()
        sgd.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="default: %(default)s rounds of --steps steps")
    parser.add_argument("--steps", type=int, default=30, help="default: %(default)s steps of each variant per round")
    parser.add_argument("--in-a-row", action="store_true", help="a variant's steps of a round follow each other")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)

    data = split(0, "20 % wrong labels", "test")
    x, y = data.x_train[:50], data.y_train[:50]
    steps = {
        "no mixup": plain(SmallCNN()),
        "by hand": by_hand(HandMixedCNN()),
        "by hand again": by_hand(HandMixedCNN()),
        "ManifoldMixup": with_hooklab(SmallCNN()),
    }
    if importlib.util.find_spec("torchvision"):
        steps["input by hand"] = by_hand_at_the_input(SmallCNN())
        steps["input, ours"] = with_hooklab(SmallCNN(), [])
        steps["v2.MixUp"] = with_torchvision(SmallCNN())
    totals: dict[str, list[float]] = {name: [] for name in steps}
    for round_number in range(options.rounds + 1):
        spent = dict.fromkeys(steps, 0.0)
        names = [random.sample(list(steps), len(steps)) for _ in range(1 if options.in_a_row else options.steps)]
        for name in itertools.chain(*names):
            for _ in range(WARM_UP if options.in_a_row else 0):
                steps[name](x, y)
            before = time.thread_time()
            for _ in range(options.steps if options.in_a_row else 1):
                steps[name](x, y)
            spent[name] += time.thread_time() - before
        if round_number > 0:  # the first round warms up
            for name, seconds in spent.items():
                totals[name].append(seconds / options.steps)

    print(f"{options.rounds} rounds of {options.steps} steps, one thread, torch {torch.__version__}")
    print(f"{'variant':15s} {'ms per step':>11s} {'to by hand':>11s} {'quartiles':>15s} {'extra µs':>9s}")
    for name, times in totals.items():
        ratios = [ours / theirs for ours, theirs in zip(times, totals["by hand"], strict=True)]
        extra = statistics.median(ours - theirs for ours, theirs in zip(times, totals["by hand"], strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = 1000 * statistics.median(times)
        print(f"{name:15s} {milliseconds:11.3f} {middle:11.3f} {low:7.3f}-{high:.3f} {1e6 * extra:9.0f}")


if __name__ == "__main__":
    main()
