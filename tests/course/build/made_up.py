"""A made-up lesson, small enough to see whole (its first cell is also its recap), and courses of such lessons."""

from pathlib import Path

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.sources import Course, Lesson

TINY = '''\
# %% [markdown] tags=["recap"]
# # 9 · A tiny lesson · **Time** 6 minutes

# %% tags=["setup"]
from IPython.display import display

def check(id, answer):
    try:
        text = f"✓ {id} correct: two" if answer() == 2 else f"✗ {id} not yet: not two"
    except NotImplementedError:
        text = f"○ {id} not attempted: write it"
    display({"text/plain": text, "text/html": f"<b>{text}</b>"}, raw=True)

# %% tags=["claim-S0.1"]
total = 1 + 1
print("total =", total)
assert total == 2

# %% [markdown] tags=["exercise"]
# ### Exercise 9.1 · Two
# ●●○ · 5 minutes
#
# Return two.
#
# <details><summary>Hint: I get None</summary>
# A function without a return gives None.
# </details>
#
# <details><summary>Hint: I get 11</summary>
# Those were two strings.
# </details>

# %% tags=["solution"]
def two() -> int:
    """Return two."""
    ### BEGIN SOLUTION
    first, second = 1, 1
    return first + second
    ### END SOLUTION

# %% tags=["check"]
check("9.1", two)
'''
ASKED = """
# %%
def predict(id):
    print(id, "What is 1 + 2?")

def reveal(id, came):
    display({"text/plain": f"○ {id} no guess: none was made"}, raw=True)

# %%
predict("9.a")

# %% tags=["predict"]
three = 1 + 2
print("What came out:")
print(three)

# %%
reveal("9.a", three)
assert three == 3, "On this page, 1 + 2 is 3."
"""
NAME = "09_tiny"


def changed(old: str, new: str, source: str = TINY) -> str:
    """Return a source with one passage changed; an error when it is not there exactly once."""
    assert source.count(old) == 1, f"{source.count(old)} times in the source: {old!r}"
    return source.replace(old, new)


def numbered(number: int, source: str = TINY) -> str:
    """Return the source as that of lesson `number`."""
    return source.replace("9.1", f"{number}.1")


def row(name: str, minutes: str = "6") -> str:
    """Return a lesson's row of the README."""
    return f"| 9 | [{name}](lessons/{name}.ipynb) | How? | {minutes} | nothing |\n"


def make_course(root: Path, sources: dict[str, str] | None = None) -> Course:
    """Write a course with these sources, by name, and all that belongs to them: by default, lesson 9."""
    sources = sources or {NAME: TINY}
    for name, source in sources.items():
        path = Lesson(name, root).source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    graded = root / "hooklab" / "course" / "graded.py"  # the course's own hooklab hides ours from its kernels
    graded.parent.mkdir(parents=True, exist_ok=True)
    graded.write_text("def check_of(version, check):\n    return check\n", encoding="utf-8")
    (root / "README.md").write_text("".join(map(row, sources)), encoding="utf-8")
    return Course(root)


def draft_of(root: Path, source: str = TINY) -> Draft:
    """Return the draft of a course's only lesson."""
    return draft(make_course(root, {NAME: source}), Lesson(NAME, root))


def problems_of(root: Path, source: str) -> list[str]:
    """Return the problems of a source as they are shown, without the file's folder."""
    return [problem.removeprefix("solutions/source/") for problem in draft_of(root, source).problems]
