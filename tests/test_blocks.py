"""What capture, edit, timeline and monitor have in common: however a block ends, nothing of it stays behind."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from hooklab import capture, edit, leftover_hooks, monitor, run_until, timeline
from hooklab._shared.sessions import Session
from hooklab.editing import Edit
from tests.nets import Calls, Raises, Wrap, in_thread, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


Tool = Callable[..., AbstractContextManager[Any]]

TOOLS: dict[str, Tool] = {
    "capture": lambda model, *what: capture(model, *what, inputs=True, grads=True),
    "edit": lambda model, *what: edit(model, lambda output, call: output + 1, *what),
    "timeline": timeline,
    "monitor": lambda model, *what: monitor(model, *what, grads=True, updates=torch.optim.SGD(model.parameters())),
}


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> Tool:
    return TOOLS[request.param]


def hooked(model: nn.Module) -> set[str]:
    return {left.name for left in leftover_hooks(model)}


def test_hooks_are_there_inside_the_block_only_and_the_users_own_stay(tool: Tool) -> None:
    model, ran = mlp(), []
    model[0].register_forward_hook(lambda *_: ran.append("forward"))
    model.register_forward_pre_hook(lambda *_: ran.append("pre"))
    model[0].weight.register_hook(lambda _: ran.append("tensor"))
    before = leftover_hooks(model)
    block = tool(model)
    assert leftover_hooks(model) == before
    with block:
        assert hooked(model) >= {"", "0", "1", "2"}
        model(ones(2, 3)).sum().backward()
        handle = model[1].register_forward_hook(lambda *_: None)
    assert hooked(model[1]) == {""}
    handle.remove()
    assert leftover_hooks(model) == before
    assert ran == ["pre", "forward", "tensor"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(), GeneratorExit()], ids=repr)
def test_an_exception_leaves_no_hook_and_passes_through(tool: Tool, error: BaseException) -> None:
    model = nn.Sequential(nn.Linear(3, 4), Raises(error), nn.Linear(4, 2))
    with pytest.raises(type(error)) as raised, tool(model):
        model(ones(2, 3))
    assert raised.value is error
    with pytest.raises(type(error)):
        run_until(model, "2", ones(2, 3))
    assert leftover_hooks(model) == []


def test_blocks_of_one_object_end_one_by_one_and_those_of_two_in_any_order(tool: Tool) -> None:
    model = mlp()
    first, second = tool(model, "0"), tool(model, "2")
    with first:
        one = len(leftover_hooks(model))
        with first:
            assert len(leftover_hooks(model)) > one
        assert len(leftover_hooks(model)) == one
        second.__enter__()
        assert hooked(model) == {"", "0", "2"}
    assert hooked(model) == {"", "2"}
    second.__exit__(None, None, None)
    assert leftover_hooks(model) == []
    with pytest.raises(RuntimeError, match=r"is not open: begin its block by `with`"):
        first.__exit__(None, None, None)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_torch_jit_compiled_is_refused_and_leaves_no_hook(tool: Tool) -> None:
    model = nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 4)))
    traced = torch.jit.trace(mlp(), ones(2, 3))
    with pytest.raises(TypeError, match=r"'1' was compiled by torch\.jit .* select around"):
        tool(model)
    for what in ([], ["0"], [""]):
        with pytest.raises(TypeError, match=r"this TopLevelTracedModule was compiled by torch\.jit .* the model that"):
            tool(traced, *what)
    with pytest.raises(TypeError, match=r"was compiled by torch\.jit"):
        run_until(traced, "0", ones(2, 3))
    with tool(model, "0"):
        model(ones(2, 3))
    assert leftover_hooks(model) == []


def outputs(tool: Tool, model: nn.Module) -> Iterator[torch.Tensor]:
    with tool(model):
        while True:
            yield model(ones(2, 3))


@pytest.mark.parametrize(
    "ends", [lambda stream: stream.close(), lambda stream: in_thread(stream.close), lambda stream: None]
)
def test_a_generator_that_is_closed_or_dropped_leaves_no_hook(tool: Tool, ends: Callable[[Any], None]) -> None:
    model = mlp()
    stream = outputs(tool, model)
    next(stream)
    assert leftover_hooks(model) != []
    ends(stream)
    del stream
    gc.collect()
    assert leftover_hooks(model) == []


# interrupts


def test_an_interrupt_while_hooks_are_registered_leaves_none_and_no_session(tool: Tool) -> None:
    def sessions() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Session) for thing in gc.get_objects())

    register, calls, before, at = nn.Module.register_forward_hook, [], sessions(), 0

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == at:
            raise KeyboardInterrupt
        return register(*args, **options)

    for _ in range(4):
        at += 1
        model = mlp()
        block = tool(model)
        with mock.patch.object(nn.Module, "register_forward_hook", interrupted), pytest.raises(KeyboardInterrupt):
            block.__enter__()
        calls.clear()
        assert leftover_hooks(model) == []
    del model, block
    assert sessions() == before


class StrikesOnce(OrderedDict[Any, Any]):
    """A table of hooks where Ctrl-C strikes when the first one is removed."""

    has_struck = False

    def __delitem__(self, key: Any) -> None:
        if not self.has_struck:
            self.has_struck = True
            raise KeyboardInterrupt
        super().__delitem__(key)


def test_an_interrupt_while_hooks_are_removed_leaves_none(tool: Tool) -> None:
    model = mlp()
    model[1]._forward_hooks = StrikesOnce()
    with pytest.raises(KeyboardInterrupt), tool(model):
        assert len(model[1]._forward_hooks) == 1
    assert leftover_hooks(model) == []


# modules and tools that register in their own way


class Own(nn.Linear):
    def register_forward_hook(self, *args: Any, **options: Any) -> Any:
        super().register_forward_hook(*args, **options)  # forgets the handle


class HandsOn(Wrap):
    def register_forward_hook(self, *args: Any, **options: Any) -> Any:
        return self.inner.register_forward_hook(*args, **options)


def test_a_module_that_registers_in_its_own_way_is_hooked_as_any_other(tool: Tool) -> None:
    model = nn.Sequential(Own(3, 3), HandsOn(nn.Linear(3, 3)))
    plain = model(ones(2, 3))
    with tool(model, "0", "1") as seen:
        y = model(ones(2, 3))
    assert not torch.equal(y, plain) if isinstance(seen, Edit) else len(getattr(seen, "rows", seen)) >= 2
    assert leftover_hooks(model) == []


def test_another_tool_may_replace_torchs_method() -> None:
    model, register = mlp(), nn.Module.register_forward_hook
    with mock.patch.object(nn.Module, "register_forward_hook", side_effect=register):  # noqa: SIM117
        with capture(model) as seen:
            model(ones(2, 3))
    assert list(seen) == ["0", "1", "2"]


def test_a_table_of_hooks_that_is_deleted_keeps_no_hook_on_other_modules(tool: Tool) -> None:
    model = mlp()
    with tool(model):
        del model[0]._forward_hooks
    model[0]._forward_hooks = OrderedDict()
    assert leftover_hooks(model) == []


def test_a_handle_that_cannot_be_removed_does_not_keep_the_others() -> None:
    model = mlp()
    with mock.patch.object(nn.Module, "register_forward_pre_hook", return_value=None):  # noqa: SIM117
        with pytest.raises(AttributeError, match="remove"), capture(model):
            pass
    assert leftover_hooks(model) == []


# memory, copies


def test_ten_thousand_cycles_do_not_grow(tool: Tool) -> None:
    model = nn.Linear(1, 1)
    block, x = tool(model), ones(1, 1)

    def cycle(times: int) -> None:
        for _ in range(times):
            with block:
                pass
        with block:
            model(x)

    cycle(10)
    gc.collect()
    before = len(gc.get_objects())
    cycle(10_000)
    gc.collect()
    assert leftover_hooks(model) == []
    assert len(gc.get_objects()) - before < 50


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_deep_copy_is_not_watched_and_keeps_no_hook(tool: Tool, when: str) -> None:
    model, x = mlp(), ones(2, 3)
    model[0].register_forward_hook(lambda *_: None)
    plain = model(x)
    early = copy.deepcopy(model)
    with tool(model) as seen:
        twin = copy.deepcopy(model) if when == "inside" else early
        assert torch.equal(twin(x), plain)  # not edited
        assert saw_nothing(seen)
    assert torch.equal(twin(x), plain)
    assert hooked(twin) == {"0"}


def test_deep_copies_inside_a_block_do_not_pile_up() -> None:
    model = mlp()
    block = capture(model)
    with block:
        session = block._open[0]
        for _ in range(10):
            copy.deepcopy(model)
        assert len(session.handles) <= 2 * 5


class OwnHandle:
    """What a library's own registration may return: it has a method remove, and no more."""

    def __init__(self, handle: Any) -> None:
        self.remove = handle.remove


class HasOwnHandles(torch.Tensor):
    def register_hook(self, hook: Callable[..., Any]) -> Any:
        return OwnHandle(super().register_hook(hook))


def test_handles_of_anothers_making_keep_nobody_from_a_copy_or_the_next_pass(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = nn.Module.register_forward_hook
    monkeypatch.setattr(
        nn.Module, "register_forward_hook", lambda self, *given, **options: OwnHandle(register(self, *given, **options))
    )
    model = nn.Sequential(nn.Linear(3, 3), Calls(lambda x: x.as_subclass(HasOwnHandles)), nn.ReLU())
    with tool(model):
        for _ in range(2):
            model(ones(2, 3)).sum().backward()
            copy.deepcopy(model)
    assert leftover_hooks(model) == []


def test_a_shallow_copy_shares_the_hooks_but_is_not_watched(tool: Tool) -> None:
    model, x = nn.Linear(3, 3), ones(2, 3)
    plain = model(x)
    with tool(model) as seen:
        twin = copy.copy(model)
        assert torch.equal(twin(x), plain)
        assert saw_nothing(seen)


def test_a_model_saved_inside_a_block_loads_also_where_hooklab_is_not_installed(tool: Tool) -> None:
    model, x, file = mlp(), ones(2, 3), io.BytesIO()
    plain = model(x)
    with tool(model):
        twin = pickle.loads(pickle.dumps(model))
        torch.save(model, file)
    assert b"hooklab" not in b"".join(zipfile.ZipFile(file).read(name) for name in zipfile.ZipFile(file).namelist())
    file.seek(0)
    for one in (twin, torch.load(file, weights_only=False)):
        assert torch.equal(one(x), plain)


# the compiler


@pytest.mark.parametrize("first_out", [0, 1])
def test_blocks_of_two_threads_may_end_in_any_order(tool: Tool, first_out: int) -> None:
    model = mlp()
    compiled = torch.compile(model, backend="eager")  # so that the compiler's stance is at stake as well
    opened, may_close = threading.Barrier(3, timeout=10), [threading.Event(), threading.Event()]

    def work(index: int) -> None:
        with tool(model):
            opened.wait()
            may_close[index].wait(10)

    with ThreadPoolExecutor(2) as pool:
        blocks = [pool.submit(work, index) for index in (0, 1)]
        opened.wait()
        for index in (first_out, 1 - first_out):
            may_close[index].set()
            blocks[index].result(10)
            assert (stance() == "force_eager") is (index == first_out)
    assert leftover_hooks(model) == []
    assert compiled(ones(1, 3)).shape == (1, 2)


def test_compiled_functions_run_eagerly_inside_the_block_and_the_users_stance_comes_back(tool: Tool) -> None:
    torch.compile(nn.ReLU(), backend="eager")  # loads the compiler
    model = mlp()
    with torch.compiler.set_stance("eager_on_recompile"):
        with tool(model):
            with tool(model):
                pass
            assert stance() == "force_eager"
        assert stance() == "eager_on_recompile"


def stance() -> str:
    return torch._dynamo.eval_frame._stance.stance


def saw_nothing(seen: Any) -> bool:
    return isinstance(seen, Edit) or len(getattr(seen, "rows", seen)) == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_tool_that_a_model_holds_sees_the_copy_after_the_model_is_copied(copied: Callable[[Any], Any]) -> None:
    model: Any = mlp()
    model.look, model.watch, model.off = capture(model, "0"), monitor(model, "0"), edit(model, negative, "0")
    twin = copied(model)
    with twin.look as seen, twin.watch as health, twin.off, capture(twin, "0") as edited:
        twin(ones(2, 3))
    assert list(seen) == ["0"] and [row.module for row in health.rows] == ["0"]
    assert torch.equal(edited["0"], -seen["0"])


def negative(output: torch.Tensor, call: object) -> torch.Tensor:
    return -output
