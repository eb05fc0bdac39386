"""``doctor``: is all that the course needs there? A short table, and what to do about what is missing.

It examines the Python that ``lab`` and ``test`` would use, and installs or mends nothing.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.launcher.environment import chosen_python, python_of, why_useless
from hooklab.course.launcher.interpreter import Interpreter, look_at
from hooklab.course.launcher.messages import say
from hooklab.course.launcher.private import child_environment
from hooklab.course.launcher.requirements import Pin, find_root, read_pins, same_version

OPTIONAL = {"Chinese font", "browser"}
BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge"]
BROWSER_FILES = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
]


@dataclass(frozen=True)
class Row:
    """A line of the table; ``mark`` is ok, other (not what was tested), MISSING, BROKEN or - (optional, not there)."""

    mark: str
    label: str
    text: str


def doctor(arguments: list[str]) -> int:
    """Print the table; 0 if all that the course needs is there, 1 if not."""
    root = find_root()
    pins = read_pins(root)
    say("looking at the Python of lab and test; this takes some seconds")
    rows, advice = diagnose(root, pins)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # paths may hold any letter
    print("\n".join(f"  {row.mark:<9}{row.label:<15}{row.text}" for row in rows))
    print("\n" + (advice or "All that the course needs is there."))
    return 1 if advice else 0


def diagnose(root: Path, pins: list[Pin]) -> tuple[list[Row], str]:
    """The rows of the table, and what to do first; the latter is empty if nothing is missing."""
    python = chosen_python(root, pins)
    advice = "" if python else "What to do: python -m hooklab lab (makes .venv and installs; takes minutes)"
    if python is None:
        rows = [Row("ok", "Python", f"{sys.version.split()[0]}, {sys.executable}"), _why_not_ready(root, pins)]
    else:
        rows = [Row("ok", "Python", f"{python.version_text}, {python.path}")]
        rows += [_package(pin, python) for pin in pins]
        if any(row.mark == "MISSING" for row in rows):
            advice = "What to do: " + shlex.join([str(python.path), "-m", "pip", "install", "-r", "requirements.txt"])
        rows += _works(root, python.path)
    rows += [_lessons(root), _browser()]
    for row in rows:
        if row.mark in ("MISSING", "BROKEN") and not advice:
            advice = f"What to do: see to the line {row.label!r} above"
    return rows, advice


def run_checkup(root: Path, python: Path) -> subprocess.CompletedProcess[bytes]:
    """Run :mod:`hooklab.course.launcher.checkup` with that Python."""
    return subprocess.run(
        [str(python), "-m", "hooklab.course.launcher.checkup"],
        cwd=root,
        env=child_environment(root, python),
        capture_output=True,
    )


def _works(root: Path, python: Path) -> list[Row]:
    """A row for each question of the checkup."""
    done = run_checkup(root, python)
    try:
        answers = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last_line = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return [Row("BROKEN", "checkup", f"ended with exit code {done.returncode}: {last_line}")]
    return [
        Row("ok" if works else "-" if label in OPTIONAL else "BROKEN", label, seen) for label, works, seen in answers
    ]


def _why_not_ready(root: Path, pins: list[Pin]) -> Row:
    venv = root / ".venv"
    if not os.path.lexists(venv):
        return Row("MISSING", ".venv", "not made yet, and this Python lacks some of requirements.txt")
    inside = look_at(python_of(venv), [pin.name for pin in pins])
    return Row("MISSING", ".venv", why_useless(venv, inside) or "requirements.txt is not installed in it")


def _package(pin: Pin, python: Interpreter) -> Row:
    installed = python.packages.get(pin.name)
    if installed is None:
        return Row("MISSING", pin.name, f"tested with {pin.version}")
    if same_version(pin.version, installed):
        return Row("ok", pin.name, installed)
    return Row("other", pin.name, f"{installed}, tested with {pin.version}")


def _lessons(root: Path) -> Row:
    lessons = {path.name for path in (root / "lessons").glob("*.ipynb")}
    solutions = {path.name for path in (root / "solutions").glob("*.ipynb")}
    text = f"{len(lessons)} lessons, {len(lessons & solutions)} of them with a solution"
    return Row("ok" if lessons else "MISSING", "lessons", text)


def _browser() -> Row:
    places = [*map(shutil.which, BROWSERS), *(path for path in BROWSER_FILES if os.path.isfile(path))]
    found = next((place for place in places if place), None)
    if found:
        return Row("ok", "browser", found)
    return Row("-", "browser", "no Chromium or Chrome (the browser tests need one)")
