"""What lessons' checks share: reasons for exceptions, and what is no handle."""

import pytest
import torch

from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.reasons import reason_of_exception
from hooklab.course.exercises.scenes import expect_handle
from hooklab.course.exercises.trial import Trial


def raised_by(hook):
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


@pytest.mark.parametrize("value", [None, 3, [], set(), lambda: None])
def test_what_cannot_remove_a_hook_is_no_handle(value):
    with pytest.raises(NotYet, match="did not return the handle"):
        expect_handle(value)
