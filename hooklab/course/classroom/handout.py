"""`python -m hooklab handout OUT`: what a class gets, as the folder OUT and as OUT.zip, and nothing else.

Lessons, the package and its requirements; no solutions, no teacher's pages, no wrong answers. Each file is compared
with every solution before anything is written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.products import compare
from hooklab.course.build.sources import Course, solution_lines
from hooklab.course.classroom.lessons import lesson_at
from hooklab.course.root import find_root

PACKAGE = (
    *(f"hooklab/**/*.{kind}" for kind in ("py", "json", "toml")),
    "hooklab/py.typed",
    "hooklab/course/launcher/**/*.js",
    "pyproject.toml",
    "requirements.txt",
)
README = Path(__file__).with_name("templates") / "handout.md"


def main(argv: Sequence[str]) -> int:
    """Write the handout and return the exit status: 0, 1 if it would give something away, 2 for a wrong command."""
    parser = argparse.ArgumentParser(prog="python -m hooklab handout", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    one = "give out this lesson, and the start page; again for one more; else all"
    parser.add_argument("--lesson", type=int, metavar="03", action="append", dest="lessons", help=one)
    options = parser.parse_args(argv)
    out, archive = options.out, options.out.with_name(f"{options.out.name}.zip")
    if there := [str(path) for path in (out, archive) if path.exists()]:
        print(f"handout: {there[0]} is there already: remove it or name another folder", file=sys.stderr)
        return 2
    course = Course(find_root())
    try:
        for number in options.lessons or ():
            lesson_at(number)
    except LookupError as error:
        print(f"handout: {error}", file=sys.stderr)
        return 2
    drafts = [draft(course, lesson) for lesson in course.lessons()]
    if stale := [problem for one in drafts for problem in one.problems or compare(one)]:
        print("\n".join(stale), "handout: first bring the lessons up to date", sep="\n", file=sys.stderr)
        return 1
    files = given_files(course.root, options.lessons)
    if told := given_away(files, drafts):
        print("\n".join(told), file=sys.stderr)
        return 1
    write(files, out)
    print(f"{out} and {archive.name}: {len(files)} files, no line of a solution, no teacher's page")
    return 0


def given_files(root: Path, numbers: Sequence[int] | None = None) -> dict[str, bytes]:
    """Return the files that a class gets, by path: all are text."""
    lessons = ["lessons/*.ipynb"] if numbers is None else [f"lessons/{number:02d}_*.ipynb" for number in (0, *numbers)]
    paths = sorted({path for pattern in (*PACKAGE, *lessons) for path in root.glob(pattern) if path.is_file()})
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths} | {"README.md": README.read_bytes()}


def given_away(files: dict[str, bytes], drafts: Sequence[Draft]) -> list[str]:
    """Return one line for each file that holds a solution or a teacher's text.

    This finds solutions of several lines, in any file. The builder has already looked for single telling lines in the
    lessons, when it compared them with their sources.
    """
    solutions = {one.id: solution_lines(one.solution.text) for draft in drafts for one in draft.exercises}
    solutions = {id: lines for id, lines in solutions.items() if len(lines) > 1}
    pages = [one.lesson.teaching.read_text(encoding="utf-8") for one in drafts if one.lesson.teaching.is_file()]
    teaching = {line for page in pages for line in page.split("\n") if len(line) > 60}
    told = []
    for name, content in files.items():
        text = content.decode("utf-8")
        if name.endswith(".ipynb"):
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        joined = "\n".join(line.strip() for line in text.split("\n") if line.strip())
        told += [f"{name} holds the solution of {id}" for id, lines in solutions.items() if "\n".join(lines) in joined]
        told += [f"{name} holds a teacher's page" for line in teaching if line in text]
    return told


def write(files: dict[str, bytes], out: Path) -> None:
    """Write the files into a folder, and into a zip beside it that has its name."""
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    shutil.make_archive(str(out), "zip", out.parent, out.name)
