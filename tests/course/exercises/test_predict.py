"""Predictions: a question with choices, the guess that is kept, and what is said when the value has come out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import hooklab
from hooklab.course.exercises import exercise, predict
from hooklab.course.exercises.asking import Question
from hooklab.course.exercises.predict import ByNumber, Choice, guesses, prediction

HALF = "half of the machine is missing"
TWO = prediction(
    "9.a",
    "What is `1 + 1`?",
    Choice("`11`", lambda came: came == "11", "text is joined"),
    Choice("`2`", lambda came: came == 2, "numbers are added"),
    Choice("`None`", lambda came: came is None, "nobody returns anything"),
)
RUNS = ByNumber("9.b", "How often does it run?", {3: "once a use", 1: HALF}, otherwise="not counted")


@pytest.fixture(autouse=True)
def lesson_9(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lesson 9 with these two predictions, and no guesses yet."""
    (tmp_path / "lesson09").mkdir()
    (tmp_path / "lesson09" / "predictions.py").touch()
    module = ModuleType("predictions")
    module.two, module.runs = TWO, RUNS  # type: ignore[attr-defined]
    monkeypatch.setattr(predict, "COURSE", tmp_path)
    monkeypatch.setitem(sys.modules, "hooklab.course.lesson09.predictions", module)
    yield
    guesses.clear()
    predict.when_told.clear()


def said(capsys: pytest.CaptureFixture[str], id: str, came: Any) -> str:
    hooklab.reveal(id, came)
    return capsys.readouterr().out


# --- the question


def test_outside_a_notebook_the_question_is_printed_with_its_choices(capsys: pytest.CaptureFixture[str]) -> None:
    hooklab.predict("9.a")

    assert capsys.readouterr().out == "9.a What is `1 + 1`?\n    a) `11`\n    b) `2`\n    c) `None`\n"


@pytest.mark.parametrize("one", [TWO, RUNS], ids=lambda one: one.id)
def test_what_a_page_without_a_kernel_shows_holds_the_question_and_no_reason(one: Any) -> None:
    bundle = Question(one)._repr_mimebundle_()

    shown = bundle["text/plain"] + bundle["text/html"]
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"].startswith(f"{one.id} {one.question}")
    assert one is not TWO or "What is <code>1 + 1</code>?" in shown
    assert [why for why in ("joined", "added", "nobody", "once a use", HALF, "not counted") if why in shown] == []


# --- the guess


def test_a_clicked_choice_is_kept_and_marked() -> None:
    question = Question(TWO)
    assert [button.description[0] for button in question.controls] == ["○", "○", "○"]
    assert "No guess yet." in question.said.value

    question.controls[1].click()

    assert guesses["9.a"].value == 1
    assert [button.description for button in question.controls] == ["○ a) 11", "◉ b) 2", "○ c) None"]
    assert "Your guess: b) <code>2</code>" in question.said.value


def test_a_guess_may_be_changed_before_it_is_told_and_a_question_shown_again_has_it() -> None:
    question = Question(TWO)
    question.controls[1].click()

    question.controls[2].click()

    for shown in (question, Question(TWO)):
        assert [button.description for button in shown.controls] == ["○ a) 11", "○ b) 2", "◉ c) None"]


def test_a_guess_that_was_told_is_locked() -> None:
    question = Question(TWO)
    question.controls[0].click()
    hooklab.reveal("9.a", 2)

    assert all(button.disabled for button in question.controls)
    question.controls[1].click()
    assert guesses["9.a"].value == 0
    assert question.controls[0].description[0] == "◉"


def test_without_a_guess_the_choices_stay_open_after_the_value_was_told() -> None:
    question = Question(TWO)
    hooklab.reveal("9.a", 2)

    assert not any(button.disabled for button in question.controls)


@pytest.mark.parametrize(("typed", "value"), [("3", 3), ("-0.5", -0.5), (" 2 ", 2), ("0", 0)])
def test_a_number_is_typed(typed: str, value: float) -> None:
    question = Question(RUNS)

    question.controls[0].value = typed

    assert guesses["9.b"].value == value
    assert f"Your guess: {value:g}" in question.said.value
    assert Question(RUNS).controls[0].value == f"{value:g}"


@pytest.mark.parametrize("typed", ["three", "nan", ""])
def test_what_is_no_number_is_no_guess(typed: str) -> None:
    question = Question(RUNS)
    question.controls[0].value = "1"

    question.controls[0].value = typed

    assert guesses["9.b"].value == 1
    assert "Write a number" in question.said.value


# --- what came out


def test_a_guess_that_is_right_gets_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    predict.record("9.a", 1)

    assert said(capsys, "9.a", 2) == (
        "✓ 9.a right: you said b) `2`, and that is what came out\n    why       numbers are added\n"
    )
    assert guesses["9.a"].right is True


def test_a_guess_that_is_not_right_gets_its_picture_and_then_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    predict.record("9.a", 0)

    assert said(capsys, "9.a", 2).splitlines() == [
        "✗ 9.a not this time: you said a) `11`; what came out is b) `2`",
        "    your guess text is joined",
        "    why       numbers are added",
    ]
    assert guesses["9.a"].right is False


def test_no_guess_is_told_kindly_and_the_answer_is_folded_away(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "9.a", 2)
    seen, folded = predict.held_against(TWO, 2).as_html().split("<details>")

    assert text.startswith("○ 9.a no guess: none was made, and that is all right")
    assert "numbers are added" not in text + seen
    assert "<summary>show it without a guess</summary>" in folded and "numbers are added" in folded


@pytest.mark.parametrize(
    ("guess", "picture"), [(1, f"    your guess {HALF}"), (7, "    your guess not counted")], ids=["known", "other"]
)
def test_a_wrong_number_gets_the_picture_behind_it(
    capsys: pytest.CaptureFixture[str], guess: float, picture: str
) -> None:
    predict.record("9.b", guess)

    text = said(capsys, "9.b", 3.0000001)  # the last digits do not count

    assert f"you said {guess}; what came out is 3" in text
    assert picture in text.splitlines()
    assert "    why       once a use" in text.splitlines()


class Nasty:
    """What a reader's change may make of the value."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


@pytest.mark.parametrize(
    "came", [12, torch.ones(2, 300), Nasty(), ["2"] * 900, None], ids=lambda came: type(came).__name__
)
def test_a_value_that_no_choice_foresees_is_not_scored_and_the_guess_stays_open(
    capsys: pytest.CaptureFixture[str], came: Any
) -> None:
    predict.record("9.b", 3)

    text = said(capsys, "9.b", came)

    assert text.startswith("○ 9.b not scored: the result is now ") and "that's fine" in text and len(text) < 400
    assert guesses["9.b"].right is None
    assert "✓ 9.b right" in said(capsys, "9.b", 3)
    both = (Choice("a", lambda came: True, ""), Choice("b", lambda came: True, ""))
    assert predict.right_of(prediction("9.c", "?", *both), came) is None


@pytest.mark.parametrize("call", [hooklab.predict, lambda id: hooklab.reveal(id, 2)])
def test_an_unknown_id_gets_those_that_there_are(call: Any) -> None:
    with pytest.raises(LookupError, match=r"there is no prediction '9\.z'; there are: 9"):
        call("9.z")


def test_under_a_grader_nothing_is_shown_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")

    hooklab.predict("9.a")
    hooklab.reveal("9.a", "neither")
    hooklab.reveal("nowhere", None)

    assert capsys.readouterr() == ("", "")


# --- progress


def test_progress_counts_guesses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    one = exercise.exercise("9.1", "Two", verified="fine")(len)
    monkeypatch.setattr("hooklab.course.exercises.checking.exercises_of", lambda lesson: [one])
    predict.record("9.a", 1)
    hooklab.reveal("9.a", 2)
    predict.record("9.b", 7)
    hooklab.reveal("9.b", 3)
    capsys.readouterr()

    hooklab.progress(9)

    assert capsys.readouterr().out.startswith("Lesson 9: 0 of 1 exercises correct; 2 of 2 guesses made, 1 right\n")


# --- in a notebook


def test_in_a_notebook_the_widget_is_displayed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.get_ipython", lambda: InteractiveShell)
    monkeypatch.setattr("IPython.display.display", shown.append)

    hooklab.predict("9.a")

    assert [type(one) for one in shown] == [Question]
