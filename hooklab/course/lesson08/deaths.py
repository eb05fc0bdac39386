"""When the units of lesson 3's network die: `first_passes(seed)`.

    python -m hooklab experiment deaths --seeds 20

counts for 20 different first weights how many channels end up dead, and in which step each fired for the last time.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hooklab.course.digits import BATCH, LEARNING_RATE, DigitsCNN, digits


class Deaths(NamedTuple):
    """What a hook saw in each step, for each of the 16 channels of `relu2`; tensors of shape (steps, 16)."""

    fires: Tensor  # the share of the batch on which any of the channel's outputs isn't zero
    gradient: Tensor  # the norm of the gradient of its weights in conv2
    moved: Tensor  # the norm of what the step changed these weights by

    def first(self, steps: int) -> Deaths:
        """The same of the first steps only."""
        return Deaths(*(values[:steps] for values in self))

    def dead(self) -> list[int]:
        """The channels that did not fire in the last ten steps."""
        return [channel for channel in range(16) if not self.fires[-10:, channel].any()]

    def last_fired(self, channel: int) -> int:
        """The last step in which a channel fired, -1 if there was none."""
        steps = self.fires[:, channel].nonzero().flatten().tolist()
        return steps[-1] if steps else -1


@functools.cache
def first_passes(seed: int = 0, steps: int = 40, lr: float = LEARNING_RATE) -> Deaths:
    """Train lesson 3's network for this many steps, as `trained_digits_cnn(seed)` does, and watch."""
    data = digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = DigitsCNN()
        adam = torch.optim.Adam(model.parameters(), lr=lr)
        fires: list[Tensor] = []
        gradients: list[Tensor] = []
        moved: list[Tensor] = []

        def look(module: nn.Module, args: Any, output: Tensor) -> None:
            fires.append((output.detach().amax(dim=(2, 3)) > 0).float().mean(dim=0))

        with model.relu2.register_forward_hook(look):
            while len(moved) < steps:
                for batch in torch.randperm(len(data.train_labels)).split(BATCH)[: steps - len(moved)]:
                    adam.zero_grad()
                    F.cross_entropy(model(data.train_images[batch]), data.train_labels[batch]).backward()
                    before = model.conv2.weight.detach().clone()
                    adam.step()
                    assert model.conv2.weight.grad is not None
                    gradients.append(model.conv2.weight.grad.flatten(1).norm(dim=1))
                    moved.append((model.conv2.weight.detach() - before).flatten(1).norm(dim=1))
    return Deaths(torch.stack(fires), torch.stack(gradients), torch.stack(moved))


def main(argv: Sequence[str]) -> int:
    """Print one line for each seed: the dead channels, and the step in which each fired last; return 0."""
    parser = argparse.ArgumentParser(prog="python -m hooklab experiment deaths", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="default: %(default)s")
    torch.set_num_threads(1)
    print("first weights, and of each channel that is dead after 40 steps the last step in which it fired (-1: none)")
    for seed in range(parser.parse_args(argv).seeds):
        seen = first_passes(seed)
        print(f"{seed:>4}  { ({channel: seen.last_fired(channel) for channel in seen.dead()}) }")
    return 0
