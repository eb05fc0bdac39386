"""edit and run_until: outputs are replaced, or the forward ends early, and mistakes are told apart."""

from __future__ import annotations

import _thread
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from hooklab import capture, edit, leftover_hooks, run_until
from hooklab.editing import EditCall
from tests.nets import Branch, Calls, Checkpointed, Emit, Raises, Result, Reuse, Shared, Wrap, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def zero(output: Tensor, call: Any) -> Tensor:
    return output * 0


def test_the_returned_output_replaces_the_modules_and_none_leaves_it() -> None:
    model, x, edited = mlp(), ones(2, 3), []
    plain = model(x)
    with edit(model, zero, "1"):
        assert torch.equal(model(x), model[2].bias.expand(2, 2))
    with edit(model, zero, ""):
        assert model(x).tolist() == [[0, 0], [0, 0]]
    with edit(model, lambda output, call: edited.append(call.name)):
        assert torch.equal(model(x), plain)
    assert edited == ["0", "1", "2"]


def test_the_function_gets_name_module_and_arguments() -> None:
    model, calls = Calls(lambda x, by: x * by), []
    with edit(model, lambda output, call: calls.append(call)):
        model(ones(2), by=3)
    (call,) = calls
    assert (call.name, call.module, call.kwargs, call.index, call.pass_index) == ("", model, {"by": 3}, 0, 0)
    assert call.args[0].tolist() == [1, 1]
    assert repr(call) == "<call 0 of '' in pass 0>"


def test_a_shared_module_is_edited_once_per_call() -> None:
    model, x, names = Shared(), ones(1, 3), []
    with edit(model, lambda output, call: names.append(call.name) or output + 1, "encoder", "decoder"):
        y = model(x)
    assert torch.allclose(y, model(x) + 1)
    assert names == ["encoder"]


def test_edits_and_captures_apply_in_the_order_of_opening() -> None:
    model = nn.Identity()
    with (
        capture(model) as before,
        edit(model, lambda output, call: output + 1),
        edit(model, lambda output, call: output * 10),
        capture(model) as after,
    ):
        model(torch.tensor(1.0))
    assert (before[""].item(), after[""].item()) == (1, 20)


def test_a_compiled_model_is_edited_and_counts_the_passes_of_the_plain_one() -> None:
    model, indices = mlp(), []
    compiled = torch.compile(model, backend="eager")
    compiled(ones(2, 3))
    with edit(compiled, lambda output, call: indices.append(call.index) or output * 0, "2"):
        assert compiled(ones(2, 3)).abs().max() == 0
        assert model(ones(2, 3)).abs().max() == 0
    assert compiled(ones(2, 3)).abs().max() > 0
    assert indices == [0, 0]


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


@pytest.mark.parametrize(
    ("shape", "wrong", "error", "message"),
    [
        ("tensor", lambda out, call: out[:, 1:], ValueError, r"of 'inner' returned \(1, 2\) .* instead of \(1, 3\)"),
        ("tensor", lambda out, call: out.double(), ValueError, r"\(1, 3\) float64 instead of \(1, 3\) float32"),
        ("tensor", lambda out, call: out.to("meta"), ValueError, "on meta instead of cpu"),
        ("tensor", lambda out, call: 0.0, TypeError, r"returned float instead of \(1, 3\) float32"),
        ("tuple", lambda out, call: out[0], TypeError, r"\(1, 3\) float32 instead of \(\(1, 3\) float32, None\)"),
        ("tuple", lambda out, call: list(out), TypeError, r"returned \[\(1, 3\) float32, None\] instead of"),
        ("tuple", lambda out, call: out[:1], TypeError, r"returned \(\(1, 3\) float32\) instead of"),
        ("tuple", lambda out, call: (out[0], out[0]), TypeError, r"at \[1\] returned \(1, 3\) float32 instead of None"),
        ("dict", lambda out, call: {"hidden": out["hidden"]}, TypeError, r"returned \{'hidden': .*\} instead of"),
        ("dict", lambda out, call: out | {"nested": (ones(1, 2),)}, ValueError, r"at \['nested'\]\[0\] returned"),
        ("named tuple", lambda out, call: tuple(out), TypeError, r"instead of Pair\(\(1, 3\) float32, None\)"),
        ("dataclass", lambda out, call: out.hidden, TypeError, r"instead of Result\(\(1, 3\) float32, str, None\)"),
    ],
)
def test_an_edit_that_does_not_fit_is_reported_with_both_values(
    shape: str, wrong: Any, error: type[Exception], message: str
) -> None:
    model = Wrap(Emit(shape))
    with pytest.raises(error, match=message), edit(model, wrong, "inner"):
        model(ones(1, 3))


# checkpoints and threads


def halve_the_first(value: Any, call: EditCall) -> Tensor | None:
    """For an output, or for inputs."""
    tensor = value[0] if isinstance(value, tuple) else value
    return tensor * 0.5 if call.index == 0 else None


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_an_edit_takes_part_in_what_a_checkpoint_recomputes(use_reentrant: bool, inputs: bool) -> None:
    model, x = Checkpointed(use_reentrant), ones(2, 3)
    plain = nn.Sequential(model.stem, *model.block)
    with edit(plain, halve_the_first, "1", inputs=inputs):
        plain(x).sum().backward()
    expected = model.stem.weight.grad.clone()
    model.zero_grad()
    with edit(model, halve_the_first, "block.0", inputs=inputs):
        model(x).sum().backward()
    assert torch.allclose(model.stem.weight.grad, expected)


def test_what_a_thread_of_autograd_recomputes_is_edited() -> None:
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


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_an_edit_that_a_checkpoint_would_do_without_is_reported_at_the_end_of_the_block(
    use_reentrant: bool, inputs: bool
) -> None:
    model = Checkpointed(use_reentrant)
    with pytest.warns(match=r"'block\.0' was edited in a checkpoint.*Call backward\(\) inside the block"):  # noqa: SIM117
        with edit(model, halve_the_first, "block.0", inputs=inputs):
            model(ones(2, 3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("inputs", [False, True])
def test_without_a_backward_pass_or_a_change_a_checkpoint_is_not_reported(inputs: bool) -> None:
    model = Checkpointed(use_reentrant=False)
    with edit(model, halve_the_first, "block.0", inputs=inputs), torch.no_grad():
        model(ones(2, 3))
    with edit(model, lambda value, call: None, "block.0", inputs=inputs):
        model(ones(2, 3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", ["0", "1", "2", ""])
def test_an_edit_in_a_checkpoint_is_all_right_if_backward_runs_in_the_block(name: str, use_reentrant: bool) -> None:
    model, x = mlp(), ones(1, 3).requires_grad_()
    with edit(model, lambda output, call: output * 0.5, name):  # the last one is not needed, and not recomputed
        checkpoint(model, x, use_reentrant=use_reentrant).sum().backward()
        checkpoint(model, x, use_reentrant=use_reentrant).sum().backward()


def test_an_edited_output_keeps_no_model_alive() -> None:
    model = mlp()
    with edit(model, lambda output, call: output * 0.5, "0"):
        y = checkpoint(model, ones(1, 3).requires_grad_(), use_reentrant=False)
        y.sum().backward()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None and y.grad_fn is not None


def test_which_use_a_checkpoint_recomputes_is_unknown() -> None:
    model = Checkpointed(use_reentrant=False)
    model.block = nn.Sequential(model.block[0], model.block[0])
    with edit(model, lambda output, call: output * (call.index + 1), "block.0"):
        y = model(ones(2, 3))
        with pytest.raises(RuntimeError, match=r"'block\.0' was used several times .* checkpoint"):
            y.sum().backward()


# run_until


@pytest.mark.parametrize("is_compiled", [False, True])
def test_run_until_returns_the_live_output_of_the_module_and_leaves_no_hook(is_compiled: bool) -> None:
    model, x = mlp(), ones(2, 3)
    called = torch.compile(model, backend="eager") if is_compiled else model
    called(x)
    assert torch.equal(run_until(called, "0", x), model[0](x))
    output = run_until(called, model[1], x)
    assert torch.equal(output, model[1](model[0](x)))
    output.sum().backward()
    assert model[0].weight.grad is not None
    assert leftover_hooks(model) == []


def test_run_until_takes_any_arguments_and_returns_what_hooks_and_edits_made_of_the_output_even_none() -> None:
    model = Calls(lambda x, y, *, name: (x + y) * name)
    model.register_forward_hook(lambda module, args, output: output + 1)
    with edit(model, lambda output, call: output * 2):
        assert run_until(model, "", ones(2), ones(2), name=3).tolist() == [14, 14]
    assert run_until(Wrap(Emit("none")), "inner", ones(1)) is None


def test_run_until_restores_the_gradient_mode_that_the_model_switched_by_hand() -> None:
    run_until(nn.Sequential(Calls(torch.set_grad_enabled)), "0", False)
    assert torch.is_grad_enabled()


def test_nothing_after_the_first_use_of_the_module_runs() -> None:
    run_until(nn.Sequential(nn.Linear(3, 4), Raises(AssertionError("must not run"))), "0", ones(2, 3))
    x = ones(1, 3)
    assert torch.equal(run_until(Reuse(), "act", x), x.tanh())


def test_a_model_that_catches_exceptions_does_not_swallow_the_stop() -> None:
    class Careful(Wrap):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.inner(x) + 1
            except Exception as error:
                raise ValueError("inner failed") from error

    assert run_until(Careful(nn.Identity()), "inner", ones(2)).tolist() == [1, 1]


def test_run_until_says_which_module_it_cannot_stop_at() -> None:
    with pytest.raises(LookupError, match="the model finished without running 'unused'"):
        run_until(Branch(), "unused", ones(1, 3))
    with pytest.raises(LookupError, match="is named 'x'"):
        run_until(nn.Sequential(Raises(AssertionError("must not run"))), "x", ones(1))
    with pytest.raises(ValueError, match=r"stops at one module; '\*' matches 3: '0', '1', '2'\."):
        run_until(mlp(), "*", ones(1, 3))
    with pytest.raises(TypeError, match=r"the model comes first, and is an nn\.Module object, not str"):
        run_until("0", mlp(), ones(1, 3))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_the_output_of_run_until_inside_a_reentrant_checkpoint_has_no_graph(use_reentrant: bool) -> None:
    output = run_until(Checkpointed(use_reentrant), "block.0", ones(2, 3))
    assert output.requires_grad is not use_reentrant


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


@pytest.mark.parametrize("wrapped", [False, True])  # a wrapper, as of adapters, whose generate calls the inner model
def test_an_edit_knows_the_step_of_a_loop_it_is_in_and_counts_anew_in_each_block(wrapped: bool) -> None:
    model, seen = LanguageModel(), []
    root, name = (nn.Sequential(model), "0.layer") if wrapped else (model, "layer")
    steering = edit(root, lambda output, call: seen.append((call.pass_index, call.index)), name)
    for _ in range(2):
        with steering:
            model.generate(torch.ones(1, 2), 3)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] * 2


TRACERS: dict[str, Callable[[nn.Module], object]] = {
    "jit": lambda model: torch.jit.trace(model, ones(2, 3)),
    "export": lambda model: torch.export.export(model, (ones(2, 3),), strict=False),
    "fx": torch.fx.symbolic_trace,
    "make_fx": lambda model: make_fx(model)(ones(2, 3)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("trace", TRACERS.values(), ids=TRACERS)
@pytest.mark.parametrize("inputs", [False, True])
def test_an_edit_does_not_become_part_of_a_traced_or_exported_model(trace: Any, inputs: bool) -> None:
    model = Wrap(mlp())
    with (
        edit(model, lambda value, call: None, "inner", inputs=inputs),
        pytest.raises(RuntimeError, match="the edit of 'inner' would become part of the result"),
    ):
        trace(model)
    trace(model)  # outside


# inputs


def test_an_edit_of_inputs_comes_before_the_module_and_keeps_gradients() -> None:
    model, x = mlp(), torch.rand(2, 3, requires_grad=True)
    with edit(model, lambda args, call: args[0] * 2, "2", inputs=True), capture(model, "2", inputs=True) as seen:
        model(x).sum().backward()
    hidden = model[1](model[0](x))
    assert torch.equal(seen.input("2").args[0], hidden * 2) and torch.equal(seen["2"], model[2](hidden * 2))
    (expected,) = torch.autograd.grad(model[2](hidden * 2).sum(), x)
    assert torch.allclose(x.grad, expected)  # type: ignore[arg-type]
    assert leftover_hooks(model) == []


class TakesMore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Calls(lambda x, times, scale: x * times * scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, 3, scale=x)  # type: ignore[no-any-return]


def test_an_edit_of_inputs_takes_a_tuple_or_changes_a_keyword_argument() -> None:
    def double(args: Any, call: EditCall) -> Any:
        assert call.index == 0
        call.kwargs["scale"] = call.kwargs["scale"] * 5
        return args[0] * 2, args[1]

    model = TakesMore()
    with edit(model, lambda args, call: None, "inner", inputs=True):
        assert torch.equal(model(ones(2)), ones(2) * 3)
    with edit(model, double, "inner", inputs=True):
        assert torch.equal(model(ones(2)), ones(2) * 30)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (lambda args, call: args[0], TypeError, r"at \[0\] returned \(\(2,\) float32\)"),
        (lambda args, call: (args[0][:1], 3), ValueError, r"at \[0\]\[0\] returned \(1,\) float32"),
        (
            lambda args, call: call.kwargs.update(scale=ones(1)),
            ValueError,
            r"at \[1\]\['scale'\] returned \(1,\)",
        ),
    ],
)
def test_an_edit_of_inputs_must_fit(wrong: Any, error: type[Exception], said: str) -> None:
    model = TakesMore()
    with edit(model, wrong, "inner", inputs=True), pytest.raises(error, match=f"of the inputs of 'inner' {said}"):
        model(ones(2))


def test_something_that_is_not_a_function_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="needs a function second, not str"):
        edit(mlp(), "0", zero)  # type: ignore[arg-type]
