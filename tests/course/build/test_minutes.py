from pathlib import Path

import pytest

from hooklab.course.build import main
from hooklab.course.build.minutes import Minutes, card_fault, row_fault
from tests.course.build.made_up import ASKED, NAME, PREDICTIONS, TINY, changed, draft_of, make_course, problems_of

WORDS = "word " * 360
LINES = "\n# %%\n" + "x = 1\n\n" * 24
MORE = '\n# %% [markdown] tags=["recap"]\n# Done.\n\n# %% [markdown]\n# ## If you want more\n'


def minutes(root: Path, source: str) -> str:
    return str(draft_of(root, source).minutes)


def test_a_lesson_takes_its_exercises_and_a_little(tmp_path: Path) -> None:
    assert minutes(tmp_path, TINY) == "6"  # an exercise of 5, 20 words and 16 lines of code


@pytest.mark.parametrize(
    ("added", "total"),
    [
        (f"\n# %% [markdown]\n# {WORDS}\n", "8"),
        (f"\n# %% [markdown]\n# <details><summary>Answer</summary>\n# {WORDS}\n# </details>\n", "6"),
        (LINES, "8"),  # empty lines are no lines
        ('\n# %% tags=["figure"]\nx = 1\n', "7"),
        ('\n# %% tags=["explorer"]\nx = 1\n', "8"),
    ],
    ids=["words", "folded", "lines", "figure", "explorer"],
)
def test_words_lines_figures_and_explorers_take_time(tmp_path: Path, added: str, total: str) -> None:
    assert minutes(tmp_path, TINY + added) == total


def test_of_a_solution_the_stub_is_counted(tmp_path: Path) -> None:
    source = changed("    first, second = 1, 1\n", "    first, second = 1, 1\n" * 60)

    assert minutes(tmp_path, source) == "6"


def test_the_hardest_exercise_is_counted_on_its_own(tmp_path: Path) -> None:
    assert minutes(tmp_path, changed("●●○ · 5 minutes", "●●● · 15 minutes")) == "1 + 15"


def test_what_stands_behind_the_heading_is_counted_on_its_own(tmp_path: Path) -> None:
    assert minutes(tmp_path, f"{TINY}{MORE}# {WORDS}\n") == "6 + 2"


def test_more_comes_after_the_recap(tmp_path: Path) -> None:
    source = TINY + ASKED + MORE.replace('tags=["recap"]', "")

    (problem,) = problems_of(tmp_path, source, predictions=PREDICTIONS)

    assert 'cell 12 "## If you want more": `## If you want more` stands behind the recap' in problem


@pytest.mark.parametrize(
    ("card", "needed", "fault"),
    [
        ("**Time** 50 minutes, and 12 for ●●●", Minutes(60, 10), None),
        ("**Time** 50 minutes", Minutes(60), None),
        ("**Time** 2 minutes", Minutes(1), None),  # rounding
        ("**Time** 47 minutes", Minutes(60), "47 minutes, computed are 60"),
        ("**Time** 73 minutes", Minutes(60), "73 minutes, computed are 60"),
        ("**Time** 60 minutes", Minutes(60, 10), "60 minutes, computed are 60 + 10"),
        ("**Time** 60 minutes, and 20 for more", Minutes(60, 10), "60 + 20 minutes, computed are 60 + 10"),
    ],
)
def test_a_card_is_refused_when_it_is_off_by_more_than_a_fifth(card: str, needed: Minutes, fault: str | None) -> None:
    assert card_fault(f"# Title\n\n{card} &nbsp;·&nbsp; **You need** 3 things", needed) == fault


def test_a_card_without_minutes_is_refused() -> None:
    assert "no minutes: write them as `**Time** 40 minutes`" in (card_fault("# Title", Minutes(60)) or "")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| 60 + 10 |", None),
        ("| 40 + 10 |", "40 + 10 minutes, computed"),
        ("| 60 |", "60 minutes, computed"),
        ("|", "no"),
    ],
)
def test_a_row_is_held_to_the_same(row: str, fault: str | None) -> None:
    said = row_fault(f"| 1 | [01](lessons/01.ipynb) | How? {row} lessons 1 and 2 |", Minutes(60, 10))

    assert said is None if fault is None else fault in (said or "")


def test_the_card_and_the_readme_are_told_where_they_are_off(tmp_path: Path) -> None:
    row = f"# Title\n\n| 9 | [{NAME}](lessons/{NAME}.ipynb) | How? | 30 | nothing |\n"
    (tmp_path / "README.md").write_text(row, encoding="utf-8")

    problems = problems_of(tmp_path, TINY.replace("6 minutes", "20 minutes") + ASKED, predictions=PREDICTIONS)

    assert problems == [
        '09_tiny.py:1: cell 1 "# 9 · A tiny lesson · **Time** 20 minutes": 20 minutes, computed are 7',
        "README.md:3: the row of 09_tiny: 30 minutes, computed are 7",
    ]


def test_a_lesson_without_predictions_is_not_yet_held_to_its_minutes(tmp_path: Path) -> None:
    assert problems_of(tmp_path, TINY) == []


def test_a_build_tells_the_minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_course(tmp_path, {NAME: changed('["setup"]', '["nonsense"]')})

    main([], tmp_path)

    assert "09_tiny: 6 minutes\n" in capsys.readouterr().out
