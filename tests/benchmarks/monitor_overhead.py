"""What monitor costs, beside statistics hooks written by hand and beside the bare model. Read the ratios.

    python tests/benchmarks/monitor_overhead.py [--rounds 40] [--cpu]

The hooks by hand keep the same numbers, as one writes them: a mean, a deviation, a largest magnitude, the shares of
zeros and of non-finite values, each read by ``.item()``. In "by hand, tuned" they are computed as monitor does.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib.util
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from models import chain, resnet18
from timing import interleaved, print_table
from torch import Tensor, nn

from hooklab import monitor, select

Contestant = Callable[[], Any]
Numbers = Callable[[Tensor], tuple[float, ...]]


def plain_numbers(x: Tensor) -> tuple[float, ...]:
    x = x.detach()
    zeros, broken = (x == 0).float().mean().item(), (~x.isfinite()).float().mean().item()
    return x.mean().item(), x.std().item(), x.abs().max().item(), zeros, broken


def tuned_numbers(x: Tensor) -> tuple[float, ...]:
    x = x.detach()
    mean, square = x.mean().item(), torch.linalg.vector_norm(x).item() ** 2 / x.numel()
    variance = square - mean * mean
    if not variance > square / 4:
        variance = torch.linalg.vector_norm(x - mean).item() ** 2 / x.numel()
    bits = x.abs().view(torch.int32)
    zeros = 1 - int(torch.count_nonzero(bits)) / x.numel()
    return mean, math.sqrt(variance), bits.max().view(x.dtype).item(), zeros, float(not math.isfinite(square))


def bare(model: nn.Module, x: Tensor) -> Contestant:
    return lambda: model(x)


def by_hand(numbers: Numbers, model: nn.Module, x: Tensor) -> Contestant:
    rows: dict[tuple[int, str], tuple[float, ...]] = {}
    step = 0

    def hook(name: str, module: nn.Module, args: Any, output: Tensor) -> None:
        rows[step, name] = numbers(output)

    for name, module in select(model).items():
        module.register_forward_hook(functools.partial(hook, name))

    def run() -> None:
        nonlocal step
        model(x)
        step += 1

    return run


def watched(every: int, model: nn.Module, x: Tensor) -> Contestant:
    health = monitor(model, every=every).__enter__()

    def run() -> None:
        for _ in range(every):
            model(x)

    run.health = health  # type: ignore[attr-defined]  # keeps it open
    return run


def fastai_stats(model: nn.Module, x: Tensor) -> Contestant:
    """fastai's own ActivationStats without its histogram: three numbers (mean, deviation, share of nearly zero)."""
    from fastai.callback.hook import ActivationStats

    return fastai_hooks(ActivationStats(with_hist=False).hook, model, x)


def fastai_same(model: nn.Module, x: Tensor) -> Contestant:
    """The same five numbers as by hand, kept by fastai's Hooks."""
    return fastai_hooks(lambda module, args, output: plain_numbers(output), model, x)


def fastai_hooks(numbers: Callable[..., Any], model: nn.Module, x: Tensor) -> Contestant:
    from fastai.callback.hook import Hooks

    hooks, steps = Hooks(list(select(model).values()), numbers), []

    def run() -> None:
        model(x)
        steps.append(list(hooks.stored))

    return run


def times(count: int, run: Contestant) -> Contestant:
    def several() -> None:
        for _ in range(count):
            run()

    return several


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of time on the clock")
    options = parser.parse_args()
    measure = functools.partial(interleaved, clock=time.process_time if options.cpu else time.perf_counter)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    x, model = torch.randn(8, 32), chain()
    makers = {
        "bare": bare,
        "by hand": functools.partial(by_hand, plain_numbers),
        "by hand, tuned": functools.partial(by_hand, tuned_numbers),
        "hooklab.monitor": functools.partial(watched, 1),
    }
    if importlib.util.find_spec("fastai"):
        makers |= {"fastai, its three numbers": fastai_stats, "fastai, the same numbers": fastai_same}
    seconds = measure({name: make(copy.deepcopy(model), x) for name, make in makers.items()}, options.rounds)
    print_table("100 x Linear(32), batch 8: a forward, every layer watched", seconds, "bare", "by hand")

    images, model = torch.randn(8, 3, 64, 64), resnet18()
    contestants = {
        "bare": times(10, bare(copy.deepcopy(model), images)),
        "by hand": times(10, by_hand(plain_numbers, copy.deepcopy(model), images)),
        "hooklab.monitor, every=10": watched(10, copy.deepcopy(model), images),
        "hooklab.monitor, every=1": times(10, watched(1, copy.deepcopy(model), images)),
    }
    seconds = measure(contestants, max(options.rounds // 5, 3))
    print_table("ResNet-18 shape, batch 8 of 3x64x64: ten forwards", seconds, "bare", "by hand")


if __name__ == "__main__":
    main()
