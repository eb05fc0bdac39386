from pathlib import Path

import pytest

from hooklab.course.build.draft import draft
from hooklab.course.build.sources import Lesson
from tests.course.build.made_up import NAME, TINY, changed, draft_of, make_course, problems_of

SOLUTION = TINY[TINY.index('# %% tags=["solution"]') : TINY.index('# %% tags=["check"]')]
CHECK = TINY[TINY.index('# %% tags=["check"]') :]


def test_all_problems_of_a_source_are_told_at_once(tmp_path: Path) -> None:
    source = changed('["setup"]', '["setupp"]')
    source = changed("●●○ · 5 minutes", "●●○", source)
    source = changed('["check"]', '["check", "chek"]', source)

    lines = {problem.split(":")[1] for problem in problems_of(tmp_path, source)}

    assert lines == {"4", "19", "41"}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("README.md", "09_tiny", "09_other", "README.md: no row of 09_tiny with the minutes of its card: | 9 | ["),
        ("solutions/source/09_tiny.py", "**Time** 6", "6", "the lesson's card has no minutes: `**Time** 6 minutes`"),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    course = make_course(tmp_path)
    path = tmp_path / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    (problem,) = draft(course, course.lessons()[0]).problems

    assert said in problem


def test_an_exercise_has_its_id_points_and_cells(tmp_path: Path) -> None:
    made = draft_of(tmp_path)

    (one,) = made.exercises
    assert not made.problems
    assert (one.id, one.title, one.points) == ("9.1", "Two", 2)
    assert (one.card.number, one.solution.number, one.check.number) == (4, 5, 6)


def test_a_second_exercise_of_the_same_id_is_told(tmp_path: Path) -> None:
    shown = problems_of(tmp_path, TINY + "\n" + TINY[TINY.index('# %% [markdown] tags=["exercise"]') :])

    assert shown == ['09_tiny.py:44: cell 7 "### Exercise 9.1 · Two": there are two exercises 9.1']


@pytest.mark.parametrize(
    ("old", "new", "line", "cell", "said"),
    [
        (CHECK, "", 19, 4, "must follow each other"),
        (SOLUTION, "", 19, 4, "must follow each other"),
        (SOLUTION, SOLUTION + "# %%\nx = 1\n\n", 19, 4, "must follow each other"),
        (CHECK, CHECK.replace("# %%", "# %% [markdown]").replace("check(", "# check("), 19, 4, "both of code"),
        ("### Exercise 9.1 · Two", "### Exercise 9.1: Two", 19, 4, "must begin like `### Exercise 2.1 · Title`"),
        ("●●○ · 5 minutes", "●●○", 19, 4, "and, below it, `●○○ · 5 minutes`"),
        ("●●○ · 5 minutes", "●●○○ · 5 minutes", 19, 4, "and, below it, `●○○ · 5 minutes`"),
        ("    ### END SOLUTION\n", "", 33, 5, "a solution must be between"),
        ('check("9.1", two)', "print(two)", 41, 6, 'one call of check("9.1", …)'),
        ('check("9.1", two)', 'check("9.1", two)\ncheck("9.1", two)', 41, 6, 'one call of check("9.1", …)'),
        ('check("9.1", two)', 'check("9.2", two)', 41, 6, 'one call of check("9.1", …)'),
    ],
)
def test_a_faulty_exercise_is_refused(tmp_path: Path, old: str, new: str, line: int, cell: int, said: str) -> None:
    shown = [problem for problem in problems_of(tmp_path, changed(old, new)) if said in problem]

    assert len(shown) == 1
    assert shown[0].startswith(f"09_tiny.py:{line}: cell {cell} ")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (
            '# %% tags=["solution"]\ndef f():\n    ### BEGIN SOLUTION\n    x\n    ### END SOLUTION\n',
            "does not follow an exercise's card",
        ),
        ('# %% tags=["check"]\ncheck("9.1", two)\n', "does not follow an exercise's card"),
        ("# %%\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n", "does not follow an exercise's card"),
        ('# %%\ncheck("9.1", two)\n', "does not follow an exercise's card"),
        ('# %% tags=["exercise"]\nx = 1\n', "must follow each other"),
    ],
)
def test_a_part_of_an_exercise_on_its_own_is_refused(tmp_path: Path, cell: str, said: str) -> None:
    shown = problems_of(tmp_path, f"{TINY}\n# %%\nx = 1\n\n{cell}")

    assert any(problem.startswith("09_tiny.py:47: cell 8 ") and said in problem for problem in shown)


def test_a_link_to_a_tag_becomes_one_to_the_first_cell_with_it_and_is_stale_when_that_cell_changes(
    tmp_path: Path,
) -> None:
    linking = changed("# # 9 ·", "# [here](09_tiny.ipynb#claim-S0.1), [there](08_other.ipynb)\n# # 9 ·")
    edited = changed("total = 1 + 1", "total = 2", linking)

    before, after = (
        draft(make_course(tmp_path, {NAME: source, "08_other": TINY}), Lesson(NAME, tmp_path))
        for source in (linking, edited)
    )

    assert not before.problems
    for made in (before, after):
        assert made.cells[0].text.startswith(f"[here](09_tiny.ipynb#cell-id={made.ids[2]}), [there](08_other.ipynb)\n")
    assert before.ids[0] == after.ids[0] and before.ids[2] != after.ids[2]
