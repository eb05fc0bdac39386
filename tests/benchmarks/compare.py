"""What capture costs, beside hooks written by hand and beside other libraries.

    python tests/benchmarks/compare.py            # all tables
    python tests/benchmarks/compare.py --quick    # fewer rounds, to see that it runs
    python tests/benchmarks/compare.py --cpu      # the processor's time, for a machine that others use as well

Libraries that are not installed are left out; requirements-peers.txt says how to get them.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch
from contestants import ATTACHED, FORWARD, GRADIENTS, INPUTS, Contestant, bare, by_hand, hooklab_reused, same
from models import chain, gpt2, resnet18
from timing import interleaved, print_table, ratio
from torch import Tensor, nn

# fastai first: nnsight changes `object`, and what fastai imports does not survive that
PEERS = {"fastai": "fastai.callback.hook", "captum": "captum.attr", "nnsight": "nnsight"}


def build(
    makers: dict[str, Callable[[nn.Module, Tensor], Contestant]], model: nn.Module, x: Tensor
) -> dict[str, Contestant]:
    """Each contestant on a copy of the model of its own; those whose library is missing are left out."""
    return {
        name: make(copy.deepcopy(model), x)
        for name, make in makers.items()
        if name.split()[0] not in PEERS or name.split()[0] in sys.modules
    }


def require_same_work(contestants: dict[str, Contestant]) -> dict[str, Contestant]:
    """All but the bare model must give what hooks written by hand give."""
    results = {name: run() for name, run in contestants.items() if name != "bare"}
    expected = results[next(name for name in results if name.startswith("by hand"))]
    wrong = [name for name, result in results.items() if not same(result, expected)]
    if wrong:
        raise SystemExit(f"these did not capture what hooks by hand do: {', '.join(wrong)}")
    return contestants


def import_seconds(module: str, rounds: int) -> list[float]:
    program = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
        for _ in range(rounds)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of time on the clock")
    options = parser.parse_args()
    rounds = 20 if options.quick else 200
    measure = functools.partial(interleaved, clock=time.process_time if options.cpu else time.perf_counter)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    for module in PEERS.values():
        if importlib.util.find_spec(module.split(".")[0]):
            importlib.import_module(module)

    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, one thread")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    x = torch.randn(8, 32)
    hand = "by hand"
    seconds = measure(require_same_work(build(FORWARD, chain(), x)), rounds)
    print_table("100 x Linear(32), batch 8: attach, forward, capture every leaf, remove", seconds, "bare", hand)
    seconds = measure(build(ATTACHED, chain(), x), rounds)
    print_table("the same while attached: forward and capture only", seconds, "bare", hand)
    images = torch.randn(8, 3, 64, 64)
    seconds = measure(require_same_work(build(FORWARD, resnet18(), images)), rounds // 8)
    print_table("ResNet-18 shape, batch 8 of 3x64x64", seconds, "bare", hand)
    for title, width, tokens, fewer in (("GPT-2 small", 768, 64, 8), ("GPT-2, 64 wide", 64, 16, 2)):
        model, tokens_in = gpt2(width), torch.randn(1, tokens, width)
        with torch.no_grad():
            seconds = measure(require_same_work(build(FORWARD, model, tokens_in)), rounds // fewer)
            print_table(f"{title}, {tokens} tokens, no_grad", seconds, "bare", hand)
            seconds = measure(require_same_work(build(INPUTS, model, tokens_in)), rounds // fewer)
            print_table("the same, inputs as well", seconds, "bare", hand)
    seconds = measure(require_same_work(build(GRADIENTS, chain(), x)), rounds // 2)
    print_table("100 x Linear(32): forward, backward, outputs and gradients", seconds, "bare", list(GRADIENTS)[1])

    print("\ngrowth: µs per module that capture adds to the bare forward")
    print(f"  {'modules':<12}{'by hand':>9}{'hooklab':>9}{'x by hand':>11}")
    for length in (10, 100, 1000):
        model = chain(length)
        makers = {"bare": bare, hand: by_hand, "hooklab": hooklab_reused}
        seconds = measure(build(makers, model, x), max(rounds * 10 // length, 15))
        plain = statistics.median(seconds["bare"])
        added = [(statistics.median(seconds[name]) - plain) / length * 1e6 for name in (hand, "hooklab")]
        print(f"  {length:<12}{added[0]:>9.2f}{added[1]:>9.2f}{ratio(seconds, 'hooklab', hand):>11.2f}")

    torch_seconds, ours = min(import_seconds("torch", 5)), min(import_seconds("hooklab", 5))
    print(f"\nimport torch {torch_seconds:.2f} s, import hooklab {ours * 1e3:.1f} ms: {ours / torch_seconds:.2%}")
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
