"""What is recorded of a solution and its misconceptions, and what the build refuses to record."""

import pytest
import torch

from hooklab.course.build import records
from hooklab.course.build.records import main, record, solution
from hooklab.course.build.sources import Course
from hooklab.course.exercises.exercise import exercise
from hooklab.course.root import find_root


@exercise("9.9", "One more", verified="one is added")
def one_more(trial, world):
    yield "the result", trial.call(torch.zeros(1))


def test_a_record_has_what_the_solution_does_and_where_a_misconception_differs_first():
    made = record(one_more, lambda x: x + 1, {"doubles": lambda x: 2 * x})
    ((what, data),) = made.reference[0]
    assert what == "the result" and data["tensor"] == [1.0]
    ((where, came, clues),) = made.misconceptions["doubles"]
    assert (where, came["tensor"], clues) == ("the result", [0.0], [])


def test_a_misconception_that_is_correct_is_refused():
    with pytest.raises(ValueError, match="'adds' is correct in every world"):
        record(one_more, lambda x: x + 1, {"adds": lambda x: 1 + x})


@pytest.mark.parametrize("faulty", [lambda x: x.add_(1), lambda x: x.nothing])
def test_a_solution_in_which_the_check_finds_a_fault_is_refused(faulty):
    with pytest.raises(ValueError, match=r"^9\.9: the check finds a fault in the solution: "):
        record(one_more, faulty, {})


def test_an_exercise_of_the_checks_without_a_card_is_told():
    with pytest.raises(LookupError, match=r"exercise 0\.9 has no card in 00_start_here\.py"):
        solution(Course(find_root()), "0.9")


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"0.1": {"odd": abs}}, "exercise 0.1 has no sentence for the reason 'odd' in its lesson's reasons.toml"),
        ({"0.7": {}}, "there are misconceptions of exercise 0.7, and no scene of it"),
    ],
)
def test_misconceptions_without_a_sentence_or_a_scene_are_told_in_one_line(monkeypatch, capsys, programs, said):
    monkeypatch.setattr(records, "misconceptions", lambda course, lesson: programs)
    assert main(["0"]) == 1
    assert capsys.readouterr().err == f"LookupError: {said}\n"


def test_an_error_in_a_lessons_own_file_is_told_in_one_line_with_its_place(monkeypatch, capsys):
    monkeypatch.setattr(records, "misconceptions", lambda course, lesson: {})
    monkeypatch.setattr(records, "exercises_of", lambda lesson: [one_more])
    monkeypatch.setattr(records, "solution", lambda course, id: exec(compile("x = 1\ny", "<solution of 9.9>", "exec")))
    assert main(["0"]) == 1
    assert capsys.readouterr().err.startswith("<solution of 9.9>:2: NameError: name 'y' is not defined")


def test_a_lesson_that_there_is_not_is_told_in_one_line(capsys):
    assert main(["88"]) == 1
    assert capsys.readouterr().err.startswith("LookupError: there is no lesson '88'; there are: 00_start_here, ")
