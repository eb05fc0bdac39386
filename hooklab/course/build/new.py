"""begin: write the files of a new lesson, small but whole, so that it builds and every rule can be seen kept."""

from __future__ import annotations

import re
import sys

from hooklab.course.build.draft import draft
from hooklab.course.build.sources import Course, Lesson

_NAME = re.compile(r"\d{2}_[a-z][a-z0-9_]*")

# The same lesson as four files; N stands for the number. What it teaches is there to be replaced.
SOURCE = '''\
# %% [markdown]
# # N · What is the question of this lesson?
#
# **Time** MM minutes &nbsp;·&nbsp; **You need** lesson 1
#
# After this lesson you can
#
# - add to a tensor without changing it for others.

# %% tags=["setup"]
import torch

from hooklab import check, predict, progress, reveal

torch.set_num_threads(1)

# %% [markdown]
# ## Predict
#
# Two names, one tensor. **Before you run the next cell but one: choose.**

# %%
predict("N.a")

# %% tags=["predict"]
x = torch.tensor([1.0, 2.0])
y = x
y += 10
print("What came out:")
print("x =", x.tolist())

# %%
reveal("N.a", x.tolist())
assert x.tolist() == [11.0, 12.0]

# %% [markdown]
# `y = x` makes a second name and no second tensor, and `+=` writes into the tensor that both names stand for.

# %% [markdown] tags=["exercise"]
# ### Exercise N.1 · One more
# ●○○ · 3 minutes
#
# Return a tensor that is larger by one than the one that came, and leave that one as it is.
#
# <details><summary>Hint: the check says "in-place change"</summary>
#
# `+=` writes into the tensor of whoever called you.
# </details>
#
# <details><summary>Hint: the check says "None"</summary>
#
# A function without a `return` returns None.
# </details>

# %% tags=["solution"]
def one_more(x: torch.Tensor) -> torch.Tensor:
    """Return x + 1 as a new tensor."""
    ### BEGIN SOLUTION
    return x + 1
    ### END SOLUTION

# %% tags=["check"]
check("N.1", one_more)

# %% [markdown] tags=["recap"]
# ## Recap
#
# | what one may think | today |
# |---|---|
# | `y = x` makes a second tensor | no: a second name |

# %%
progress(N)
'''
CHECKS = '''\
"""The checks of lesson N."""

from __future__ import annotations

import torch

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.trial import NotYet, Trial, expect_tensor, same, tensor_text


@exercise("N.1", "One more")
def one_more(trial: Trial) -> str:
    for x in (torch.tensor([1.0, -2.0]), torch.tensor(1e3)):
        wanted = x + 1
        got = expect_tensor(trial.call(x), "your result", wanted.shape)
        if not same(got, wanted):
            raise NotYet("the numbers are others", expected=tensor_text(wanted), got=tensor_text(got))
    return "two tensors, each one larger, and neither of them changed"
'''
PREDICTIONS = '''\
"""The predictions of lesson N."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

two_names = prediction(
    "N.a",
    "`y = x`, then `y += 10`: what is in `x`?",
    Choice(
        "`[1.0, 2.0]`",
        lambda came: came == [1.0, 2.0],
        "A variable as a box with the numbers in it, which `=` fills from another box. But a name is no box.",
    ),
    Choice("`[11.0, 12.0]`", lambda came: came == [11.0, 12.0], "One tensor with two names, changed in place."),
)
'''
WRONG = '''\
"""Named wrong answers of lesson N."""

from tests.course.exercises.wrong import wrong


@wrong("N.1", says="your result is None")
def forgets_to_return(x):
    x + 1


@wrong("N.1", says="in-place change")
def changes_what_came(x):
    x += 1
    return x


@wrong("N.1", says="the numbers are others")
def adds_two(x):
    return x + 2
'''
TEACHING = """\
## On the board

What do you draw while the class predicts?

## Two questions to discuss

1. *A question without a number as its answer?* What speaks for each side.
2. *Another one?*

## What can be left out

Which parts, if there is one hour?
"""


def begin(course: Course, names: list[str]) -> int:
    """Write a new lesson's files, say what is left to do by hand, and return the exit status: 2 for a wrong name."""
    name = names[0] if len(names) == 1 else ""
    lesson = Lesson(name, course.root)
    taken = [other.name for other in course.lessons() if other.number == lesson.number]
    if not _NAME.fullmatch(name) or taken:
        why = f"{taken[0]} has this number" if taken else "name the lesson as in: build new 12_hook_clinic"
        print(f"build: {why}", file=sys.stderr)
        return 2
    files = {
        lesson.source: SOURCE,
        lesson.own / "__init__.py": '"""What is lesson N\'s own: its checks and predictions."""\n',
        lesson.own / "checks.py": CHECKS,
        lesson.own / "predictions.py": PREDICTIONS,
        lesson.wrong_answers.with_name("__init__.py"): "",
        lesson.wrong_answers: WRONG,
        lesson.teaching: TEACHING,
    }
    for path, text in files.items():
        if path.exists():
            print(f"{lesson.shown(path)}: left as it was")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(r"\bN\b", str(lesson.number), text), encoding="utf-8")
        print(f"{lesson.shown(path)}: written")
    minutes = draft(course, lesson).minutes
    text = lesson.source.read_text(encoding="utf-8")
    lesson.source.write_text(text.replace("MM minutes", f"{minutes} minutes"), encoding="utf-8")
    for problem in draft(course, lesson).problems:
        print(f"left to do: {problem}")
    print(f"then: python -m hooklab build {name[:2]}")
    return 0
