"""Nobody's forward raises because a block of ours opens or ends in another thread."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, run_until, timeline
from tests.mixing import cnn, digits_like, mixer
from tests.nets import Raises, in_thread


@contextmanager
def mixing(model: nn.Module) -> Iterator[None]:
    mix = ManifoldMixup(model, ["0"], include_input=False)
    with mix(torch.ones(4, 2), torch.tensor([0, 1, 0, 1])) as mixed:
        yield
        model(mixed.x)


BLOCKS = {
    "capture": lambda model: capture(model),
    "capture of inputs": lambda model: capture(model, inputs=True, grads=True),
    "edit": lambda model: edit(model, lambda output, call: None),
    "timeline": lambda model: timeline(model),
    "monitor": lambda model: monitor(model, grads=True),
}
with_mixing = pytest.mark.parametrize("block", [*BLOCKS.values(), mixing], ids=[*BLOCKS, "ManifoldMixup"])
each_block = pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU()).train()


class Waits:
    """A hook that keeps another thread in the forward until it may go on."""

    def __init__(self) -> None:
        self.mine = threading.get_ident()
        self.inside, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *args: object) -> None:
        if threading.get_ident() != self.mine:
            self.inside.set()
            self.go_on.wait(10)


@with_mixing
def test_a_block_that_ends_while_another_thread_is_in_a_forward_does_not_disturb_it(block) -> None:
    model, hook = small(), Waits()
    # torch has looked up the hooks by now, and looks up which of them want kwargs when it calls them
    model[0].register_forward_pre_hook(hook)
    model[0].register_forward_hook(hook)
    with ThreadPoolExecutor(1) as pool:
        with block(model):
            forward = pool.submit(model, torch.ones(1, 2))
            hook.inside.wait(10)
        hook.go_on.set()
        forward.result(10)


@each_block
@pytest.mark.parametrize("register", ["register_forward_pre_hook", "register_forward_hook"])
def test_a_block_that_a_hook_ends_in_the_middle_of_a_forward_does_not_disturb_it(block, register) -> None:
    model, x, block_around = small(), torch.ones(1, 2), ExitStack()
    expected = model(x)
    handle = getattr(model[1], register)(lambda *args: block_around.close())
    block_around.enter_context(block(model))
    assert torch.equal(model(x), expected)
    handle.remove()
    assert leftover_hooks(model) == []


def test_an_error_in_another_threads_forward_stands_behind_torchs_own_if_the_block_ends_in_that_moment() -> None:
    """Torch loops over its table of hooks, not over a copy, when a forward has raised; we cannot help that."""
    model, hook = nn.Sequential(Raises(KeyError("its own error"))), Waits()
    model[0].register_forward_hook(hook, always_call=True)
    with ThreadPoolExecutor(1) as pool:
        with capture(model):
            forward = pool.submit(model, torch.ones(1, 2))
            hook.inside.wait(10)
        hook.go_on.set()
        error = forward.exception(10)
    assert "mutated during iteration" in str(error)
    assert repr(error.__context__) == "KeyError('its own error')"


@each_block
def test_many_threads_with_blocks_and_without_run_the_same_model(block, threads_that_switch_often) -> None:
    model, done = small(), threading.Event()
    expected = model(torch.ones(4, 2)).detach()

    def with_blocks() -> None:
        for _ in range(40):
            with block(model):
                pass

    def plain() -> None:
        while not done.is_set():
            assert torch.equal(model(torch.ones(4, 2)), expected)

    with ThreadPoolExecutor(7) as pool:
        requests = [pool.submit(plain) for _ in range(4)]
        looks = [pool.submit(with_blocks) for _ in range(3)]
        wait(looks, 60)
        done.set()
        assert [one.exception(60) for one in (*looks, *requests)] == [None] * 7
    assert leftover_hooks(model) == []


def test_run_until_in_many_threads_stops_only_its_own_forward(threads_that_switch_often) -> None:
    model = small()
    expected = {stop: run_until(model, stop, torch.ones(4, 2)).detach() for stop in ("0", "1")}

    def stops(name: str) -> None:
        for _ in range(60):
            assert torch.equal(run_until(model, name, torch.ones(4, 2)), expected[name])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(stops, "0101"))
    assert leftover_hooks(model) == []


def test_another_threads_forward_is_not_mixed() -> None:
    model, x = small(), torch.rand(4, 2)
    expected = model(x)
    with ManifoldMixup(model, ["0"], include_input=False)(x, torch.tensor([0, 1, 0, 1])) as mixed:
        assert torch.equal(in_thread(model, x), expected)
        model(mixed.x)


def test_threads_may_mix_batches_of_their_own_at_the_same_time() -> None:
    model, meet = cnn(), threading.Barrier(2, timeout=10)

    def train(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        for _ in range(5):
            with mixer(model, "0")(*batch) as mixed:
                meet.wait()
                model(mixed.x)
                meet.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, [digits_like()] * 2))


def test_a_block_leaves_alone_one_that_is_ending_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pause, remove = small(), Waits(), RemovableHandle.remove

    def remove_after_a_pause(handle: RemovableHandle) -> None:
        pause()
        remove(handle)

    def mixes() -> None:
        with mixing(model):
            pass

    monkeypatch.setattr(RemovableHandle, "remove", remove_after_a_pause)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(mixes)
        pause.inside.wait(10)
        mixes()
        pause.go_on.set()
        other.result(10)
    assert leftover_hooks(model) == []


def test_calls_of_replicas_in_other_threads_are_told() -> None:
    model = small()
    with capture(model, "0") as seen:
        replica = copy.copy(model)  # as nn.DataParallel makes them, for threads of their own
        replica._modules = {name: copy.copy(module) for name, module in model._modules.items()}
        in_thread(replica, torch.ones(1, 2))
    with pytest.raises(LookupError, match=r"'0' did not run in the thread that opened .* \(1 calls came from other"):
        _ = seen["0"]
