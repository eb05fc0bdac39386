"""Random programs do the same in mini and in torch: hook calls with all they receive, outputs, gradients, errors."""

import re
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings

from .driver import run
from .engines import Mini, Torch
from .features import EVERY_FEATURE, features
from .programs import Program, programs

# Torch's tensors have a loop over rows, and can be an index, which mini's have not: there Python's own words differ.
OF_PYTHON = ("'Tensor' object is not iterable", "can't multiply sequence by non-int of type 'Tensor'")


def beginning(message: str) -> list[str]:
    """The first words of an error or a warning, without numbers."""
    return re.findall(r"[a-zA-Z_'`-]+", message)[:6]


def compare(number: int, **options: Any) -> Counter[str]:
    """Run ``number`` programs in both engines; how many of them had which feature."""
    seen: Counter[str] = Counter()

    @settings(max_examples=number, deadline=None, database=None, suppress_health_check=list(HealthCheck), **options)
    @given(programs())
    def same(program: Program) -> None:
        note(f"{program}")
        ours, theirs = run(Mini, program), run(Torch, program)
        assert ours.log == theirs.log
        assert len(ours.messages) == len(theirs.messages)
        for our_message, their_message in zip(ours.messages, theirs.messages, strict=True):
            assert our_message.startswith(OF_PYTHON) or beginning(our_message) == beginning(their_message)
        seen["programs"] += 1
        seen.update(features(program, ours))

    same()
    return seen


def test_random_programs_do_the_same_in_mini_and_in_torch() -> None:
    seen = compare(300, derandomize=True)  # the same 300 every time; the long run draws new ones
    assert seen["programs"] >= 300


@pytest.mark.long
def test_ten_thousand_random_programs_do_the_same_and_reach_every_path() -> None:
    start = time.perf_counter()
    seen = compare(10_000)
    print(f"\n{seen['programs']} programs in {time.perf_counter() - start:.0f} s, of these with")
    for feature in sorted(EVERY_FEATURE, key=lambda name: seen[name]):
        print(f"{seen[feature]:6} {feature}")
    assert seen["programs"] >= 10_000
    assert [name for name in EVERY_FEATURE if seen[name] < 5] == []
    assert set(seen) - EVERY_FEATURE == {"programs"}
