from pathlib import Path

import pytest

from hooklab.course.build.course import Lesson
from hooklab.course.build.draft import draft
from tests.course.build.made_up import CHECKS, NAME, TINY, changed, draft_of, make_course, problems_of


def test_a_lesson_in_order_has_no_problems(tmp_path: Path) -> None:
    assert not draft_of(tmp_path).problems


def test_an_id_that_the_checks_do_not_know_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, TINY, checks="")

    assert problem == '09_tiny.py:41: cell 6 "check("9.1", two)": hooklab.course.exercises has no @exercise("9.1", …)'


def test_an_exercise_of_the_checks_without_a_card_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, TINY, checks=CHECKS + '\n@exercise("9.2", "Three")\ndef three(trial): ...\n')

    assert problem == "09_tiny.py: hooklab.course.exercises has exercise 9.2, but here is no card for it"


def test_an_id_with_another_lessons_number_is_refused(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, TINY.replace("9.1", "8.1"), checks=CHECKS.replace("9.1", "8.1"))

    assert problems == ['09_tiny.py:19: cell 4 "### Exercise 8.1 · Two": exercise 8.1 in lesson 9']


def test_two_sources_with_one_number_are_refused(tmp_path: Path) -> None:
    course = make_course(tmp_path, {NAME: TINY, "09_other": TINY})

    problems = draft(course, Lesson(NAME, tmp_path)).problems

    assert [problem.what for problem in problems] == [
        "solutions/source/09_other.py has the same number, and so the same ids"
    ]


def test_a_source_without_a_number_is_refused(tmp_path: Path) -> None:
    course = make_course(tmp_path, {"tiny": TINY})

    assert "the name must begin with the lesson's number" in str(draft(course, Lesson("tiny", tmp_path)).problems[0])


def test_a_source_in_another_encoding_is_refused(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    course.lessons()[0].source.write_bytes(TINY.encode("utf-16"))

    assert "this is not UTF-8" in str(draft(course, course.lessons()[0]).problems[0])


def test_all_problems_of_a_source_are_told_at_once_in_its_order(tmp_path: Path) -> None:
    source = changed('["setup"]', '["setupp"]')
    source = changed("●●○ · 5 minutes", "●●○", source)
    source = changed('["check"]', '["check", "chek"]', source)
    source = changed("Hint: I get 11", "I get 11", source)
    source = changed("    ### END SOLUTION\n", "", source)

    lines = [problem.split(":")[1] for problem in problems_of(tmp_path, source, checks="") if ".py:" in problem]

    assert lines == ["4", "19", "19", "33", "40"]


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "README.md",
            "09_tiny",
            "09_other",
            "README.md: no row of 09_tiny with its minutes in the table of lessons: | 9 | [",
        ),
        (
            "tests/course/lesson09/wrong.py",
            '@wrong("9.1", "not two")\ndef none',
            "def none",
            ": 2 wrong answers in tests/",
        ),
        (
            "solutions/source/09_tiny.py",
            'tags=["recap"]',
            "",
            '09_tiny.py: no recap: a markdown cell with the tag "recap"',
        ),
        ("solutions/source/09_tiny.py", "**Time** 6", "6", "the lesson's card has no minutes: `**Time** 6 minutes`"),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    course = make_course(tmp_path)
    path = tmp_path / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    (problem,) = draft(course, course.lessons()[0]).problems

    assert said in str(problem)


def test_a_lesson_without_a_file_of_wrong_answers_is_told_the_file(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    (tmp_path / "tests" / "course" / "lesson09" / "wrong.py").unlink()

    (problem,) = draft(course, course.lessons()[0]).problems

    assert 'cell 4 "### Exercise 9.1 · Two": 0 wrong answers in tests/course/lesson09/wrong.py: at least 3' in str(
        problem
    )
