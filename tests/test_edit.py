"""edit and run_until: outputs are replaced, or the forward ends early, and mistakes are told apart."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklab import capture, edit, leftover_hooks, run_until
from tests.nets import Branch, Checkpointed, Emit, Pair, Raises, Recursive, Result, Reuse, Shared, Wrap, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def zero(output: Tensor, call: Any) -> Tensor:
    return output * 0


def test_the_returned_output_takes_the_place_of_the_modules() -> None:
    model = mlp()
    with edit(model, zero, "1"):
        y = model(ones(2, 3))
    assert torch.equal(y, model[2].bias.expand(2, 2))


def test_none_leaves_the_output_as_it_is() -> None:
    model, x = mlp(), ones(2, 3)
    with edit(model, lambda output, call: None):
        assert torch.equal(model(x), model(x))
    with edit(model, lambda output, call: None):
        inside = model(x)
    assert torch.equal(inside, model(x))


def test_without_names_all_layers_are_edited() -> None:
    model, edited = mlp(), []
    with edit(model, lambda output, call: edited.append(call.name)):
        model(ones(2, 3))
    assert edited == ["0", "1", "2"]


def test_the_model_itself_can_be_edited() -> None:
    model = mlp()
    with edit(model, zero, ""):
        assert model(ones(2, 3)).tolist() == [[0, 0], [0, 0]]


def test_the_edit_is_part_of_the_graph() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.ones(2, requires_grad=True)
    with edit(model, lambda output, call: output * 3, "0"):
        model(x).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_the_function_is_told_name_module_and_arguments() -> None:
    class Scale(nn.Module):
        def forward(self, x: Tensor, *, by: int) -> Tensor:
            return x * by

    model, calls = Scale(), []
    with edit(model, lambda output, call: calls.append(call)):
        model(ones(2), by=3)
    (call,) = calls
    assert (call.name, call.module, call.kwargs, call.index) == ("", model, {"by": 3}, 0)
    assert call.args[0].tolist() == [1, 1]


def test_each_use_of_a_module_has_its_index() -> None:
    model, x = Reuse(), ones(1, 3)
    with edit(model, lambda output, call: output * 0 if call.index == 2 else None, "act"), capture(model) as seen:
        for _ in range(2):  # counted anew in each pass
            assert model(x).tolist() == [[0, 0, 0]]
    assert seen.calls("act")[1].output.abs().min() > 0


def test_a_model_that_calls_itself_counts_through() -> None:
    model, indices = Recursive(), []
    with edit(model, lambda output, call: indices.append(call.index), "step"):
        model(ones(1, 3), depth=2)
    assert indices == [0, 1, 2]


def test_a_shared_module_is_edited_once_per_call() -> None:
    model, x, names = Shared(), ones(1, 3), []
    with edit(model, lambda output, call: names.append(call.name) or output + 1, "encoder", "decoder"):
        y = model(x)
    assert torch.allclose(y, model(x) + 1)
    assert names == ["encoder"]


def test_a_capture_opened_after_the_edit_sees_the_new_value_and_one_opened_before_the_old() -> None:
    model = mlp()
    with capture(model, "0") as before, edit(model, zero, "0"), capture(model, "0") as after:
        model(ones(2, 3))
    assert before["0"].abs().max() > 0
    assert after["0"].abs().max() == 0


def test_nested_edits_apply_in_the_order_of_opening() -> None:
    model = nn.Identity()
    with edit(model, lambda output, call: output + 1), edit(model, lambda output, call: output * 10):
        assert model(torch.tensor(1.0)).item() == 20


def test_a_compiled_model_is_edited() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="eager")
    compiled(ones(2, 3))
    with edit(model, zero, ""):
        assert compiled(ones(2, 3)).abs().max() == 0
    assert compiled(ones(2, 3)).abs().max() > 0


def test_an_edit_of_a_compiled_model_counts_the_passes_of_the_plain_one() -> None:
    model, indices = mlp(), []
    with edit(torch.compile(model, backend="eager"), lambda output, call: indices.append(call.index), "0"):
        model(ones(2, 3))
        model(ones(2, 3))
    assert indices == [0, 0]


def test_an_error_in_the_function_passes_through_and_leaves_no_hook() -> None:
    model = mlp()
    with pytest.raises(ZeroDivisionError), edit(model, lambda output, call: 1 / 0, "0"):
        model(ones(2, 3))
    assert leftover_hooks(model) == []


def test_something_that_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="needs a function second, not str"):
        edit(mlp(), "0", zero)  # type: ignore[arg-type]


def test_an_edit_says_what_it_is() -> None:
    assert repr(edit(mlp(), zero, nn.Linear)) == "edit of 2 modules of Sequential: 0, 2"


# structures


@pytest.mark.parametrize(
    ("shape", "double"),
    [
        ("tuple", lambda out, call: (out[0] * 2, None)),
        ("list", lambda out, call: [out[0] * 2, 5]),
        ("dict", lambda out, call: out | {"hidden": out["hidden"] * 2}),
        ("named tuple", lambda out, call: out._replace(left=out.left * 2)),
        ("dataclass", lambda out, call: Result(out.hidden * 2, "edited")),
    ],
)
def test_a_structure_can_be_replaced(shape: str, double: Any) -> None:
    model = Wrap(Emit(shape))
    with edit(model, double, "inner"):
        assert model(ones(1, 3)).tolist() == [[4, 4, 4]]


# mistakes


def test_another_shape_is_reported_with_both_shapes() -> None:
    model = mlp()
    message = r"the edit of '0' returned \(2, 3\) float32 in place of \(2, 4\) float32"
    with pytest.raises(ValueError, match=message), edit(model, lambda output, call: output[:, 1:], "0"):
        model(ones(2, 3))


def test_another_dtype_is_reported_with_both_dtypes() -> None:
    model = mlp()
    message = r"returned \(2, 4\) float64 in place of \(2, 4\) float32"
    with pytest.raises(ValueError, match=message), edit(model, lambda output, call: output.double(), "0"):
        model(ones(2, 3))


def test_another_device_is_reported_with_both_devices() -> None:
    model = mlp()
    with pytest.raises(ValueError, match="on meta in place of cpu"):  # noqa: SIM117
        with edit(model, lambda output, call: output.to("meta"), "0"):
            model(ones(2, 3))


def test_a_number_for_a_tensor_is_reported() -> None:
    model = mlp()
    with pytest.raises(TypeError, match=r"returned float in place of \(2, 4\) float32"):  # noqa: SIM117
        with edit(model, lambda output, call: 0.0, "0"):
            model(ones(2, 3))


@pytest.mark.parametrize(
    ("shape", "wrong", "message"),
    [
        ("tuple", lambda out, call: out[0], r"returned \(1, 3\) float32 in place of \(\(1, 3\) float32, None\)"),
        ("tuple", lambda out, call: list(out), r"returned \[\(1, 3\) float32, None\] in place of"),
        ("tuple", lambda out, call: out[:1], r"returned \(\(1, 3\) float32\) in place of"),
        (
            "tuple",
            lambda out, call: (out[0], out[0]),
            r"at \[1\] returned \(1, 3\) float32 in place of None",
        ),
        ("dict", lambda out, call: {"hidden": out["hidden"]}, r"returned \{'hidden': \(1, 3\) float32\} in place of"),
        ("named tuple", lambda out, call: tuple(out), r"in place of Pair\(\(1, 3\) float32, None\)"),
        ("dataclass", lambda out, call: out.hidden, r"in place of Result\(\(1, 3\) float32, str, None\)"),
    ],
)
def test_another_structure_is_reported_with_both_structures(shape: str, wrong: Any, message: str) -> None:
    model = Wrap(Emit(shape))
    with pytest.raises(TypeError, match=message), edit(model, wrong, "inner"):
        model(ones(1, 3))


def test_a_wrong_shape_deep_in_a_structure_is_reported_with_its_place() -> None:
    model = Wrap(Emit("dict"))
    message = r"the edit of 'inner' at \['nested'\]\[0\] returned \(1, 2\) float32 in place of \(1, 3\) float32"

    def cut(out: Any, call: Any) -> Any:
        return out | {"nested": (out["nested"][0][:, 1:],)}

    with pytest.raises(ValueError, match=message), edit(model, cut, "inner"):
        model(ones(1, 3))


# checkpoints and threads


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_an_edit_takes_part_in_what_a_checkpoint_computes_again(use_reentrant: bool) -> None:
    model, x = Checkpointed(use_reentrant), ones(2, 3)
    plain = nn.Sequential(model.stem, *model.block)

    def halve_the_first(output: Tensor, call: Any) -> Tensor | None:
        return output * 0.5 if call.index == 0 else None

    with edit(plain, halve_the_first, "1"):
        plain(x).sum().backward()
    expected = model.stem.weight.grad.clone()
    model.zero_grad()
    with edit(model, halve_the_first, "block.0"):
        model(x).sum().backward()
    assert torch.allclose(model.stem.weight.grad, expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_an_edit_that_a_checkpoint_would_do_without_is_told_at_the_end_of_the_block(use_reentrant: bool) -> None:
    model = Checkpointed(use_reentrant)
    with pytest.warns(match=r"'block\.0' was edited in a checkpoint.*Call backward\(\) inside the block"):  # noqa: SIM117
        with edit(model, zero, "block.0"):
            model(ones(2, 3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", ["0", "1", "2", ""])
def test_an_edit_in_a_checkpoint_is_all_right_if_backward_runs_in_the_block(name: str, use_reentrant: bool) -> None:
    model, x = mlp(), ones(1, 3).requires_grad_()
    with edit(model, lambda output, call: output * 0.5, name):  # the last one is not needed, and not computed again
        checkpoint(model, x, use_reentrant=use_reentrant).sum().backward()
        checkpoint(model, x, use_reentrant=use_reentrant).sum().backward()


@pytest.mark.filterwarnings("error")
def test_where_no_backward_follows_nothing_is_said_of_a_checkpoint() -> None:
    model = Checkpointed(use_reentrant=False)
    with edit(model, zero, "block.0"), torch.no_grad():
        model(ones(2, 3))
    with edit(model, lambda output, call: None, "block.0"):
        model(ones(2, 3))
    with edit(model, zero, "block.0"):
        model(ones(2, 3)).sum().backward()


def test_which_use_a_checkpoint_computes_again_cannot_be_told() -> None:
    model = Checkpointed(use_reentrant=False)
    model.block = nn.Sequential(model.block[0], model.block[0])
    with edit(model, lambda output, call: output * (call.index + 1), "block.0"):
        y = model(ones(2, 3))
        with pytest.raises(RuntimeError, match=r"'block\.0' was used several times .* by a checkpoint"):
            y.sum().backward()


def test_calls_from_another_thread_are_not_edited() -> None:
    model, x, results = mlp(), ones(2, 3), []
    with edit(model, zero, ""):
        thread = threading.Thread(target=lambda: results.append(model(x)))
        thread.start()
        thread.join()
    assert torch.equal(results[0], model(x))


def test_what_a_thread_of_autograd_computes_again_is_edited() -> None:
    # on a GPU, backward runs in threads that autograd made; Python knows such threads only as dummies, like this one
    model, x, done = Checkpointed(use_reentrant=False), ones(2, 3), threading.Event()
    with edit(model, lambda output, call: output * 0.5, "block.0"):
        model(x).sum().backward()
        expected = model.stem.weight.grad.clone()
        model.zero_grad()
        y = model(x).sum()

        def backward() -> None:
            y.backward()
            done.set()

        _thread.start_new_thread(backward, ())
        assert done.wait(10)
    assert torch.allclose(model.stem.weight.grad, expected)


# run_until


def test_run_until_returns_the_output_of_the_module() -> None:
    model, x = mlp(), ones(2, 3)
    assert torch.equal(run_until(model, "0", x), model[0](x))


def test_run_until_takes_a_module_object() -> None:
    model, x = mlp(), ones(2, 3)
    assert torch.equal(run_until(model, model[1], x), model[1](model[0](x)))


def test_nothing_after_the_module_runs() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Raises(AssertionError("must not run")))
    run_until(model, "0", ones(2, 3))


def test_the_output_of_run_until_is_live() -> None:
    model = mlp()
    run_until(model, "0", ones(2, 3)).sum().backward()
    assert model[0].weight.grad is not None


def test_run_until_leaves_no_hook() -> None:
    model = mlp()
    run_until(model, "0", ones(2, 3))
    assert leftover_hooks(model) == []


def test_run_until_passes_all_arguments_even_one_called_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: Tensor, y: Tensor, *, name: int) -> Tensor:
            return self.inner((x + y) * name)

    assert run_until(Named(), "inner", ones(2), ones(2), name=3).tolist() == [6, 6]


def test_run_until_stops_at_the_first_use() -> None:
    model, x = Reuse(), ones(1, 3)
    assert torch.equal(run_until(model, "act", x), x.tanh())


def test_run_until_returns_what_the_users_hook_and_an_edit_made_of_the_output() -> None:
    model, x = mlp(), ones(2, 3)
    handle = model[0].register_forward_hook(lambda module, args, output: output * 0 + 1)
    with edit(model, lambda output, call: output + 1, "0"):
        assert run_until(model, "0", x).tolist() == [[2] * 4] * 2
    handle.remove()


def test_run_until_returns_any_structure_even_none() -> None:
    assert run_until(Wrap(Emit("none")), "inner", ones(1)) is None
    assert isinstance(run_until(Wrap(Emit("named tuple")), "inner", ones(1)), Pair)


def test_run_until_inside_a_capture_is_a_pass_of_its_own() -> None:
    model = mlp()
    with capture(model) as seen:
        for _ in range(2):
            run_until(model, "1", ones(2, 3))
    assert list(seen) == ["0", "1"]
    assert seen["0"].shape == (2, 4)


def test_a_model_that_catches_exceptions_does_not_swallow_the_stop() -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.inner(x) + 1
            except Exception as error:
                raise ValueError("inner failed") from error

    assert run_until(Careful(), "inner", ones(2)).tolist() == [1, 1]


def test_a_failure_before_the_module_is_the_callers() -> None:
    model = nn.Sequential(Raises(ZeroDivisionError()), nn.Identity())
    with pytest.raises(ZeroDivisionError):
        run_until(model, "1", ones(2))


def test_a_module_that_the_model_does_not_use_raises() -> None:
    with pytest.raises(LookupError, match="the model finished without running 'unused'"):
        run_until(Branch(), "unused", ones(1, 3))


def test_run_until_raises_for_a_misspelt_name_before_the_model_runs() -> None:
    model = nn.Sequential(Raises(AssertionError("must not run")))
    with pytest.raises(LookupError, match="is named 'x'"):
        run_until(model, "x", ones(1))


def test_run_until_stops_at_one_module_only() -> None:
    with pytest.raises(ValueError, match=r"stops at one module; '\*' matches 4: '', '0', '1', '2'\."):
        run_until(mlp(), "*", ones(1, 3))


def test_run_until_lists_a_few_of_many_matches() -> None:
    model = nn.Sequential(*(nn.ReLU() for _ in range(20)))
    with pytest.raises(ValueError, match=r"matches 20: '0', '1', '2', '3', '4' and 15 more\."):
        run_until(model, "[0-9]*", ones(1))


def test_run_until_with_the_name_first_says_that_the_model_comes_first() -> None:
    model = mlp()
    with pytest.raises(TypeError, match=r"the model comes first, and is an nn\.Module object, not str"):
        run_until("0", model, ones(1, 3))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_the_output_of_run_until_inside_a_reentrant_checkpoint_has_no_graph(use_reentrant: bool) -> None:
    output = run_until(Checkpointed(use_reentrant), "block.0", ones(2, 3))
    assert output.requires_grad is not use_reentrant


def test_run_until_works_on_a_compiled_model() -> None:
    model, x = mlp(), ones(2, 3)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    assert torch.equal(run_until(compiled, "0", x), model[0](x))


def test_run_until_in_one_thread_does_not_stop_another() -> None:
    model, x = mlp(), ones(2, 3)
    inside, go_on, results = threading.Event(), threading.Event(), []

    class Wait(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not inside.is_set():
                inside.set()
                go_on.wait(10)
            return x

    model.insert(0, Wait())
    thread = threading.Thread(target=lambda: results.append(run_until(model, "1", x)))
    thread.start()
    inside.wait(10)
    assert model(x).shape == (2, 2)
    go_on.set()
    thread.join()
    assert results[0].shape == (2, 4)


# steps of a loop


class LanguageModel(nn.Module):
    """A loop that calls the model itself step by step, the later steps with one token, as with a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))

    def generate(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        for _ in range(steps):
            x = torch.cat([x, self(x[-1:])])
        return x


def test_an_edit_knows_the_step_of_a_loop_it_is_in() -> None:
    model, seen = LanguageModel(), []
    with edit(model, lambda output, call: seen.append((call.pass_index, call.index)), "layer"):
        model.generate(torch.ones(1, 2), 3)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_where_the_model_itself_is_never_called_each_step_is_a_pass() -> None:
    model, seen = LanguageModel(), []
    wrapper = nn.Sequential(model)  # as a wrapper whose generate calls the inner model
    with edit(wrapper, lambda output, call: seen.append((call.pass_index, call.index)), "0.layer"):
        wrapper[0].generate(torch.ones(1, 2), 3)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_the_steps_of_a_second_block_are_counted_anew() -> None:
    model, seen = LanguageModel(), []
    steering = edit(model, lambda output, call: seen.append(call.pass_index), "layer")
    for _ in range(2):
        with steering:
            model.generate(torch.ones(1, 2), 2)
    assert seen == [0, 0, 1, 1] * 2


def test_a_call_shows_which_use_of_which_pass_it_is() -> None:
    model, shown = LanguageModel(), []
    with edit(model, lambda output, call: shown.append(repr(call)), "layer"):
        model.generate(torch.ones(1, 2), 1)
    assert shown == ["<call 0 of 'layer' in pass 0>", "<call 1 of 'layer' in pass 0>"]


def test_one_step_of_a_loop_can_be_edited() -> None:
    model, x = LanguageModel(), torch.ones(1, 2)
    with edit(model, lambda output, call: output * 0 if call.pass_index == 1 else None, "layer"):
        steps = model.generate(x, 3)
    expected = [x, model(x), torch.zeros(1, 2)]
    assert torch.equal(steps, torch.cat([*expected, model(expected[-1])]))


def test_where_a_trainer_calls_several_parts_they_are_one_pass() -> None:
    model, seen = nn.ModuleDict({"encoder": nn.Linear(2, 2), "decoder": nn.Linear(2, 2)}), []
    with edit(model, lambda output, call: seen.append((call.name, call.pass_index, call.index))):
        for _ in range(2):
            model["decoder"](model["encoder"](torch.ones(1, 2)))
    assert seen == [("encoder", 0, 0), ("decoder", 0, 0), ("encoder", 1, 0), ("decoder", 1, 0)]


# what run_until leaves out, and what it puts back


def test_the_closing_hooks_around_the_stop_run_only_if_they_are_always_called() -> None:
    model, closed = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), []
    model[0].register_forward_hook(lambda *args: closed.append("plain"))
    model[0].register_forward_hook(lambda *args: closed.append("always"), always_call=True)
    run_until(model, "0.0", torch.ones(1, 2))
    assert closed == ["always"]


def test_a_full_backward_hook_on_the_stop_sees_nothing_and_one_before_it_does() -> None:
    model, seen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), []
    for module in model:
        module.register_full_backward_hook(lambda module, *grads: seen.append(module))
    run_until(model, "1", torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert seen == [model[0]]


def test_run_until_puts_back_a_mode_that_the_model_switched_by_hand() -> None:
    class Switches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = torch.is_grad_enabled()
            torch.set_grad_enabled(False)
            torch.set_autocast_enabled("cpu", True)
            torch.set_autocast_dtype("cpu", torch.float16)
            out: torch.Tensor = self.layer(x)
            torch.set_grad_enabled(before)
            torch.set_autocast_enabled("cpu", False)
            return out

    dtype = torch.get_autocast_dtype("cpu")
    run_until(Switches(), "layer", torch.ones(1, 2))
    try:
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == dtype
    finally:
        torch.set_grad_enabled(True)
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", dtype)
