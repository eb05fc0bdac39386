"""What lessons' checks share: guesses that fit, what is varied and counted, and expectations."""

import pytest
import torch
from torch import nn

from hooklab.course.exercises import forward
from hooklab.course.exercises.expectations import error_comes_out, expect_handle, expect_unused, hidden_error
from hooklab.course.exercises.faults import NotYet, PlannedError
from hooklab.course.exercises.misconceptions import alike, fitting
from hooklab.course.exercises.reasons import reason_of_exception
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.varying import every_pass, homes, returns_of_pre_hooks, runs_of

# --- guesses


def test_a_guess_that_fits_everywhere_is_the_reason():
    guesses = {"halves": lambda x: x / 2, "negates": lambda x: -x}
    assert (
        fitting([torch.tensor([0.5]), torch.tensor([2.0])], guesses, [torch.ones(1), torch.full((1,), 4.0)]) == "halves"
    )


def test_a_guess_that_fits_almost_everywhere_is_no_reason():
    assert fitting([1, 2, 4], {"counts": lambda x: x}, [1, 2, 3]) is None


def test_two_guesses_that_fit_are_no_reason():
    assert fitting([4], {"doubles": lambda x: 2 * x, "squares": lambda x: x * x}, [2]) is None


def test_a_guess_that_raises_does_not_fit():
    assert fitting([1], {"breaks": lambda x: x / 0, "stays": lambda x: x}, [1]) == "stays"


@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), True),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")]), False),
        ((1, torch.ones(1)), [1, torch.ones(1)], True),
        ([1], [1, 2], False),
        ({"a": torch.ones(1)}, {"a": torch.ones(1)}, True),
        ({"a": 1}, {"b": 1}, False),
        (True, torch.tensor(True), True),
        (None, torch.ones(2), False),
        ("text", ["text"], False),
        (None, {}, False),
    ],
)
def test_results_are_alike_by_their_values(one, other, is_alike):
    assert alike(one, other) is is_alike


def raised_by(hook, monkeypatch=None):
    """The reason that is given for an exception of a tensor hook."""
    x = torch.ones(2, requires_grad=True)

    def answer():
        x.register_hook(hook)
        x.sum().backward()

    with pytest.raises(NotYet) as caught:
        Trial(answer).call()
    return reason_of_exception(caught.value.__cause__)


class Keeper:
    def keep(self, grad):
        pass


def test_an_unbound_method_as_a_hook_is_told_so():
    assert raised_by(Keeper.keep).startswith("You passed a method of the class")


def test_a_hook_with_another_number_of_parameters_is_no_unbound_method():
    assert raised_by(lambda module, grad: None).startswith("Your hook has the wrong parameters")


def test_a_call_with_too_few_arguments_inside_a_hook_is_none_of_these():
    assert raised_by(lambda grad: Keeper().keep()) is None


@forward.misconception_named()
def run_with(layer):
    """Run a layer with a learner's hook on it, as a check of forward hooks does."""
    forward.run_with_hooks(Trial(run_with), layer, torch.ones(1, 2))


def reason_of(hook):
    layer = nn.Linear(2, 1)
    layer.register_forward_hook(hook)
    with pytest.raises(NotYet) as caught:
        run_with(layer)
    return dict(caught.value.details).get("likely")


def test_a_hook_with_a_pre_hooks_arguments_is_told_so():
    assert reason_of(lambda module, args: None).startswith("another hook's arguments")


def test_a_call_with_wrong_arguments_inside_a_hook_is_not_called_another_hooks_arguments():
    def helper(output):
        return None

    assert reason_of(lambda module, args, output: helper(output, 1)) is None


def test_a_tuple_given_to_torch_in_a_hooks_own_line_is_no_accidental_return():
    assert reason_of(lambda module, args, output: nn.functional.linear(args, module.weight)) is None


def test_a_hook_that_calls_its_own_module_is_told_why_there_is_no_end():
    assert "calls its own module" in reason_of(lambda module, args, output: module(args[0]))


def test_a_function_that_calls_itself_is_told_so():
    def walk(value):
        return [walk(one) for one in value]

    assert "a function that calls itself" in reason_of(lambda module, args, output: walk("text") and None)


# --- what is varied, and counted


def test_every_pass_comes_twice_in_both_modes_and_leaves_them_as_they_were():
    model = nn.Sequential(nn.ReLU(), nn.ReLU()).train()
    model[0].eval()
    assert [model[0].training for _ in every_pass(model)] == [True, True, False, False]
    assert [module.training for module in model.modules()] == [True, False, True]


def test_modes_are_as_they_were_when_a_check_ends_in_the_middle():
    model = nn.ReLU().eval()
    passes = every_pass(model)
    next(passes)
    passes.close()
    assert not model.training


def test_a_layer_runs_once_in_each_of_its_homes():
    for model, layer, name in homes(lambda: nn.Linear(2, 1)):
        assert model.get_submodule(name) is layer
        with runs_of(layer) as runs:
            model(torch.ones(1, 2))
        assert (runs.calls, runs.direct) == (1, 0)


def test_a_forward_without_a_call_is_told():
    model = nn.Sequential(nn.ReLU())
    with runs_of(model) as runs:
        model(torch.ones(1))
        model.forward(torch.ones(1))
    assert (runs.calls, runs.direct) == (1, 1)
    with pytest.raises(NotYet, match=r"calls `model\.forward"):
        runs.expect(2)


@pytest.mark.parametrize("times", [0, 2])
def test_another_number_of_runs_is_told(times):
    model = nn.ReLU()
    with runs_of(model) as runs:
        for _ in range(times):
            model(torch.ones(1))
    with pytest.raises(NotYet, match="how many times your function runs the model"):
        runs.expect(1)
    runs.expect(times)


def test_counting_leaves_nothing_behind():
    model = nn.ReLU()
    own = nn.ReLU()
    own.forward = forward = own.forward
    with runs_of(model), runs_of(own):
        pass
    assert "forward" not in vars(model)
    assert own.forward is forward


def test_hooks_called_by_hand_get_their_arguments_and_others_are_not_called():
    layer = nn.ReLU()
    other = layer.register_forward_pre_hook(lambda module, args: pytest.fail("called"))
    layer.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
    layer.register_forward_pre_hook(lambda module, args: args[0].nonsense)
    first, second = returns_of_pre_hooks(layer, {other.id}, 1, inplace=True)
    assert first == ((1,), {"inplace": True})
    assert isinstance(second, AttributeError)


# --- expectations


@pytest.mark.parametrize("value", [None, 3, [], set(), lambda: None])
def test_what_cannot_remove_a_hook_is_no_handle(value):
    with pytest.raises(NotYet, match="did not return the handle"):
        expect_handle(value)


def test_a_handle_of_any_make_will_do():
    expect_handle(nn.ReLU().register_forward_hook(lambda *_: None))


def test_a_handle_whose_hook_is_gone_is_told():
    layer = nn.ReLU()
    handle = layer.register_forward_hook(lambda *_: None)
    expect_unused(handle)
    handle.remove()
    with pytest.raises(NotYet, match="used up"):
        expect_unused(handle)


def test_a_planned_error_comes_out_or_does_not():
    def raises():
        raise PlannedError

    def hides():
        try:
            raise PlannedError
        except PlannedError:
            return

    assert error_comes_out(Trial(raises), raises)
    assert not error_comes_out(Trial(hides), hides)
    assert "train() raised an exception" in str(hidden_error("train()"))
