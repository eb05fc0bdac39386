"""check() survives whatever an answer does, and says what it found."""

import sys

import pytest
import torch
from torch import nn

import hooklab
from hooklab.course import graded
from hooklab.course.exercises import attempt, checking, judge
from hooklab.course.exercises.exercise import find
from hooklab.course.exercises.faults import NotYet
from hooklab.course.exercises.values import apart, tensor_text
from hooklab.course.graded import check_of
from tests.course.exercises.made_up import calls_with, calls_with_tensor, outcome_of


def leaves_that_require_grad(named):
    """The right answer to exercise 1.1."""
    return {name for name, tensor in named.items() if tensor.is_leaf and tensor.requires_grad}


# --- outcomes


def test_a_stub_is_not_attempted():
    def leaves(named):
        """Return names."""
        # YOUR CODE HERE
        raise NotImplementedError()

    assert attempt("1.1", leaves).state == "not attempted"


@pytest.mark.parametrize("body", ["pass", "...", '"""Only a docstring."""', "raise NotImplementedError"])
def test_an_empty_body_is_not_attempted(body, tmp_path):
    space = {}
    path = tmp_path / "answer.py"
    path.write_text(f"def leaves(named):\n    {body}\n")
    exec(compile(path.read_text(), str(path), "exec"), space)
    assert attempt("1.1", space["leaves"]).state == "not attempted"


def test_a_function_that_returns_nothing_on_purpose_is_no_stub():
    def leaves(named):
        return None

    assert attempt("1.1", leaves).state == "not yet"


@pytest.mark.parametrize("kind", [lambda method: method, staticmethod, classmethod, property])
def test_a_class_with_a_stub_method_is_not_attempted(kind, monkeypatch):
    class Meter:
        without_source = eval("lambda: 0")

        @kind
        def hook(self, grad):
            raise NotImplementedError()

    assert outcome_of(lambda trial: None, Meter, monkeypatch).state == "not attempted"


def test_an_empty_method_or_inner_function_or_an_error_with_a_message_is_no_stub(monkeypatch):
    class Meter:
        def __exit__(self, *error):
            pass

        def read(self, kind):
            raise NotImplementedError(f"a meter reads no {kind}")

    def answer(x):
        def hook(grad):
            pass

        x.register_hook(hook).remove()

    assert outcome_of(lambda trial: None, Meter, monkeypatch).state == "correct"
    assert outcome_of(calls_with_tensor, answer, monkeypatch).state == "correct"


def test_code_above_a_forgotten_stub_line_is_told_to_delete_that_line():
    def leaves(named):
        names = set(named)
        raise NotImplementedError()
        return names

    outcome = attempt("1.1", leaves)
    assert outcome.state == "not yet"
    assert "delete it" in str(outcome)


def test_a_stub_without_source_is_not_attempted():
    space = {}
    exec("def leaves(named):\n    raise NotImplementedError()", space)
    assert attempt("1.1", space["leaves"]).state == "not attempted"


@pytest.mark.parametrize("body", ["return None", "return"])
def test_a_function_that_returns_nothing_is_no_stub_without_source_either(body):
    space = {}
    exec(f"def leaves(named):\n    {body}", space)
    assert "a `return` is missing" in str(attempt("1.1", space["leaves"]))


def test_an_error_with_a_message_is_told_as_it_is_and_not_as_a_stub_line():
    def leaves(named):
        raise NotImplementedError("no idea yet")

    outcome = attempt("1.1", leaves)
    assert "leaves raised NotImplementedError: no idea yet" in str(outcome)
    assert "delete it" not in str(outcome)


def test_the_result_instead_of_the_function_is_named():
    outcome = attempt("1.1", {"w"})
    assert outcome.state == "not yet"
    assert "leave out the ()" in str(outcome)


def test_the_html_view_escapes_what_the_learner_wrote(monkeypatch):
    def refuses(trial):
        raise NotYet("<b>missing</b>", got="<script>")

    html = outcome_of(refuses, len, monkeypatch).as_html()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html


# --- what an answer may do


def test_an_operation_that_torch_has_not_implemented_is_no_stub(monkeypatch):
    def answer(x):
        return torch.nn.functional.leaky_relu(torch.ones(2, dtype=torch.int64))

    assert "answer raised NotImplementedError" in str(outcome_of(calls_with_tensor, answer, monkeypatch))


def test_an_interrupt_goes_through_and_state_and_functions_are_restored(monkeypatch):
    before = torch.autograd.grad

    def answer(x):
        torch.set_grad_enabled(False)
        torch.autograd.grad = None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome_of(calls_with_tensor, answer, monkeypatch)
    assert torch.is_grad_enabled() and torch.autograd.grad is before


def test_wrong_parameters_are_reported_with_the_signature(monkeypatch):
    def answer(x, y):
        return x

    text = str(outcome_of(calls_with_tensor, answer, monkeypatch))
    assert "missing a required argument: 'y'" in text
    assert "answer(x, y)" in text


def test_a_result_that_the_check_cannot_use_is_reported(monkeypatch):
    monkeypatch.setattr(judge, "learners_line", lambda error: None)  # where the scene is a file of the course's
    outcome = outcome_of(lambda trial: trial.call(1) + 1, lambda x: "text", monkeypatch)
    assert outcome.summary == "the check could not use what <lambda> returned"


@pytest.mark.parametrize("value", [None, 3, "text", [1], {"a": 1}, (i for i in range(2)), torch.ones(3), object()])
def test_no_kind_of_result_crashes_a_check(value):
    for id in ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6"):
        assert attempt(id, lambda *args: value).state == "not yet"


@pytest.mark.parametrize(
    ("given", "change", "says"),
    [
        (torch.ones(2), lambda x: x.mul_(2), "changed, in place, a tensor that it was given"),
        (
            nn.Sequential(nn.Linear(1, 1)),
            lambda model: nn.init.zeros_(model[0].weight),
            "in place, the parameter '0.weight'",
        ),
        (nn.Linear(1, 1), lambda layer: layer.bias.requires_grad_(False), "the parameter 'bias' from True to False"),
        ([torch.ones(1)], lambda xs: xs[0].requires_grad_(), "a tensor that it was given from False to True"),
        ([1, 2], lambda one: one.pop(), "changed the list that it was given"),
        ([1, 2], lambda one: one.reverse(), "changed the list that it was given"),
        ({"a": 1}, lambda one: one.clear(), "changed the dictionary that it was given"),
        ({"a": 1}, lambda one: one.update(a=2), "changed the dictionary that it was given"),
        ({"a": 1, "b": 2}, lambda one: one.update(b=one.pop("b"), a=one.pop("a")), "changed the dictionary"),
    ],
)
def test_whatever_an_answer_changes_of_what_it_is_given_is_a_fault(given, change, says, monkeypatch):
    assert says in str(outcome_of(calls_with(given), change, monkeypatch))


# --- ids, display, grader, progress


@pytest.mark.parametrize(
    ("id", "says"),
    [("1.7", r"exercise '1\.7'; there are: 1\.1, "), ("leaves", "exercise 'leaves'"), ("77.1", "lesson 77")],
)
def test_an_unknown_id_names_those_that_there_are(id, says):
    with pytest.raises(LookupError, match=says):
        find(id)


def test_check_prints_plain_text_outside_a_notebook(capsys):
    hooklab.check("1.1", leaves_that_require_grad)
    assert capsys.readouterr().out.startswith("✓ 1.1 correct: ")


def stub(named):
    raise NotImplementedError()


@pytest.mark.parametrize("answer", [lambda named: set(named), stub])
def test_a_grader_gets_an_assertion_error_with_the_same_text(answer, monkeypatch):
    text = str(attempt("1.1", answer))
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    with pytest.raises(AssertionError) as caught:
        hooklab.check("1.1", answer)
    assert str(caught.value) == text


def test_a_grader_gets_no_error_for_a_correct_answer_and_sees_nothing_on_stderr(monkeypatch, capfd):
    def warning(named):
        print("careful", file=sys.stderr)
        return leaves_that_require_grad(named)

    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    hooklab.check("1.1", warning)
    told = capfd.readouterr()
    assert told.err == "" and "careful" in told.out and "correct" in told.out


def test_a_grader_that_an_answer_hides_is_still_one(monkeypatch):
    monkeypatch.setattr(graded, "_WHEN_IMPORTED", "autograde")
    with pytest.raises(AssertionError):
        hooklab.check("1.1", lambda named: set())


def test_a_graded_cell_calls_hooklabs_own_check_whatever_a_student_calls_so(monkeypatch):
    def check(*anything): ...

    assert check_of(hooklab.__version__, check) is check
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert check_of(hooklab.__version__, check) is hooklab.check


def test_a_graded_cell_says_that_hooklab_has_another_version():
    with pytest.raises(RuntimeError, match=f"is for hooklab 9.9, and here is {hooklab.__version__}"):
        check_of("9.9", hooklab.check)


def test_an_empty_grader_variable_means_no_grader(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "")
    hooklab.check("1.1", lambda named: set())
    assert "not yet" in capsys.readouterr().out


def test_progress_shows_what_is_correct_in_this_process(monkeypatch, capsys):
    monkeypatch.setattr(checking, "_found", {})
    hooklab.progress()
    hooklab.check("1.1", leaves_that_require_grad)
    hooklab.check("1.2", lambda y, z: None)
    capsys.readouterr()
    hooklab.progress()
    text = capsys.readouterr().out
    assert text.startswith("Lesson 1: 1 of 6 exercises correct")
    assert "✓ 1.1" in text
    assert "✗ 1.2" in text
    assert "○ 1.3" in text


def test_progress_of_a_lesson_that_does_not_exist_names_those_that_do():
    with pytest.raises(LookupError, match="lesson 99 has no exercises"):
        hooklab.progress(99)


# --- the words that checks use


def test_what_an_answer_leaves_on_a_module_is_noted_and_taken_off(monkeypatch):
    model = nn.Sequential(nn.Linear(1, 1))

    def answer(given, layer):
        given[0].seen = 1

    outcome = outcome_of(lambda trial: trial.call(model, model[0]), answer, monkeypatch)
    assert outcome.state == "correct"
    assert "your code stored something on the module '0', as its attribute 'seen'" in str(outcome)
    assert not hasattr(model[0], "seen")


def test_tensor_text_is_short_for_large_tensors_and_has_no_negative_zero():
    assert tensor_text(torch.zeros(100, 3)) == "a tensor of shape (100, 3), float32"
    assert tensor_text(torch.tensor([-0.0, 1.5])) == "[0, 1.5]"


def test_of_two_large_tensors_a_row_is_shown_in_which_they_differ():
    one = torch.zeros(2, 3, 5)
    other = one.clone()
    other[1, 2, 4] = 7
    assert apart(one, other) == {"expected": "at [1, 2]: [0, 0, 0, 0, 0]", "got": "at [1, 2]: [0, 0, 0, 0, 7]"}
    assert apart(one, None) == {"expected": "a tensor of shape (2, 3, 5), float32", "got": "None"}
    assert apart(3, torch.tensor(3)) == {"expected": "3 (int)", "got": "3 (Tensor)"}
