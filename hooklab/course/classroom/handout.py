"""`python -m hooklab handout OUT`: what a class gets, as the folder OUT and as OUT.zip, and nothing else.

Lessons, the package and its requirements; no solutions, no teacher's pages, no wrong answers. What was written is read
again and held against every solution before the command says that it is done.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.products import compare
from hooklab.course.build.sources import BEGIN, END, Course, solution_lines
from hooklab.course.root import find_root

GIVEN = ("lessons/*.ipynb", "hooklab/**/*.py", "hooklab/**/*.json", "hooklab/**/*.toml", "hooklab/py.typed", "pyproject.toml")
README = """\
# PyTorch hooks

With Python 3.11 or newer, in this folder:

    python -m hooklab lab

opens JupyterLab on the first lesson. The first use makes the folder `.venv` and installs the tested packages into it,
which can take some minutes. In an environment of your own: `pip install -r requirements.txt`, then
`jupyter lab lessons/00_start_here.ipynb`.

A first "not attempted" is normal: it is how every exercise starts. Hand in the notebooks of `lessons/`.
"""
_WHEN = (2020, 1, 1, 0, 0, 0)  # the same files give the same zip


def main(argv: Sequence[str]) -> int:
    """Write the handout and return the exit status: 0, 1 if it would give something away, 2 for a wrong command."""
    parser = argparse.ArgumentParser(prog="python -m hooklab handout", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    out = parser.parse_args(argv).out
    archive = out.with_name(f"{out.name}.zip")
    if there := [str(path) for path in (out, archive) if path.exists()]:
        print(f"handout: {there[0]} is there already: remove it or name another folder", file=sys.stderr)
        return 2
    course = Course(find_root())
    drafts = [draft(course, lesson) for lesson in course.lessons()]
    if stale := [str(problem) for one in drafts for problem in one.problems or compare(one)]:
        print("\n".join(stale), "handout: first bring the lessons up to date", sep="\n", file=sys.stderr)
        return 1
    files = given_files(course.root)
    _write(files, out, archive)
    in_folder, in_zip = _in_folder(out), _in_zip(archive, out.name)
    if told := given_away(in_folder, drafts) + (given_away(in_zip, drafts) if in_zip != in_folder else []):
        shutil.rmtree(out)
        archive.unlink()
        print("\n".join(told), file=sys.stderr)
        return 1
    print(f"{out} and {archive.name}: {len(files)} files, no line of a solution, no teacher's page")
    return 0


def given_files(root: Path) -> dict[str, bytes]:
    """Return what a class is given, by path: all of it text."""
    paths = sorted({path for pattern in GIVEN for path in root.glob(pattern) if path.is_file()})
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    return files | {"README.md": README.encode(), "requirements.txt": (root / "requirements.txt").read_bytes()}


def given_away(files: dict[str, bytes], drafts: Sequence[Draft]) -> list[str]:
    """Return one line for each file that a class must not have, and for each that holds a solution or a teacher's text.

    A solution of several lines gives itself away in any file; that no single telling line of one stands in a lesson,
    the builder has made sure of when it compared the lessons with their sources.
    """
    told = [
        f"{name} is not for students" for name in files if name.startswith(("solutions/", "tests/")) or _is_page(name)
    ]
    for name, content in files.items():
        is_notebook = name.endswith(".ipynb")
        text = _joined("\n".join(_texts(json.loads(content))) if is_notebook else content.decode("utf-8"))
        told += [f"{name} holds {marker}" for marker in (BEGIN, END) if is_notebook and marker in text]
        told += [f"{name} holds the solution of {id}" for id, solution in _solutions(drafts) if solution in text]
        told += [f"{name} holds a teacher's page" for line in _teaching(drafts) if line in text]
    return told


def _solutions(drafts: Sequence[Draft]) -> Iterator[tuple[str, str]]:
    for one in drafts:
        for exercise in one.exercises:
            lines = solution_lines(exercise.solution.text)
            if len(lines) > 1:
                yield exercise.id, "\n".join(lines)


def _teaching(drafts: Sequence[Draft]) -> Iterator[str]:
    for one in drafts:
        if one.lesson.teaching.is_file():
            lines = one.lesson.teaching.read_text(encoding="utf-8").split("\n")
            yield from (line for line in lines if len(line) > 60)


def _is_page(name: str) -> bool:
    return name.endswith(".md") and name != "README.md"


def _joined(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


def _texts(value: Any) -> Iterator[str]:
    """All texts of a notebook: a list of texts is one text, in lines."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        yield "".join(value)
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _write(files: dict[str, bytes], out: Path, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in sorted(files.items()):
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            opened.writestr(zipfile.ZipInfo(f"{out.name}/{name}", _WHEN), content, zipfile.ZIP_DEFLATED)


def _in_folder(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def _in_zip(archive: Path, top: str) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name.removeprefix(f"{top}/"): opened.read(name) for name in opened.namelist()}
