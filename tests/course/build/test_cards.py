from pathlib import Path

import pytest

from tests.course.build.made_up import TINY, changed, draft_of, problems_of

CARD = TINY[TINY.index('# %% [markdown] tags=["exercise"]') : TINY.index('# %% tags=["solution"]')]
SOLUTION = TINY[TINY.index('# %% tags=["solution"]') : TINY.index('# %% tags=["check"]')]
CHECK = TINY[TINY.index('# %% tags=["check"]') :]


def test_an_exercise_has_its_id_points_and_cells(tmp_path: Path) -> None:
    made = draft_of(tmp_path)

    (one,) = made.exercises
    assert not made.problems
    assert (one.id, one.points) == ("9.1", 2)
    assert [(role, cell.number) for role, cell in one.roles()] == [("exercise", 4), ("solution", 5), ("check", 6)]


def test_a_card_may_have_an_empty_line_under_its_title(tmp_path: Path) -> None:
    made = draft_of(tmp_path, changed("· Two\n# ●●○", "· Two\n#\n# ●●○"))

    assert not made.problems
    assert made.exercises[0].points == 2


@pytest.mark.parametrize(
    ("old", "new", "line", "cell", "said"),
    [
        (CHECK, "", 19, 4, "an exercise without a check cell"),
        (SOLUTION, "", 19, 4, "an exercise without a solution cell"),
        (SOLUTION, SOLUTION + "# %%\nx = 1\n\n", 19, 4, "an exercise without a check cell"),
        (CHECK, CHECK.replace("# %%", "# %% [markdown]").replace("check(", "# check("), 41, 6, "on a markdown cell"),
        ("### Exercise 9.1 · Two", "### Exercise 9.1: Two", 19, 4, "first line must be `### Exercise 2.1 · Title`"),
        ("●●○ · 5 minutes", "●●○", 19, 4, "no difficulty or minutes"),
        ("●●○ · 5 minutes", "5 minutes", 19, 4, "no difficulty or minutes"),
        ("●●○ · 5 minutes", "●●○○ · 5 minutes", 19, 4, "no difficulty or minutes"),
        ("●●○ · 5 minutes", "○○○ · 5 minutes", 19, 4, "no difficulty or minutes"),
        ("<summary>Hint: I get 11</summary>", "<summary>I get 11</summary>", 19, 4, "1 hints, at least 2"),
        ("    ### END SOLUTION\n", "", 33, 5, "`### BEGIN SOLUTION` without `### END SOLUTION`"),
        ('check("9.1", two)', "print(two)", 41, 6, '0 calls of check("id", …)'),
        ('check("9.1", two)', 'check("9.1", two)\ncheck("9.1", two)', 41, 6, '2 calls of check("id", …)'),
        ('check("9.1", two)', 'check("9.2", two)', 41, 6, "it checks 9.2, but the card before it is exercise 9.1"),
        ('["solution"]', '["solution", "check"]', 33, 5, "tags 'solution' and 'check' on one cell"),
    ],
)
def test_a_faulty_exercise_is_refused(tmp_path: Path, old: str, new: str, line: int, cell: int, said: str) -> None:
    shown = [problem for problem in problems_of(tmp_path, changed(old, new)) if said in problem]

    assert len(shown) == 1
    assert shown[0].startswith(f"09_tiny.py:{line}: cell {cell} ")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ('# %% tags=["solution"]\ndef f():\n    ### BEGIN SOLUTION\n    x\n    ### END SOLUTION\n', "does not follow"),
        ('# %% tags=["check"]\ncheck("9.1", two)\n', "a check cell that does not follow a solution cell"),
        ("# %%\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n", "a solution delimiter in a cell without the tag"),
        ('# %%\nimport hooklab\nhooklab.check("9.1", two)\n', "check('9.1', …) in a cell without the tag 'check'"),
        ("# %% [markdown]\n# ### Exercise 9.2 · Three\n", "an exercise's card without the tag 'exercise'"),
        ('# %% tags=["exercise"]\nx = 1\n', "the card is markdown"),
    ],
)
def test_a_part_of_an_exercise_on_its_own_is_refused(tmp_path: Path, cell: str, said: str) -> None:
    shown = problems_of(tmp_path, f"{TINY}\n# %%\nx = 1\n\n{cell}")

    assert any(problem.startswith("09_tiny.py:47: cell 8 ") and said in problem for problem in shown)


def test_an_id_used_twice_in_a_lesson_is_refused(tmp_path: Path) -> None:
    shown = problems_of(tmp_path, TINY + "\n" + CARD + SOLUTION + CHECK)

    assert shown == ['09_tiny.py:44: cell 7 "### Exercise 9.1 · Two": exercise id 9.1 is used twice in this lesson']
