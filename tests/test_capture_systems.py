"""capture beside the rest of PyTorch: modes, dtypes, devices, the compiler, threads, distributed training."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hooklab import capture
from tests.nets import Calls, in_thread, mlp, ones, seen_of

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


# modes


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_an_in_place_change_is_noticed_or_the_value_was_copied(mode: type) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)), ones(2, 3)
    expected = model[0](x)
    with mode(), capture(model, inputs=True, grads=True) as seen:
        model(x)
    assert (seen["1"] >= 0).all()
    if mode is torch.inference_mode:
        assert torch.equal(seen["0"], expected) and torch.equal(seen.input("1").args[0], expected)
    else:
        with pytest.raises(RuntimeError, match="changed in place"):
            _ = seen["0"]


@pytest.mark.parametrize("autocast", [False, True])
def test_values_and_gradients_have_the_dtype_that_the_module_gave(autocast: bool) -> None:
    model = mlp() if autocast else mlp().bfloat16()
    with capture(model, grads=True) as seen, torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        model(ones(2, 3).to(model[0].weight.dtype)).float().sum().backward()
    assert seen["0"].dtype == seen.grad("0").dtype == torch.bfloat16
    assert "bfloat16" in repr(seen) and seen["0"].nbytes == 16


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (torch.Tensor.to_sparse, r"\(2, 3\) float32 +24"),
        (lambda x: torch.nested.nested_tensor([x, x[:1]]), r"nested float32 +36"),
        (lambda x: torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged), r"\(2, j\d+, 3\) float32 +36"),
        (lambda x: x.to("meta"), r"\(2, 3\) float32 +24"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_sparse_a_nested_and_a_meta_output_are_captured_and_listed(make: Any, row: str) -> None:
    seen = seen_of(Calls(make))
    assert seen[""].layout == make(ones(2, 3)).layout
    assert re.search(row, repr(seen).splitlines()[-1])


def test_a_part_under_vmap_is_captured() -> None:
    model = mlp()
    with capture(model) as seen:
        torch.func.vmap(model)(ones(5, 3))
    assert list(seen) == ["0", "1", "2"]
    assert seen["0"].shape == (4,)  # one example's
    with pytest.raises(RuntimeError, match="escaped from inside a function being vmapped"):
        seen["0"].sum()


def test_the_fused_fast_path_of_a_transformer_does_not_hide_its_layers() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    with torch.no_grad():
        seen = seen_of(model, x=ones(2, 5, 8))
    assert seen.silent == [] and "layers.0.self_attn" in seen


# torch.compile


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def whole(model: nn.Module) -> Callable[..., torch.Tensor]:
    return torch.compile(model, backend="eager")


def in_place(model: nn.Module) -> Callable[..., torch.Tensor]:
    model.compile(backend="eager")
    return model


def around(model: nn.Module) -> Callable[..., torch.Tensor]:
    return torch.compile(lambda x: model(x) * 1, backend="eager")


@pytest.mark.parametrize("order", ["compiled first", "captured first", "compiled inside"])
@pytest.mark.parametrize("compiled_as", [whole, in_place, around])
def test_a_compiled_model_is_captured_as_the_plain_one(compiled_as: Any, order: str) -> None:
    torch.compile(nn.ReLU(), backend="eager")  # loads the compiler
    model, x = mlp(), ones(2, 3)
    expected = model(x)
    block = capture(model, grads=True)
    if order != "compiled inside":
        compiled = compiled_as(model)
        compiled(x)
    if order == "compiled first":
        block = capture(model, grads=True)
    with block as seen:
        if order == "compiled inside":
            compiled = compiled_as(model)
        compiled(x).sum().backward()
    assert list(seen) == ["0", "1", "2"]
    assert torch.equal(seen["2"], expected) and torch.equal(seen["_orig_mod.2"], expected)
    assert seen.grad("0").shape == (2, 4)


def test_a_strict_export_inside_the_block_is_refused_by_the_compiler() -> None:
    # torch 2.8 says it in words of its own
    said = "a hooklab block is open; compile or export before|Unexpectedly found a <class 'torch.Tensor'>"
    refused = pytest.raises((torch._dynamo.exc.Unsupported, AssertionError), match=said)
    model = mlp()
    with capture(model), refused:
        torch.export.export(model, (ones(2, 3),), strict=True)


def test_after_the_block_the_compiled_code_from_before_runs_again() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def counting(graph: torch.fx.GraphModule, example_inputs: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    model, x = mlp(), ones(2, 3)
    compiled = torch.compile(model, backend=counting)
    compiled(x)
    with capture(model):
        compiled(x)
    compiled(x)
    assert len(graphs) == 1


FIRST_COMPILE_INSIDE = """
    import sys, torch
    from torch import nn
    from hooklab import capture, edit, leftover_hooks, timeline
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.ones(2, 3)
    with capture(model):
        plain = model(x)
    assert "torch._dynamo" not in sys.modules, "opening a block must not import the compiler"
    with capture(model, inputs=True, grads=True) as seen, timeline(model) as events:
        with edit(model, lambda output, call: output * 0 + 7, "0"):
            compiled = torch.compile(model, backend="eager")
            for _ in range(2):
                y = compiled(x)
                y.sum().backward()
    assert leftover_hooks(model) == []
    assert y.tolist() == seen["1"].tolist() == [[7.0] * 4] * 2, y
    assert seen.grad("1").tolist() == [[1.0] * 4] * 2
    assert len(seen.calls("0")) == 1 and len(events) == 24, (len(seen.calls("0")), len(events))
    assert torch.equal(compiled(x), plain)
    print("done")
"""


def test_the_first_compilation_of_a_process_may_happen_inside_the_block() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIRST_COMPILE_INSIDE)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
    )
    assert run.stdout == "done\n", run.stderr


# threads


def test_calls_in_another_thread_are_not_recorded_and_end_no_pass_and_the_error_says_so() -> None:
    model = mlp()
    with capture(model) as seen:
        in_thread(model, ones(5, 3))
        with pytest.raises(LookupError, match="'0' did not run in the thread that opened the block"):
            _ = seen["0"]
        y = model(ones(2, 3))
        in_thread(model, ones(5, 3))
    assert torch.equal(seen["2"], y)


def test_a_backward_in_another_thread_is_recorded() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        in_thread(model(ones(2, 3)).sum().backward)
    assert seen.grad("2").tolist() == [[1, 1], [1, 1]]


def test_a_block_open_across_an_await_records_the_other_tasks_calls_too() -> None:
    model = mlp()

    async def watch() -> int:
        with capture(model, "0", keep="all") as seen:
            await asyncio.sleep(0)
            return len(seen.passes)

    async def run() -> None:
        model(ones(2, 3))

    async def both() -> int:
        return (await asyncio.gather(watch(), run()))[0]

    assert asyncio.run(both()) == 1
