"""A lesson's page for its teacher: made from what the lesson knows and from what a teacher has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooklab.course.build.course import Course
from hooklab.course.build.draft import draft
from hooklab.course.build.teaching import OWN, page_of, teachers_page, teaching_problems, text_of, write_page
from tests.course.build.made_up import PREDICTIONS, draft_of

TEXT = "".join(f"{heading}\n\nSome words.\n\n" for heading in OWN)
ROOT = Path(__file__).parents[3]


def test_the_page_has_minutes_predictions_misconceptions_and_the_teachers_own_words(tmp_path: Path) -> None:
    made = draft_of(tmp_path, predictions=PREDICTIONS)
    text_of(made.lesson).write_text(TEXT, encoding="utf-8")

    page = teachers_page(made)

    assert f"## {made.minutes} minutes" in page
    assert f"| 9.1 {'●' * made.exercises[0].points}" in page
    assert "- **9.a** What is 1 + 2?\n    - *3*: \n    - *12*: " in page
    assert "    - eleven: “not two”" in page
    assert "## On the board\n\nSome words." in page


def test_a_page_that_is_not_what_the_sources_make_is_told(tmp_path: Path) -> None:
    made = draft_of(tmp_path)
    text_of(made.lesson).write_text(TEXT, encoding="utf-8")

    assert [str(one) for one in teaching_problems(made)] == ["solutions/09_tiny.md: not what the lesson's sources make"]
    page_of(made.lesson).parent.mkdir(exist_ok=True)
    assert write_page(made) and teaching_problems(made) == []
    assert not write_page(made)
    text_of(made.lesson).write_text(TEXT + "More.\n", encoding="utf-8")
    assert len(teaching_problems(made)) == 1


def test_a_part_that_the_teacher_is_owed_is_missed(tmp_path: Path) -> None:
    made = draft_of(tmp_path)
    text_of(made.lesson).write_text(TEXT.replace(OWN[1], "## Else"), encoding="utf-8")

    assert str(teaching_problems(made)[0]) == "solutions/source/09_tiny.md: no `## Two questions to discuss`"


def test_a_lesson_without_a_hand_written_part_has_no_page_yet(tmp_path: Path) -> None:
    made = draft_of(tmp_path)

    assert teaching_problems(made) == [] and not write_page(made)


@pytest.mark.parametrize("number", [*range(8), 9, 10])
def test_the_first_lessons_have_their_page(number: int) -> None:
    (lesson,) = Course(ROOT).choose([f"{number:02d}"])

    assert text_of(lesson).is_file() and teaching_problems(draft(Course(ROOT), lesson)) == []
