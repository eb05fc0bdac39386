"""What lessons' checks share: guesses that fit, reasons for exceptions, and expectations."""

import pytest
import torch
from torch import nn

from hooklab.course.exercises.expectations import error_comes_out, expect_handle, expect_unused
from hooklab.course.exercises.faults import NotYet, PlannedError
from hooklab.course.exercises.misconceptions import alike, fitting
from hooklab.course.exercises.reasons import reason_of_exception
from hooklab.course.exercises.trial import Trial

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
