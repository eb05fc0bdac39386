from pathlib import Path

import pytest

from hooklab.course.build.draft import draft
from hooklab.course.build.sources import Lesson
from tests.course.build.made_up import CHECKS, NAME, TINY, changed, draft_of, make_course, problems_of

CARD = TINY[TINY.index('# %% [markdown] tags=["exercise"]') : TINY.index('# %% tags=["solution"]')]
SOLUTION = TINY[TINY.index('# %% tags=["solution"]') : TINY.index('# %% tags=["check"]')]
CHECK = TINY[TINY.index('# %% tags=["check"]') :]


def test_an_id_that_the_checks_do_not_know_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, TINY, checks="")

    told = 'hooklab/course/lesson09/checks.py has no @exercise("9.1", …)'
    assert problem == f'09_tiny.py:41: cell 6 "check("9.1", two)": {told}'


def test_an_exercise_of_the_checks_without_a_card_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, TINY, checks=CHECKS + '\n@exercise("9.2", "Three")\ndef three(trial): ...\n')

    assert problem == "09_tiny.py: hooklab/course/lesson09 has exercise 9.2, but here is no card for it"


def test_an_id_with_another_lessons_number_is_refused(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, TINY.replace("9.1", "8.1"), checks=CHECKS.replace("9.1", "8.1"))

    assert problems == ['09_tiny.py:19: cell 4 "### Exercise 8.1 · Two": exercise 8.1 in lesson 9']


def test_a_source_without_a_number_is_refused(tmp_path: Path) -> None:
    course = make_course(tmp_path, {"tiny": TINY})

    assert "the name must begin with the lesson's number" in str(draft(course, Lesson("tiny", tmp_path)).problems[0])


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
    left = path.read_text(encoding="utf-8").replace(old, new)
    path.write_text(left, encoding="utf-8") if left else path.unlink()

    (problem,) = draft(course, course.lessons()[0]).problems

    assert said in str(problem)


def test_an_exercise_has_its_id_points_and_cells(tmp_path: Path) -> None:
    made = draft_of(tmp_path)

    (one,) = made.exercises
    assert not made.problems
    assert (one.id, one.title, one.points) == ("9.1", "Two", 2)
    assert [(role, cell.number) for role, cell in one.roles()] == [("exercise", 4), ("solution", 5), ("check", 6)]


@pytest.mark.parametrize(
    ("old", "new", "line", "cell", "said"),
    [
        (CHECK, "", 19, 4, "an exercise without a check cell"),
        (SOLUTION, "", 19, 4, "an exercise without a solution cell"),
        (SOLUTION, SOLUTION + "# %%\nx = 1\n\n", 19, 4, "an exercise without a check cell"),
        (CHECK, CHECK.replace("# %%", "# %% [markdown]").replace("check(", "# check("), 41, 6, "on a markdown cell"),
        ("### Exercise 9.1 · Two", "### Exercise 9.1: Two", 19, 4, "first line must be `### Exercise 2.1 · Title`"),
        ("●●○ · 5 minutes", "●●○", 19, 4, "no difficulty or minutes"),
        ("●●○ · 5 minutes", "●●○○ · 5 minutes", 19, 4, "no difficulty or minutes"),
        ("<summary>Hint: I get 11</summary>", "<summary>I get 11</summary>", 19, 4, "1 hints, at least 2"),
        ("    ### END SOLUTION\n", "", 33, 5, "a solution must be between"),
        ('check("9.1", two)', "print(two)", 41, 6, '0 calls of check("id", …)'),
        ('check("9.1", two)', 'check("9.1", two)\ncheck("9.1", two)', 41, 6, '2 calls of check("id", …)'),
        ('check("9.1", two)', 'check("9.2", two)', 41, 6, "it checks 9.2, but the card before it is exercise 9.1"),
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
        ("# %%\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n", "a solution delimiter in a cell without the tag"),
        ('# %%\nimport hooklab\nhooklab.check("9.1", two)\n', "does not follow an exercise's card"),
        ('# %% tags=["exercise"]\nx = 1\n', "an exercise without a solution cell"),
    ],
)
def test_a_part_of_an_exercise_on_its_own_is_refused(tmp_path: Path, cell: str, said: str) -> None:
    shown = problems_of(tmp_path, f"{TINY}\n# %%\nx = 1\n\n{cell}")

    assert any(problem.startswith("09_tiny.py:47: cell 8 ") and said in problem for problem in shown)


def test_an_id_used_twice_in_a_lesson_is_refused(tmp_path: Path) -> None:
    shown = problems_of(tmp_path, TINY + "\n" + CARD + SOLUTION + CHECK)

    assert shown == ['09_tiny.py:44: cell 7 "### Exercise 9.1 · Two": exercise id 9.1 is used twice in this lesson']


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


@pytest.mark.parametrize("target", ["09_tiny.ipynb#field-05", "08_gone.ipynb"])
def test_a_link_to_a_cell_or_lesson_that_does_not_exist_is_refused(tmp_path: Path, target: str) -> None:
    problems = problems_of(tmp_path, changed("# # 9 ·", f"# [there]({target})\n# # 9 ·"))

    assert len(problems) == 1 and problems[0].endswith(f"a link to a cell that does not exist: {target}")
