"""What capture, edit, timeline and monitor have in common: however a block ends, nothing of it stays behind."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from hooklab import capture, edit, leftover_hooks, monitor, placing, run_until, timeline
from hooklab.editing import Edit
from hooklab.sessions import Session
from tests.nets import mlp, ones

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


def test_hooks_are_there_inside_the_block_and_gone_after_it(tool: Tool) -> None:
    model = mlp()
    with tool(model):
        assert {left.name for left in leftover_hooks(model)} == {"", "0", "1", "2"}
    assert leftover_hooks(model) == []


def test_making_one_registers_nothing(tool: Tool) -> None:
    model = mlp()
    tool(model)
    assert leftover_hooks(model) == []


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(), GeneratorExit()], ids=repr)
def test_an_exception_leaves_no_hook_and_passes_through(tool: Tool, error: BaseException) -> None:
    model = mlp()

    def work() -> None:
        with tool(model):
            model(ones(2, 3))
            raise error

    with pytest.raises(type(error)) as raised:
        work()
    assert raised.value is error
    assert leftover_hooks(model) == []


def test_an_exception_in_the_forward_leaves_no_hook(tool: Tool) -> None:
    model = mlp()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tool(model):
        model(ones(2, 99))
    assert leftover_hooks(model) == []


def test_a_bad_second_name_leaves_no_hook(tool: Tool) -> None:
    model = mlp()
    with pytest.raises(LookupError, match="'tw0'"):
        tool(model, "0", "tw0").__enter__()
    assert leftover_hooks(model) == []


def test_nested_blocks_end_one_by_one(tool: Tool) -> None:
    model = mlp()
    with tool(model, "0"):
        with tool(model, "2"):
            assert {left.name for left in leftover_hooks(model)} == {"", "0", "2"}
        assert {left.name for left in leftover_hooks(model)} == {"", "0"}
    assert leftover_hooks(model) == []


def test_one_object_may_be_entered_inside_itself(tool: Tool) -> None:
    model = mlp()
    block = tool(model, "0")
    with block:
        one = len(leftover_hooks(model))
        with block:
            assert len(leftover_hooks(model)) == 2 * one
        assert len(leftover_hooks(model)) == one
    assert leftover_hooks(model) == []


def test_ending_a_block_that_is_not_open_is_an_error(tool: Tool) -> None:
    block = tool(mlp(), "0")
    with pytest.raises(RuntimeError, match=r"is not open: begin its block by `with`"):
        block.__exit__(None, None, None)


def test_blocks_of_one_object_each_may_end_in_the_order_of_their_beginning(tool: Tool) -> None:
    model = mlp()
    first, second = tool(model, "0"), tool(model, "2")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert {left.name for left in leftover_hooks(model)} == {"", "2"}
    second.__exit__(None, None, None)
    assert leftover_hooks(model) == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_scripted_part_is_refused_by_name_and_leaves_no_hook(tool: Tool) -> None:
    model = nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 4)))
    with pytest.raises(RuntimeError, match=r"'1' was compiled by torch\.jit\.script .* select around it"), tool(model):
        pytest.fail("the block must not begin")
    assert leftover_hooks(model) == []
    with tool(model, "0"):
        model(ones(2, 3))
    assert leftover_hooks(model) == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_run_until_refuses_a_scripted_part_by_name() -> None:
    model = nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 4)))
    with pytest.raises(RuntimeError, match=r"'1' was compiled by torch\.jit\.script .* select around it"):
        run_until(model, "1", ones(2, 3))
    assert leftover_hooks(model) == []


def outputs(tool: Tool, model: nn.Module) -> Iterator[torch.Tensor]:
    with tool(model):
        while True:
            yield model(ones(2, 3))


def test_a_closed_generator_leaves_no_hook(tool: Tool) -> None:
    model = mlp()
    stream = outputs(tool, model)
    next(stream)
    assert leftover_hooks(model) != []
    stream.close()
    assert leftover_hooks(model) == []


def test_a_generator_that_is_dropped_leaves_no_hook(tool: Tool) -> None:
    model = mlp()
    stream = outputs(tool, model)
    next(stream)
    del stream
    gc.collect()
    assert leftover_hooks(model) == []


def test_a_generator_closed_in_another_thread_leaves_no_hook(tool: Tool) -> None:
    model = mlp()
    stream = outputs(tool, model)
    next(stream)
    thread = threading.Thread(target=stream.close)  # type: ignore[attr-defined]
    thread.start()
    thread.join()
    assert leftover_hooks(model) == []


class Interrupting(nn.Linear):
    """A module where Ctrl-C strikes while a hook is being registered: before or after it is in the table."""

    def __init__(self, after: bool) -> None:
        super().__init__(4, 2)
        self.after = after

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        if self.after:
            super().register_forward_hook(*args, **kwargs)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_half_way_through_attaching_leaves_no_hook(tool: Tool, after: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Interrupting(after))
    with pytest.raises(KeyboardInterrupt), tool(model):
        pytest.fail("the block must not begin")
    assert leftover_hooks(model) == []


def test_blocks_that_failed_to_open_do_not_pile_up(tool: Tool) -> None:
    def sessions() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Session) for thing in gc.get_objects())

    before = sessions()  # another test may have left one: what its failure shows keeps its variables
    block = tool(nn.Sequential(Interrupting(after=False)))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            block.__enter__()
    assert sessions() == before


class StrikesOnce(OrderedDict[Any, Any]):
    """A table of hooks where Ctrl-C strikes when the first one is taken out."""

    has_struck = False

    def pop(self, *args: Any) -> Any:
        if not self.has_struck:
            self.has_struck = True
            raise KeyboardInterrupt
        return super().pop(*args)


def test_an_interrupt_half_way_through_taking_hooks_out_leaves_none(tool: Tool) -> None:
    model = mlp()
    model[1]._forward_hooks = StrikesOnce()
    with pytest.raises(KeyboardInterrupt), tool(model):
        assert len(model[1]._forward_hooks) == 1
    assert leftover_hooks(model) == []


class RegistersItself(nn.Linear):
    """A module with its own way of registering, whose handle lets Ctrl-C strike before it removes."""

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        handle = super().register_forward_hook(*args, **kwargs)
        remove, strikes = handle.remove, iter([True])

        def interrupted() -> None:
            if next(strikes, False):
                raise KeyboardInterrupt
            remove()

        handle.remove = interrupted
        return handle


def test_an_interrupt_half_way_through_removing_a_handle_leaves_no_hook(tool: Tool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), RegistersItself(4, 2))
    with pytest.raises(KeyboardInterrupt), tool(model):
        assert len(leftover_hooks(model[1])) >= 1
    assert leftover_hooks(model) == []


@pytest.mark.parametrize("puts_back", [False, True])
def test_tables_that_the_model_exchanges_keep_no_hook(tool: Tool, puts_back: bool) -> None:
    model = mlp()
    with tool(model):
        old, model[1]._forward_hooks = model[1]._forward_hooks, copy.copy(model[1]._forward_hooks)
    if puts_back:
        model[1]._forward_hooks = old
    assert leftover_hooks(model) == []


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_a_torch_without_the_tables_registers_as_everybody_does(
    tool: Tool, error: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "has_hook_tables", False)
    model, x = mlp(), ones(2, 3)
    with nullcontext() if error is None else pytest.raises(error), tool(model):
        assert {left.name for left in leftover_hooks(model)} == {"", "0", "1", "2"}
        model(x).sum().backward()
        if error is not None:
            raise error
    assert leftover_hooks(model) == []


def test_the_users_own_hooks_stay_and_keep_running(tool: Tool) -> None:
    model, ran = mlp(), []
    model[0].register_forward_hook(lambda *_: ran.append("forward"))
    model.register_forward_pre_hook(lambda *_: ran.append("pre"))
    model[0].weight.register_hook(lambda _: ran.append("tensor"))
    before = leftover_hooks(model)
    with tool(model):
        model(ones(2, 3)).sum().backward()
    assert leftover_hooks(model) == before
    assert ran == ["pre", "forward", "tensor"]


def test_a_hook_that_the_user_registers_inside_the_block_stays(tool: Tool) -> None:
    model = mlp()
    with tool(model):
        model[0].register_forward_hook(lambda *_: None)
    assert [left.name for left in leftover_hooks(model)] == ["0"]


def test_capturing_and_tracing_change_no_value() -> None:
    torch.manual_seed(0)
    model, x = mlp(), ones(2, 3)
    plain = model(x)
    for name in ("capture", "timeline", "monitor"):
        with TOOLS[name](model):
            assert torch.equal(model(x), plain)


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


def test_a_deep_copy_made_inside_the_block_is_not_watched(tool: Tool) -> None:
    model, x = mlp(), ones(2, 3)
    plain = model(x)
    with tool(model) as seen:
        twin = copy.deepcopy(model)
        assert torch.equal(twin(x), plain)  # not edited
        assert _saw_nothing(seen)
    assert torch.equal(twin(x), plain)
    assert {left.function for left in leftover_hooks(twin)} <= {"InertHook"}


def test_a_deep_copy_made_before_is_not_watched(tool: Tool) -> None:
    model, x = mlp(), ones(2, 3)
    plain = model(x)
    twin = copy.deepcopy(model)
    with tool(model):
        assert torch.equal(twin(x), plain)
        assert leftover_hooks(twin) == []


def test_a_shallow_copy_shares_the_hooks_but_is_not_watched(tool: Tool) -> None:
    model, x = nn.Linear(3, 3), ones(2, 3)
    plain = model(x)
    with tool(model) as seen:
        twin = copy.copy(model)
        assert torch.equal(twin(x), plain)
        assert _saw_nothing(seen)


def test_a_model_can_be_pickled_inside_the_block(tool: Tool) -> None:
    model, x = mlp(), ones(2, 3)
    plain = model(x)
    with tool(model):
        twin = pickle.loads(pickle.dumps(model))
        saved = io.BytesIO()
        torch.save(model, saved)
    saved.seek(0)
    assert torch.equal(twin(x), plain)
    assert torch.equal(torch.load(saved, weights_only=False)(x), plain)


def test_two_threads_with_a_block_each_do_not_see_each_other(tool: Tool) -> None:
    model = mlp()
    model(ones(1, 3))
    both_open, results = threading.Barrier(2, timeout=10), {}

    def work(rows: int) -> None:
        with tool(model, "0") as seen:
            both_open.wait()
            for _ in range(20):
                y = model(torch.full((rows, 3), float(rows)))
            results[rows] = seen, y.detach()
            both_open.wait()

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert leftover_hooks(model) == []
    for rows, (seen, y) in results.items():
        if tool is TOOLS["capture"]:
            assert seen["0"].shape == (rows, 4)
            assert seen.input("0").args[0].tolist() == [[float(rows)] * 3] * rows
        elif tool is TOOLS["timeline"]:
            assert len(seen) == 40
        elif tool is TOOLS["monitor"]:
            assert len(seen.rows) == 20 and {row.values for row in seen.rows} == {rows * 4}
        else:  # edited once, not twice
            x = torch.full((rows, 3), float(rows))
            assert torch.allclose(y, model[2](model[1](model[0](x) + 1)))


@pytest.mark.parametrize("first_out", [0, 1])
def test_blocks_of_two_threads_may_end_in_any_order(tool: Tool, first_out: int) -> None:
    model = mlp()
    compiled = torch.compile(model, backend="eager")  # so that the compiler's stance is at stake as well
    opened, may_close = threading.Barrier(3, timeout=10), [threading.Event(), threading.Event()]

    def work(index: int) -> None:
        with tool(model):
            opened.wait()
            may_close[index].wait(10)

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    opened.wait()
    for index in (first_out, 1 - first_out):
        may_close[index].set()
        threads[index].join()
        assert _runs_eagerly() is (index == first_out)
    assert leftover_hooks(model) == []
    assert compiled(ones(1, 3)).shape == (1, 2)


def test_compiled_functions_run_eagerly_inside_the_block_only(tool: Tool) -> None:
    torch.compile(nn.ReLU(), backend="eager")  # loads the compiler
    model = mlp()
    assert not _runs_eagerly()
    with tool(model):
        assert _runs_eagerly()
        with tool(model):
            assert _runs_eagerly()
        assert _runs_eagerly()
    assert not _runs_eagerly()


def test_the_users_own_compiler_stance_comes_back(tool: Tool) -> None:
    torch.compile(nn.ReLU(), backend="eager")
    with torch.compiler.set_stance("eager_on_recompile"):
        with tool(mlp()):
            pass
        assert torch._dynamo.eval_frame._stance.stance == "eager_on_recompile"


def test_run_until_leaves_no_hook_when_the_model_raises() -> None:
    model = mlp()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run_until(model, "2", ones(2, 99))
    assert leftover_hooks(model) == []


def _runs_eagerly() -> bool:
    return torch._dynamo.eval_frame._stance.stance == "force_eager"


def _saw_nothing(seen: Any) -> bool:
    return isinstance(seen, Edit) or len(getattr(seen, "rows", seen)) == 0
