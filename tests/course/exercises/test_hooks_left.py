"""Hooks that an answer leaves behind or takes away, and functions that it replaces: noticed, named, undone."""

import builtins

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim.optimizer import register_optimizer_step_post_hook

import hooklab
from hooklab import mixing
from hooklab.course.exercises import attempt
from tests.course.exercises.made_up import calls_with, calls_with_model, calls_with_tensor, outcome_of


def grab(*args):
    return None


@pytest.mark.parametrize(
    ("register", "says"),
    [
        (lambda model: model[0].register_forward_hook(grab), "forward hook `grab` on module '0'"),
        (lambda model: model.register_forward_pre_hook(grab), "forward pre-hook `grab` on the whole Sequential"),
        (lambda model: model[1].register_full_backward_hook(grab), "full backward hook `grab` on module '1'"),
        (lambda model: model[1].register_full_backward_pre_hook(grab), "full backward pre-hook `grab` on module '1'"),
        (lambda model: model[0].weight.register_hook(grab), "tensor hook `grab` on parameter '0.weight'"),
        (
            lambda model: model[0].bias.register_post_accumulate_grad_hook(grab),
            "post accumulate grad hook `grab` on parameter '0.bias'",
        ),
        (lambda model: model[1].register_backward_hook(grab), "old-style backward hook `grab` on module '1'"),
        (lambda model: torch_module.register_module_forward_hook(grab), "global forward hook `grab` on all modules"),
        (
            lambda model: torch_module.register_module_backward_hook(grab),
            "global old-style backward hook `grab` on all modules",
        ),
        (lambda model: register_optimizer_step_post_hook(grab), "global step post-hook `grab` on all optimizers"),
    ],
)
def test_a_hook_left_behind_is_reported(register, says, monkeypatch):
    def answer(model):
        register(model)

    outcome = outcome_of(calls_with_model, answer, monkeypatch)
    assert outcome.state == "not yet"
    assert f"{says} (the check removed it)" in str(outcome)
    torch_module.register_module_full_backward_hook(grab).remove()  # not refused because of an old one
    torch_module._global_is_full_backward_hook = None


def test_hooks_of_a_module_whose_class_has_changed_are_still_there(monkeypatch):
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(grab)

    def answer(layer):
        layer.__class__ = type("ParametrizedLinear", (nn.Linear,), {})

    outcome = outcome_of(calls_with(layer), answer, monkeypatch)
    assert outcome.state == "correct"
    assert list(layer._forward_hooks.values()) == [grab]


def test_the_hooks_of_what_an_answer_takes_out_of_a_list_have_not_been_removed(monkeypatch):
    tensors = [torch.ones(1, requires_grad=True)]
    outcome = outcome_of(calls_with(tensors), lambda tensors: tensors.clear(), monkeypatch)
    assert outcome.summary == "your code changed the list that it was given"


def test_a_forward_left_in_the_place_of_the_modules_own_is_reported_and_put_back(monkeypatch):
    model = nn.Sequential(nn.ReLU())

    def answer(model):
        model[0].forward = lambda x: x

    outcome = outcome_of(calls_with(model), answer, monkeypatch)
    assert outcome.summary == "your code replaced `forward` on '0' (the check put it back)"
    assert "forward" not in vars(model[0])


def test_a_hook_left_behind_is_removed_and_older_hooks_stay(monkeypatch):
    model = nn.Linear(2, 2)
    model.register_forward_hook(grab)
    outcome_of(calls_with(model), lambda model: model.register_forward_hook(lambda *args: None) and None, monkeypatch)
    assert list(model._forward_hooks.values()) == [grab]


def test_a_global_hook_is_removed_even_when_the_answer_raises():
    def answer(*args):
        torch_module.register_module_forward_hook(grab)
        raise ValueError

    attempt("1.2", answer)
    assert not torch_module._global_forward_hooks


@pytest.mark.parametrize("kind", ["step_pre", "step_post"])
def test_a_hook_left_on_an_optimizer_is_reported_and_removed(kind, monkeypatch):
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])

    def answer(optimizer):
        getattr(optimizer, f"register_{kind}_hook")(grab)

    outcome = outcome_of(calls_with(optimizer), answer, monkeypatch)
    assert f"{kind.replace('_p', ' p').replace('_', ' ')}-hook `grab` on the SGD optimizer" in str(outcome)
    assert not getattr(optimizer, f"_optimizer_{kind}_hooks")


def test_the_options_of_a_hook_left_behind_are_forgotten(monkeypatch):
    model = nn.Linear(2, 2)

    def answer(model):
        for register in (torch_module.register_module_forward_hook, model.register_forward_hook):
            register(grab, always_call=True, with_kwargs=True)

    outcome_of(calls_with(model), answer, monkeypatch)
    for name in ("always_called", "with_kwargs"):
        assert not getattr(torch_module, f"_global_forward_hooks_{name}")
        assert not getattr(model, f"_forward_hooks_{name}")


def test_a_global_hook_of_an_earlier_cell_is_set_aside_and_noted():
    def double_what_goes_in(layer):
        return layer.register_forward_pre_hook(lambda module, args: args[0] * 2)

    calls = []

    def ten_times(module, args, output):
        calls.append(1)
        return output * 10

    with torch_module.register_module_forward_hook(ten_times, always_call=True) as handle:
        outcome = attempt("4.1", double_what_goes_in)
        assert (outcome.state, calls) == ("correct", [])
        assert "a global forward hook `ten_times` on all modules, from an earlier cell, was set aside" in str(outcome)
        assert nn.Identity()(1) == 10
        assert handle.id in torch_module._global_forward_hooks_always_called
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_hooks_always_called


def test_a_global_hook_is_told_even_where_hooks_are_asked_for(monkeypatch):
    def answer(module):
        return torch_module.register_module_forward_pre_hook(grab)

    outcome = outcome_of(calls_with(nn.Identity(), may_hook=True), answer, monkeypatch)
    assert "your hook runs for every module in this process: global forward pre-hook `grab`" in str(outcome)


@pytest.mark.parametrize(
    ("clear", "says"),
    [
        (lambda model, x: x._backward_hooks.clear(), "tensor hook on tensor argument 2"),
        (lambda model, x: model[0]._forward_hooks.clear(), "forward hook on module '0'"),
        (lambda model, x: model._forward_pre_hooks.clear(), "forward pre-hook on the whole Sequential"),
        (lambda model, x: model[0].weight._backward_hooks.clear(), "tensor hook on parameter '0.weight'"),
    ],
)
@pytest.mark.parametrize("may_hook", [False, True])
def test_clearing_the_hooks_of_what_an_answer_is_given_is_always_a_fault(clear, says, may_hook, monkeypatch):
    check = calls_with(nn.Sequential(nn.Linear(1, 1)), torch.ones(1, requires_grad=True), may_hook=may_hook)
    assert f"removed a hook that was already there: a {says}" in str(outcome_of(check, clear, monkeypatch))


def test_somebody_elses_hooks_are_there_only_while_the_answer_runs(monkeypatch):
    x, counts = torch.ones(1, requires_grad=True), []

    def counted(trial):
        trial.call([x])
        counts.append(len(x._backward_hooks))

    assert outcome_of(counted, lambda xs: counts.append(len(xs[0]._backward_hooks)), monkeypatch).state == "correct"
    assert counts == [1, 0]


def test_a_second_hook_whose_handle_the_caller_does_not_get_is_told(monkeypatch):
    def removes_one(trial):
        trial.call(nn.Identity(), may_hook=True).remove()
        trial.expect_none_left()

    def two(module):
        module.register_forward_pre_hook(grab)
        return module.register_forward_hook(grab)

    says = "after handle.remove() another of your hooks is still registered: a forward pre-hook on the whole Identity"
    assert says in str(outcome_of(removes_one, two, monkeypatch))
    assert outcome_of(removes_one, lambda module: module.register_forward_hook(grab), monkeypatch).state == "correct"


def test_a_parameter_that_an_answer_replaces_takes_its_hooks_along(monkeypatch):
    check = calls_with(nn.Linear(1, 1), may_change=True)
    assert outcome_of(check, lambda layer: delattr(layer, "weight"), monkeypatch).state == "correct"


def test_a_model_left_in_evaluation_mode_is_a_fault_and_in_training_mode_again(monkeypatch):
    model = nn.Sequential(nn.Identity(), nn.Identity())
    model[0].eval()
    outcome = outcome_of(calls_with(model), lambda model: model.eval() and None, monkeypatch)
    assert "left the model in evaluation mode" in str(outcome)
    assert [module.training for module in model.modules()] == [True, False, True]


def test_a_tensor_with_nan_in_it_that_nobody_touched_is_unchanged(monkeypatch):
    check = calls_with(torch.tensor([1.0, float("nan")]))
    assert outcome_of(check, lambda x: None, monkeypatch).state == "correct"


# --- functions of torch and hooklab that are replaced

OWNERS = {
    "torch.nn.Linear.forward": nn.Linear,
    "torch.nn.Linear.__call__": nn.Linear,  # inherited until it is replaced
    "torch.Tensor.backward": torch.Tensor,
    "torch.autograd.grad": torch.autograd,
    "torch.autograd.graph.Node.register_hook": torch.autograd.graph.Node,
    "builtins.print": builtins,
    "hooklab.course.exercises.trial.Trial.call": hooklab.course.exercises.trial.Trial,
}


@pytest.mark.parametrize("name", OWNERS)
def test_a_replaced_function_is_named_and_put_back(name, monkeypatch):
    owner, attribute = OWNERS[name], name.rpartition(".")[2]
    before = getattr(owner, attribute)
    own = attribute in vars(owner)

    def answer(x):
        setattr(owner, attribute, lambda *args, **kwargs: None)

    outcome = outcome_of(calls_with_tensor, answer, monkeypatch)
    assert outcome.state == "not yet"
    assert outcome.summary == f"your code replaced {name} (the check undid that)"
    assert getattr(owner, attribute) == before
    assert (attribute in vars(owner)) == own


def test_a_function_replaced_by_another_one_of_torchs_or_deleted_is_named_and_put_back(monkeypatch):
    before = nn.Linear.forward

    def answer(x):
        nn.Linear.forward = nn.Identity.forward
        del torch.autograd.grad

    summary = outcome_of(calls_with_tensor, answer, monkeypatch).summary
    assert summary == "your code replaced torch.autograd.grad, torch.nn.Linear.forward (the check undid that)"
    assert nn.Linear.forward is before and callable(torch.autograd.grad)


def test_a_function_that_was_replaced_for_a_while_only_is_no_fault(monkeypatch):
    def answer(x):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nn.Linear, "forward", None)

    assert outcome_of(calls_with_tensor, answer, monkeypatch).state == "correct"


def test_what_the_compiler_has_put_into_hooklab_may_go_with_its_reset(monkeypatch):
    name = "__resume_at_1_2"  # such names it gives to what comes behind a graph break, in the module of that code
    setattr(mixing, name, lambda: None)
    outcome = outcome_of(calls_with_tensor, lambda x: delattr(mixing, name), monkeypatch)
    assert outcome.state == "correct"


def test_torch_itself_may_wrap_the_first_step_of_an_optimizer(monkeypatch):
    def answer(x):
        torch.optim.ASGD([x])  # nothing else in these tests makes one
        torch.set_default_dtype(torch.float64)  # brings another torch.Storage

    outcome = outcome_of(calls_with_tensor, answer, monkeypatch)
    assert outcome.state == "correct"


def test_a_function_that_an_earlier_cell_replaced_is_noted_where_an_answer_is_not_yet_right(monkeypatch):
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x)
    outcome = outcome_of(calls_with_tensor, lambda: None, monkeypatch)
    assert "note      torch.nn.ReLU.forward is not what it was when the checks were loaded" in str(outcome)
