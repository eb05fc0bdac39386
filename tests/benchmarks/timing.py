"""Timing contestants against each other on a machine that does other things as well.

Each round times every contestant once, in a new random order, so that whatever slows the machine for a while slows all
of them. A contestant's ratio is taken to the reference of the same round; the median over the rounds is what counts.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable


def interleaved(
    contestants: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds per call of each contestant, one number per round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    shuffle = random.Random(0).shuffle
    for run in contestants.values():
        for _ in range(5):
            run()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                run = contestants[name]
                start = clock()
                run()
                seconds[name].append(clock() - start)
            gc.collect()
    finally:
        gc.enable()
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, reference: str) -> float:
    """The median over the rounds of one contestant's time by the reference's."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))


def print_table(title: str, seconds: dict[str, list[float]], bare: str, by_hand: str) -> None:
    """One row per contestant: median time, and the ratios to the bare model and to hooks written by hand."""
    print(f"\n{title}")
    print(f"  {'':<44}{'µs':>9}{'x bare':>9}{'x by hand':>11}")
    for name, times in seconds.items():
        to_bare, to_hand = ratio(seconds, name, bare), ratio(seconds, name, by_hand)
        print(f"  {name:<44}{statistics.median(times) * 1e6:>9.0f}{to_bare:>9.2f}{to_hand:>11.2f}")
