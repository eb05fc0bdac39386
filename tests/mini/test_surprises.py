"""Surprises that mini's comments speak of and the random programs do not meet, one by one, in both engines.

Tried by breaking `handles` and `module`: what the programs do not notice there is harmless, or tested here.
"""

import gc
import warnings
import weakref
from typing import Any

import pytest

from hooklab.mini import border

from .engines import ENGINES


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param


def module_of(engine: Any, forward: Any) -> Any:
    """A module whose forward is ``forward``, a plain function."""

    class FunctionModule(engine.Module):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return forward(*args, **kwargs)

    return FunctionModule()


def double(engine: Any) -> Any:
    return module_of(engine, lambda x: x * 2.0)


def failing(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("forward")


# forward: hooks that come and go


@pytest.mark.parametrize(("other_hook", "expected"), [(False, []), (True, ["new"])])
def test_a_hook_that_forward_registers_runs_at_once_only_if_there_was_another_hook(
    engine: Any, other_hook: bool, expected: list[str]
) -> None:
    log: list[str] = []
    module = module_of(engine, lambda x: [x, module.register_forward_hook(lambda *_: log.append("new"))][0])
    if other_hook:
        module.register_forward_pre_hook(lambda *_: None)
    module(engine.tensor([1.0]))
    assert log == expected


def test_a_global_with_kwargs_hook_removed_before_its_turn_keeps_its_kwargs(engine: Any) -> None:
    lengths: list[int] = []
    register = engine.every_module.register_module_forward_hook
    with register(lambda *_: handle.remove()):
        handle = register(lambda *received: lengths.append(len(received)), with_kwargs=True)
        double(engine)(engine.tensor([1.0]))
    assert lengths == [4]


def test_dropping_the_handle_does_not_remove_the_hook(engine: Any) -> None:
    module, log = double(engine), []
    handle = module.register_forward_hook(lambda *_: log.append("ran"))
    del handle
    module(engine.tensor([1.0]))
    assert log == ["ran"]


def test_a_handle_does_nothing_when_its_module_is_gone(engine: Any) -> None:
    module = double(engine)
    handle = module.register_forward_hook(print)
    del module
    handle.remove()


def test_a_handle_keeps_no_hook_alive(engine: Any) -> None:
    class Hook:
        def __call__(self, *_: Any) -> None:
            pass

    module, hook = double(engine), Hook()
    hook_alive = weakref.ref(hook)
    handle = module.register_forward_hook(hook)
    del module, hook
    gc.collect()
    assert hook_alive() is None
    handle.remove()


# full backward hooks


def test_backward_hooks_make_a_module_return_another_object_than_its_input(engine: Any) -> None:
    module, x = module_of(engine, lambda x: x), engine.tensor([1.0], True)
    assert module(x) is x
    module.register_full_backward_hook(lambda *_: None)
    assert module(x) is not x


def test_an_unused_output_has_none_in_grad_output(engine: Any) -> None:
    module, seen = module_of(engine, lambda x: (x * 2.0, x * 3.0)), []
    module.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[1]))
    module(engine.tensor([1.0], True))[0].sum().backward()
    assert seen == [None]


def test_without_input_gradients_even_a_lone_pre_hook_warns_in_some_releases(engine: Any) -> None:
    weight, module = engine.tensor([1.0], True), module_of(engine, lambda x: x * weight)
    module.register_full_backward_pre_hook(lambda *_: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module(engine.tensor([1.0])).sum().backward()
    assert ["no input" in str(one.message) for one in caught] == [True] * border.WARNS_WITHOUT_HOOKS


def test_without_input_gradients_a_backward_hook_warns(engine: Any) -> None:
    weight, module = engine.tensor([1.0], True), module_of(engine, lambda x: x * weight)
    module.register_full_backward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="no input"):
        module(engine.tensor([1.0])).sum().backward()


def test_backward_hooks_do_not_run_for_a_gradient_that_goes_around_the_output(engine: Any) -> None:
    module, kept, log = double(engine), [], []
    module.register_forward_hook(lambda module, args, output: kept.append(args[0]))
    module.register_full_backward_hook(lambda *_: log.append("ran"))
    x = engine.tensor([1.0], True)
    module(x)
    kept[0].sum().backward()
    assert log == []
    assert x.grad.tolist() == [1.0]


def test_backward_hooks_do_not_run_again_with_the_grad_output_of_an_earlier_pass(engine: Any) -> None:
    module, kept, log = double(engine), [], []
    module.register_forward_hook(lambda module, args, output: kept.append(args[0]))
    module.register_full_backward_hook(lambda *_: log.append("ran"))
    module(engine.tensor([1.0], True)).sum().backward()
    kept[0].sum().backward()
    assert log == ["ran"]


def test_an_output_of_a_module_with_backward_hooks_cannot_be_changed_in_place(engine: Any) -> None:
    module = double(engine)
    module.register_full_backward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="is being modified inplace"):
        module(engine.tensor([1.0], True)).mul_(2.0)


def test_a_view_made_for_backward_hooks_is_lost_when_its_base_is_changed_in_place(engine: Any) -> None:
    module = module_of(engine, lambda x: x)
    module.register_full_backward_hook(lambda *_: None)
    x = engine.tensor([1.0], True) * 1.0
    y = module(x)
    x.mul_(2.0)
    with pytest.raises(RuntimeError, match="base"):
        _ = y.is_leaf  # asking is enough


# tensor hooks


def test_tensor_hooks_get_none_where_no_gradient_arrives(engine: Any) -> None:
    x, seen = engine.tensor([1.0], True), []
    x.register_hook(seen.append)
    module = double(engine)
    module.register_full_backward_hook(lambda module, grad_input, grad_output: (None,))
    module(x * 1.0).sum().backward()
    assert seen == [None]


def test_a_tensor_hook_cannot_make_a_gradient_where_there_is_none(engine: Any) -> None:
    x, module = engine.tensor([1.0], True), double(engine)
    x.register_hook(lambda grad: engine.tensor([1.0]))
    module.register_full_backward_hook(lambda module, grad_input, grad_output: (None,))
    with pytest.raises(RuntimeError, match="can't replace a None gradient"):
        module(x * 1.0).sum().backward()


def test_none_for_grad_output_is_zeros_on_the_other_side_of_the_module(engine: Any) -> None:
    x, module = engine.tensor([1.0], True), double(engine)
    module.register_full_backward_pre_hook(lambda module, grad_output: (None,))
    module(x).sum().backward()
    assert x.grad.tolist() == [0.0]


def test_after_a_change_in_place_hooks_stay_behind_and_retain_grad_comes_along(engine: Any) -> None:
    x, log = engine.tensor([1.0], True), []
    y = x * 1.0
    y.register_hook(lambda grad: log.append(("before", grad.tolist())))
    y.retain_grad()
    y.mul_(5.0)
    y.register_hook(lambda grad: log.append(("after", grad.tolist())))
    y.sum().backward()
    assert log == [("after", [1.0]), ("before", [5.0])]
    assert y.grad.tolist() == [1.0]


# what is not an Exception


def test_always_call_hooks_do_not_run_after_an_interrupt(engine: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    module, log = module_of(engine, interrupted), []
    module.register_forward_hook(lambda *_: log.append("ran"), always_call=True)
    with pytest.raises(KeyboardInterrupt):
        module(engine.tensor([1.0]))
    assert log == []


def test_an_interrupt_in_an_always_call_hook_comes_out_even_after_another_error(engine: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    module = module_of(engine, failing)
    module.register_forward_hook(interrupted, always_call=True)
    with pytest.raises(KeyboardInterrupt):
        module(1.0)


def test_a_module_without_a_forward_says_so(engine: Any) -> None:
    with pytest.raises(NotImplementedError, match="forward"):
        engine.Module()(1.0)


# gradients that are kept


def test_whoever_holds_a_retained_gradient_does_not_see_it_grow(engine: Any) -> None:
    y = engine.tensor([1.0], True) * 1.0
    y.retain_grad()
    total = y.sum()
    total.backward(retain_graph=True)
    held = y.grad
    total.backward()
    assert (held.tolist(), y.grad.tolist()) == ([1.0], [2.0])


# shapes of one element, and of one row


def test_backward_begins_at_any_tensor_of_one_element(engine: Any) -> None:
    for numbers in ([3.0], [[3.0]]):
        x = engine.tensor(numbers, True)
        (x * 2.0).backward()
        assert x.grad.shape == x.shape


def test_the_length_of_a_tensor_is_that_of_its_first_axis(engine: Any) -> None:
    assert len(engine.tensor([[1.0, 2.0, 3.0]])) == 1
    with pytest.raises(TypeError):
        len(engine.tensor([1.0]).sum())


@pytest.mark.parametrize("numbers", [[1.0], [[1.0, 2.0]], [[1.0]]])
def test_a_bare_tensor_of_one_row_has_the_right_length_and_its_row_another_shape(engine: Any, numbers: Any) -> None:
    module = double(engine)
    with (
        module.register_full_backward_hook(lambda module, grad_input, grad_output: grad_input[0]),
        pytest.raises(RuntimeError, match="hook 'hook' has changed the size"),
    ):
        module(engine.tensor(numbers, True)).sum().backward()
    with (
        module.register_full_backward_pre_hook(lambda module, grad_output: grad_output[0]),
        pytest.raises(RuntimeError, match="hook 'hook' has changed the size"),
    ):
        module(engine.tensor(numbers, True)).sum().backward()


def test_the_rows_of_a_bare_tensor_are_the_gradients_if_they_have_the_shape(engine: Any) -> None:
    module = module_of(engine, lambda a, b: a * 2.0 + b)
    module.register_full_backward_hook(lambda *_: engine.tensor([[5.0, 6.0], [7.0, 8.0]]))
    a, b = engine.tensor([1.0, 1.0], True), engine.tensor([1.0, 1.0], True)
    module(a, b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([5.0, 6.0], [7.0, 8.0])


@pytest.mark.parametrize(
    ("power", "slope"), [(2.0, 4.0), (3.0, 12.0), (1.0, 1.0), (0.0, 0.0), (-1.0, -0.25), (0.5, 0.5 / 2**0.5)]
)
def test_the_slope_of_a_power(engine: Any, power: float, slope: float) -> None:
    x = engine.tensor([2.0], True)
    (x**power).sum().backward()
    assert x.grad.tolist() == pytest.approx([slope])


def test_the_slope_of_a_constant_power_is_zero_even_at_zero(engine: Any) -> None:
    x = engine.tensor([0.0], True)
    (x**0.0).sum().backward()
    assert x.grad.tolist() == [0.0]


def test_relu_keeps_what_is_no_number(engine: Any) -> None:
    x = engine.tensor([float("nan"), -1.0, 2.0], True)
    y = x.relu()
    y.sum().backward()
    assert repr(y.tolist()) == "[nan, 0.0, 2.0]"
    assert x.grad.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_relu_keeps_the_sign_of_a_zero(engine: Any) -> None:
    assert (engine.tensor([-0.0]).relu() ** -1.0).tolist() == [float("-inf")]


@pytest.mark.parametrize("wants_grad", [0, 1])
def test_a_factor_may_be_changed_in_place_if_the_other_one_wants_no_gradient(engine: Any, wants_grad: int) -> None:
    leaf = engine.tensor([2.0], True)
    factors = [engine.tensor([3.0]), engine.tensor([3.0])]
    factors[wants_grad] = leaf * 1.0
    total = (factors[0] * factors[1]).sum()
    factors[wants_grad].mul_(5.0)
    total.backward()
    assert leaf.grad.tolist() == [3.0]


# tensor hooks that come and go


def test_the_first_hook_of_another_output_registered_while_one_runs_waits_as_well(engine: Any) -> None:
    module, log = module_of(engine, lambda x: (x * 2.0, x * 3.0)), []
    module.register_full_backward_hook(lambda *_: None)  # now one node makes both outputs
    first, second = module(engine.tensor([1.0], True))

    def hook(grad: Any) -> None:
        second.register_hook(lambda grad: log.append("new"))

    first.register_hook(hook)
    total = (first + second).sum()
    total.backward(retain_graph=True)
    assert log == []
    total.backward()
    assert log[:1] == ["new"]


def test_a_tensor_hook_removed_while_one_runs_still_runs_in_this_backward(engine: Any) -> None:
    x, log = engine.tensor([1.0], True), []
    x.register_hook(lambda grad: handle.remove())
    handle = x.register_hook(lambda grad: log.append("removed"))
    (x * 2.0).sum().backward()
    (x * 2.0).sum().backward()
    assert log == ["removed"]


def test_a_view_whose_base_has_changed_is_named_before_the_number_that_was_saved(engine: Any) -> None:
    x = engine.tensor([2.0], True) * 1.0
    module = module_of(engine, lambda x: x * x)
    module.register_full_backward_hook(lambda *_: None)
    y = module(x)
    x.mul_(2.0)
    with pytest.raises(RuntimeError, match="view and its base"):
        y.sum().backward()
