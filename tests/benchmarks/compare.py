"""What capture costs beside hooks written by hand: the ratios that its docstring states.

    python tests/benchmarks/compare.py [--quick] [--cpu]

``--quick`` makes a tenth of the rounds. ``--cpu`` measures the processor's time, for a machine that others use as well.
Each round times every contestant once, in a random order, so that whatever slows the machine for a while slows all of
them. The median over the rounds of the ratio to hooks written by hand is what counts.
"""

from __future__ import annotations

import argparse
import copy
import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from hooklab import capture, select

Run = Callable[[], Any]


def chain() -> nn.Sequential:
    """So little work per module that only the overhead counts."""
    return nn.Sequential(*[nn.Linear(32, 32) for _ in range(100)])


class GPT2Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = self.attn_dropout(scaled_dot_product_attention(query, key, value, is_causal=True))
        x = x + self.resid_dropout(self.c_proj(attended.transpose(1, 2).flatten(-2)))
        return x + self.mlp(self.ln_2(x))


def gpt2() -> nn.Sequential:
    """The shape of GPT-2 small (Radford et al. 2019, table 2) on embedded tokens, with a smaller vocabulary."""
    blocks = [GPT2Block(768, 12) for _ in range(12)]
    return nn.Sequential(*blocks, nn.LayerNorm(768), nn.Linear(768, 5000, bias=False)).eval()


def bare(model: nn.Module, x: Tensor) -> Run:
    return lambda: model(x)


def by_hand(model: nn.Module, x: Tensor) -> Run:
    """What one writes without a library: a hook per module that keeps the detached output, removed at the end."""
    modules = select(model)
    last = list(modules)[-1]

    def run() -> Tensor:
        kept: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Tensor) -> None:
                kept[name] = output.detach()

            return hook

        handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
        try:
            model(x)
        finally:
            for handle in handles:
                handle.remove()
        return kept[last]

    return run


def hooklab_reused(model: nn.Module, x: Tensor) -> Run:
    block, last = capture(model), list(select(model))[-1]

    def run() -> Any:
        with block as seen:
            model(x)
        return seen[last]

    return run


def interleaved(runs: dict[str, Run], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds per call of each contestant, one number per round."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for run in list(runs.values()) * 5:
        run()
    gc.disable()
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            start = clock()
            runs[name]()
            seconds[name].append(clock() - start)
        gc.collect()
    gc.enable()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    torch.set_num_threads(1)
    cases = {
        "100 x Linear(32), batch 8": (chain(), torch.randn(8, 32), 400),
        "GPT-2 small, 64 tokens": (gpt2(), torch.randn(1, 64, 768), 30),
    }
    for title, (model, x, rounds) in cases.items():
        runs = {make.__name__: make(copy.deepcopy(model), x) for make in (bare, by_hand, hooklab_reused)}
        with torch.set_grad_enabled(model.training):
            if not torch.allclose(runs["by_hand"](), runs["hooklab_reused"](), atol=1e-5):
                raise SystemExit("hooklab did not capture what hooks by hand do")
            seconds = interleaved(runs, rounds // (10 if options.quick else 1), clock)
        print(title)
        for name, times in seconds.items():
            ratio = statistics.median(one / hand for one, hand in zip(times, seconds["by_hand"], strict=True))
            print(f"  {name:<16}{statistics.median(times) * 1e6:>9.0f} µs{ratio:>8.3f} x by hand")


if __name__ == "__main__":
    main()
