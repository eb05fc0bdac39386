"""Nobody's forward raises because a block of ours opens or ends in another thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch import nn

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, run_until, timeline
from tests.mixing import SmallCNN, digits_like, mixer


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


def errors_of(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@with_mixing
def test_a_block_that_ends_while_another_thread_is_in_a_forward_does_not_disturb_it(block) -> None:
    model, inside, go_on, errors = small(), threading.Event(), threading.Event(), []

    def slow(*args: object) -> None:
        if threading.current_thread().name == "other":
            inside.set()
            go_on.wait(10)

    # torch has looked up the hooks by now, and looks up which of them want kwargs when it calls them
    model[0].register_forward_pre_hook(slow)
    model[0].register_forward_hook(slow)

    def forward() -> None:
        try:
            model(torch.ones(1, 2))
        except Exception as error:
            errors.append(error)

    other = threading.Thread(target=forward, name="other")
    with block(model):
        other.start()
        inside.wait(10)
    go_on.set()
    other.join(10)
    assert errors == []


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

    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("its own error")

    model, inside, go_on, errors = nn.Sequential(Fails()), threading.Event(), threading.Event(), []

    def slow(*args: object) -> None:
        inside.set()
        go_on.wait(10)

    def forward() -> None:
        try:
            model(torch.ones(1, 2))
        except Exception as error:
            errors.append(error)

    model[0].register_forward_hook(slow, always_call=True)
    other = threading.Thread(target=forward)
    with capture(model):
        other.start()
        inside.wait(10)
    go_on.set()
    other.join(10)
    assert "mutated during iteration" in str(errors[0])
    assert repr(errors[0].__context__) == "KeyError('its own error')"


@each_block
def test_many_threads_with_blocks_and_without_run_the_same_model(block, threads_that_switch_often) -> None:
    model, errors, done = small(), [], threading.Event()
    expected = model(torch.ones(4, 2)).detach()

    def with_blocks() -> None:
        try:
            for _ in range(40):
                with block(model):
                    pass
        except Exception as error:
            errors.append(error)

    def plain() -> None:
        try:
            while not done.is_set():
                assert torch.equal(model(torch.ones(4, 2)), expected)
        except Exception as error:
            errors.append(error)

    requests = [threading.Thread(target=plain) for _ in range(4)]
    looks = [threading.Thread(target=with_blocks) for _ in range(3)]
    for thread in requests:
        thread.start()
    errors_of(*looks)
    done.set()
    for thread in requests:
        thread.join(60)
    assert errors == []
    assert leftover_hooks(model) == []


def test_run_until_in_many_threads_stops_only_its_own_forward(threads_that_switch_often) -> None:
    model, errors = small(), []
    expected = {stop: run_until(model, stop, torch.ones(4, 2)).detach() for stop in ("0", "1")}

    def stops(name: str) -> None:
        try:
            for _ in range(60):
                assert torch.equal(run_until(model, name, torch.ones(4, 2)), expected[name])
        except Exception as error:
            errors.append(error)

    errors_of(*(threading.Thread(target=stops, args=(name,)) for name in ("0", "1", "0", "1")))
    assert errors == []
    assert leftover_hooks(model) == []


def test_another_threads_forward_is_not_mixed() -> None:
    model, x, got = small(), torch.rand(4, 2), []
    expected = model(x).detach()
    with ManifoldMixup(model, ["0"], include_input=False)(x, torch.tensor([0, 1, 0, 1])) as mixed:
        other = threading.Thread(target=lambda: got.append(model(x).detach()))
        errors_of(other)
        model(mixed.x)
    assert len(got) == 1
    assert torch.equal(got[0], expected)


def test_threads_may_mix_batches_of_their_own_at_the_same_time() -> None:
    model, refused = SmallCNN(), []
    x, y = digits_like()

    def train() -> None:
        try:
            for _ in range(5):
                with mixer(model, "stage1")(x, y) as mixed:
                    meet.wait(10)
                    model(mixed.x)
                    meet.wait(10)
        except RuntimeError as error:
            refused.append(error)
            meet.abort()

    meet = threading.Barrier(2)
    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
