from pathlib import Path

import pytest

from hooklab.course.build.draft import draft
from tests.course.build.made_up import NAME, TINY, changed, draft_of, make_course, problems_of, row

WORDS = "word " * 360
LINES = "\n# %%\n" + "x = 1\n\n" * 24
MORE = '\n# %% [markdown] tags=["recap"]\n# Done.\n\n# %% [markdown]\n# ## If you want more\n'


EXERCISE = TINY.index('# %% [markdown] tags=["exercise"]')


@pytest.mark.parametrize(
    ("source", "total"),
    [
        (TINY, "6"),  # an exercise of 5, 20 words and 16 lines of code
        (f"{TINY}\n# %% [markdown]\n# {WORDS}\n", "8"),
        (f"{TINY}\n# %% [markdown]\n# <details><summary>Answer</summary>\n# {WORDS}\n# </details>\n", "6"),
        (TINY + LINES, "8"),  # empty lines are no lines
        (changed("    first, second = 1, 1\n", "    first, second = 1, 1\n" * 60), "6"),
        (TINY + '\n# %% tags=["figure"]\nx = 1\n', "7"),
        (TINY + '\n# %% tags=["explorer"]\nx = 1\n', "8"),
        (changed("●●○ · 5 minutes", "●●● · 15 minutes"), "1 + 15"),
        (f"{TINY}{MORE}# {WORDS}\n", "6 + 2"),
        (f"{TINY[:EXERCISE]}{MORE}\n{TINY[EXERCISE:]}", "1 + 6"),
    ],
    ids=[
        "an exercise and a little",
        "words",
        "folded",
        "lines",
        "of a solution the stub",
        "a figure",
        "an explorer",
        "the hardest on its own",
        "words behind the heading",
        "an exercise behind the heading",
    ],
)
def test_words_lines_figures_explorers_and_exercises_take_time(tmp_path: Path, source: str, total: str) -> None:
    assert str(draft_of(tmp_path, source).minutes) == total


LONG = f"\n# %% [markdown]\n# {'word ' * 9720}\n"  # 54 minutes


@pytest.mark.parametrize(
    ("source", "said", "fault"),
    [
        (TINY, "6 minutes", None),
        (TINY, "7 minutes", None),  # a minute more or less is rounding
        (TINY + LONG, "50 minutes", None),
        (TINY + LONG, "47 minutes", "47 minutes, computed are 60"),
        (TINY + LONG, "74 minutes", "74 minutes, computed are 60"),
        (TINY + LONG + MORE + LONG, "60 minutes", "60 minutes, computed are 60 + 54"),
        (TINY + LONG + MORE + LONG, "60 minutes, and 50 for the curious", None),
        (TINY + LONG + MORE + LONG, "60 minutes, and 20 for the curious", "60 + 20 minutes, computed are 60 + 54"),
    ],
)
def test_a_card_is_refused_when_it_is_off_by_more_than_a_fifth(
    tmp_path: Path, source: str, said: str, fault: str | None
) -> None:
    problems = problems_of(tmp_path, source.replace("6 minutes", said))

    told = [problem.split('": ')[1] for problem in problems if "cell 1 " in problem]
    assert told == ([] if fault is None else [fault])


@pytest.mark.parametrize(("said", "is_told"), [("6", False), ("7", True), ("6 + 9", True), ("six", True)])
def test_the_readmes_row_has_the_minutes_of_the_card(tmp_path: Path, said: str, is_told: bool) -> None:
    course = make_course(tmp_path)
    (tmp_path / "README.md").write_text("# Title\n\n" + row(NAME, said), encoding="utf-8")

    told = draft(course, course.lessons()[0]).problems

    assert [one.split(": | 9 | ")[0] for one in told] == [
        "README.md: no row of 09_tiny with the minutes of its card"
    ] * is_told


def test_minutes_are_not_held_against_the_card_while_an_exercise_has_none(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, changed("●●○ · 5 minutes", "●●○", TINY + LONG))
    assert problem.startswith("09_tiny.py:19: cell 4 ")
