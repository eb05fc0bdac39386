"""capture beside the rest of PyTorch: modes, dtypes, devices, the compiler, threads, distributed training."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooklab
from hooklab import capture
from hooklab.course.processes import launch
from tests.nets import Wrap, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


# modes


def test_looking_in_train_mode_moves_statistics_and_in_eval_mode_does_not() -> None:
    spectral = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    model, x = nn.Sequential(nn.BatchNorm1d(3), spectral), torch.randn(4, 3)
    for mode in (model.eval, model.train):
        mode()
        before = [buffer.clone() for buffer in model.buffers()]
        with capture(model), torch.no_grad():
            model(x)
        same = [torch.equal(buffer, was) for buffer, was in zip(model.buffers(), before, strict=True)]
        assert all(same) is (mode == model.eval)


def test_under_no_grad_the_values_are_there() -> None:
    model, x = mlp(), ones(2, 3)
    with capture(model, grads=True) as seen, torch.no_grad():
        y = model(x)
    assert torch.equal(seen["2"], y)


def test_under_no_grad_an_in_place_change_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model) as seen, torch.no_grad():
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen["0"]


def test_under_inference_mode_a_value_is_kept_from_before_an_in_place_change() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)), ones(2, 3)
    with capture(model, inputs=True, grads=True) as seen, torch.inference_mode():
        model(x)
    expected = model[0](x)
    assert torch.equal(seen["0"], expected)
    assert torch.equal(seen.input("1").args[0], expected)


def test_under_autocast_values_have_the_dtype_that_the_module_gave() -> None:
    model = mlp()
    with capture(model, grads=True) as seen, torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(ones(2, 3))
        y.float().sum().backward()
    assert seen["0"].dtype == seen.grad("0").dtype == torch.bfloat16
    assert "bfloat16" in repr(seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_have_half_precision_values(dtype: torch.dtype) -> None:
    model = mlp().to(dtype)
    with capture(model, grads=True) as seen:
        y = model(ones(2, 3).to(dtype))
        y.sum().backward()
    assert torch.equal(seen["2"], y)
    assert seen.grad("0").dtype == dtype
    assert seen["0"].nbytes == 16


def test_a_sparse_output_is_captured_and_listed() -> None:
    class ToSparse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_sparse()

    model = ToSparse()
    with capture(model) as seen:
        model(torch.eye(3))
    assert seen[""].is_sparse
    assert repr(seen).splitlines()[-1].split() == ["''", "(3,", "3)", "float32", "36"]


@pytest.mark.parametrize(("layout", "shape"), [(torch.strided, "nested"), (torch.jagged, r"\(2, j\d+, 2\)")])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_nested_output_is_captured_and_listed(layout: torch.layout, shape: str) -> None:
    model = nn.Identity()
    with capture(model) as seen:
        model(torch.nested.nested_tensor([ones(2, 2), ones(3, 2)], layout=layout))
    assert seen[""].is_nested
    assert re.fullmatch(rf" *'' +{shape} float32 +40", repr(seen).splitlines()[-1])


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
    with capture(model) as seen, torch.no_grad():
        model(ones(2, 5, 8))
    assert seen.silent == []
    assert "layers.0.self_attn" in seen


# devices (the meta device stands for another one: it has shapes, and no values)


def test_values_move_to_the_device_asked_for() -> None:
    model = mlp()
    with capture(model, inputs=True, grads=True, device="meta") as seen:
        model(ones(2, 3)).sum().backward()
    assert seen["0"].device.type == seen.grad("0").device.type == seen.input("0").args[0].device.type == "meta"


def test_a_value_that_is_already_on_the_device_is_not_copied() -> None:
    model = mlp()
    with capture(model, "2", device="cpu") as seen:
        y = model(ones(2, 3))
    assert seen["2"].data_ptr() == y.data_ptr()


def test_a_value_that_is_already_on_the_device_is_not_safe_from_later_changes() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model, device="cpu") as seen:
        model(ones(2, 3))
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen["0"]


def test_a_value_that_was_moved_is_safe_from_later_changes() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(model, device="meta") as seen:
        model(ones(2, 3))
    assert seen["0"].shape == (2, 4)


# torch.compile


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def test_a_model_that_was_compiled_and_run_before_is_captured() -> None:
    model, x = mlp(), ones(2, 3)
    compiled = torch.compile(model, backend="eager")
    expected = compiled(x)
    with capture(compiled, grads=True) as seen:
        compiled(x).sum().backward()
    assert torch.equal(seen["2"], expected)
    assert seen.grad("0").shape == (2, 4)
    assert torch.equal(seen["_orig_mod.2"], expected)


def test_a_capture_of_the_compiled_wrapper_counts_the_passes_of_the_plain_model() -> None:
    model = mlp()
    with capture(torch.compile(model, backend="eager")) as seen:
        model(ones(2, 3))
        model(ones(2, 3))
    assert len(seen.calls("0")) == 1


def test_a_plain_model_is_captured_when_its_compiled_wrapper_is_called() -> None:
    model, x = mlp(), ones(2, 3)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    with capture(model) as seen:
        y = compiled(x)
    assert torch.equal(seen["2"], y)


def test_a_model_compiled_after_the_capture_was_made_is_captured() -> None:
    model = mlp()
    block = capture(model)
    compiled = torch.compile(model, backend="eager")
    compiled(ones(2, 3))
    with block as seen:
        compiled(ones(2, 3))
    assert list(seen) == ["0", "1", "2"]


def test_a_model_compiled_inside_the_block_is_captured() -> None:
    torch.compile(nn.ReLU(), backend="eager")  # loads the compiler
    model = mlp()
    with capture(model) as seen:
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        compiled(ones(2, 3))
    assert list(seen) == ["0", "1", "2"]


def test_a_model_compiled_in_place_is_captured() -> None:
    model = mlp()
    model.compile(backend="eager")
    model(ones(2, 3))
    with capture(model) as seen:
        model(ones(2, 3))
    assert list(seen) == ["0", "1", "2"]


def test_a_compiled_part_is_captured_inside() -> None:
    part = mlp()
    model = Wrap(torch.compile(part, backend="eager"))
    model(ones(2, 3))
    with capture(model) as seen:
        model(ones(2, 3))
    assert list(seen) == ["inner.0", "inner.1", "inner.2"]


def test_a_compiled_function_around_the_model_is_captured() -> None:
    model = mlp()
    step = torch.compile(lambda x: model(x).sum(), backend="eager")
    step(ones(2, 3))
    with capture(model) as seen:
        step(ones(2, 3))
    assert list(seen) == ["0", "1", "2"]


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


def test_calls_from_another_thread_are_not_recorded_and_the_error_says_so() -> None:
    model = mlp()
    with capture(model) as seen:
        thread = threading.Thread(target=model, args=(ones(2, 3),))
        thread.start()
        thread.join()
    with pytest.raises(LookupError, match="'0' did not run in the thread that opened the block"):
        _ = seen["0"]


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


def test_one_capture_may_be_open_in_two_threads_and_each_ends_its_own() -> None:
    model = mlp()
    block, first_is_open, second_is_open = capture(model, "0"), threading.Event(), threading.Event()
    results = []

    def first() -> None:
        with block as seen:
            first_is_open.set()
            second_is_open.wait(10)
            model(ones(5, 3))
        results.append(seen["0"].shape)

    thread = threading.Thread(target=first)
    thread.start()
    first_is_open.wait(10)
    with block as seen:
        second_is_open.set()
        thread.join()
        model(ones(2, 3))
    assert results == [(5, 4)]
    assert seen["0"].shape == (2, 4)


def test_a_pass_in_another_thread_does_not_end_ours() -> None:
    model = mlp()
    with capture(model) as seen:
        model(ones(2, 3))
        thread = threading.Thread(target=model, args=(ones(5, 3),))
        thread.start()
        thread.join()
    assert seen["0"].shape == (2, 4)


def test_a_backward_in_another_thread_is_recorded() -> None:
    model = mlp()
    with capture(model, grads=True) as seen:
        y = model(ones(2, 3)).sum()
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
    assert seen.grad("2").tolist() == [[1, 1], [1, 1]]


# distributed training


def a_step_in_each_process():  # type: ignore[no-untyped-def]  # it is written into a script, which knows no Any
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = torch.full((2, 3), float(dist.get_rank()))
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        hooklab.capture(model, grads=True) as seen,
        hooklab.capture(model.module, nn.Linear) as inner,
        hooklab.monitor(model, grads=True, updates=sgd) as health,
    ):
        for _ in range(2):
            model(x).sum().backward()
            sgd.step()
    return {
        "names": list(seen),
        "inner names": list(inner),
        "calls": [len(seen.calls(name)) for name in seen],
        "output": seen["module.0"],
        "expected output": model.module[0](x).detach(),
        "grad": seen.grad("module.2"),
        "weight grad": model.module[0].weight.grad,
        "monitored": [(row.step, row.kind, row.module) for row in health.rows],
        "mean": health.series("output", "module.0", "mean")[1][-1],
        "hooks left": len(hooklab.leftover_hooks(model)),
    }


def test_each_process_of_distributed_training_captures_and_monitors_its_own_part() -> None:
    saw = launch(a_step_in_each_process, seconds=120)
    for one in saw:
        assert one["names"] == ["module.0", "module.1", "module.2"]
        assert one["inner names"] == ["0", "2"]
        assert one["calls"] == [1, 1, 1]
        assert torch.equal(one["output"], one["expected output"])
        assert one["grad"].tolist() == [[1, 1], [1, 1]]
        assert one["hooks left"] == 0
        assert len(one["monitored"]) == 2 * (3 + 3 + 2) and one["monitored"][0] == (0, "output", "module.0")
        assert one["mean"] == pytest.approx(one["output"].mean().item())
    assert not torch.equal(saw[0]["output"], saw[1]["output"])
    assert torch.equal(saw[0]["weight grad"], saw[1]["weight grad"])  # averaged, as without capture
