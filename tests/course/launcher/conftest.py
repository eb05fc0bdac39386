"""A small course to launch: the launcher's own files, and an ensurepip, pip, uv, pytest and JupyterLab of a few lines.

The folder's name has a space and letters outside ASCII. ``python -m NAME`` looks in the current folder first, and the
launcher starts its programs in the root: so ``pip.py`` there is the pip of every Python that runs in this course. It
fetches nothing.
"""

import functools
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import hooklab
from hooklab.course.launcher.environment import Venv, find_python
from hooklab.course.launcher.programs import FOLDERS

NAME = Path("Häkchen und Ösen 课程/mein kurs")
INSTALLER = """
import os, pathlib, shutil, sys, time
if __name__ == "__main__":
    me, words, plan = pathlib.Path(__file__).stem, sys.argv[1:], os.environ.get("FAKE", "")
    if words == ["config", "list"]:
        print("global.find-links='/wheels'")
        sys.exit()
    if "PYTHONPATH" in os.environ or os.environ["PIP_USER"] != "0":
        sys.exit("packages would be found, or put, elsewhere")
    with open("calls.txt", "a", encoding="utf-8") as calls:
        print(me, *words, file=calls)
    if me == "ensurepip":
        shutil.copy(__file__, "pip.py")
    elif words == ["install", "uv"]:
        shutil.copy(__file__, "uv.py")
    if me + " fails" in plan:
        print("ERROR: No matching distribution found for tiny==1.0")
        sys.exit(1)
    if me + " waits" in plan:
        pathlib.Path("waits").touch()
        for _ in range(3000):  # a minute at most, whatever becomes of the test
            if pathlib.Path("go-on").exists():
                break
            time.sleep(0.02)
        pathlib.Path("done").touch()
"""
PROGRAM = """
import json, os, sys
seen = {"python": sys.executable, "arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}
print(json.dumps(seen))
sys.exit(7)
"""


@dataclass(frozen=True)
class Course:
    """A small course in its folder."""

    root: Path

    @property
    def requirements(self) -> Path:
        return self.root / "requirements.txt"

    @property
    def venv(self) -> Venv:
        return Venv(self.requirements)

    @property
    def calls(self) -> list[str]:
        """What ensurepip, pip and uv were called with."""
        path = self.root / "calls.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def start(self, *arguments: str, folder: str = ".", **environment: str) -> "subprocess.Popen[str]":
        """Start ``python -m hooklab`` in a folder of this course."""
        return subprocess.Popen(
            [sys.executable, "-m", "hooklab", *arguments],
            cwd=self.root / folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            # a run of the tests in the background ignores Ctrl-C, and its children would inherit that
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if os.name == "posix" else None,
        )

    def run(self, *arguments: str, folder: str = ".", **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run ``python -m hooklab`` in a folder of this course to its end."""
        process = self.start(*arguments, folder=folder, **environment)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="session")
def new_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("new")
    package = Path(hooklab.__file__).parent
    (root / "lessons").mkdir()
    (root / "lessons/01_first.ipynb").touch()
    shutil.copytree(
        package / "course/launcher", root / "hooklab/course/launcher", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ["__init__.py", "__main__.py", *(f"course/{file.name}" for file in (package / "course").glob("*.py"))]:
        shutil.copy(package / name, root / "hooklab" / name)
    (root / "requirements.txt").write_text("# tested\ntiny==1.0\n-e .\n")
    (root / "requirements-dev.txt").write_text("-r requirements.txt\nbig==2.0\n")
    (root / "ensurepip.py").write_text(INSTALLER)
    (root / "pytest.py").write_text(PROGRAM)
    (root / "jupyterlab.py").write_text(PROGRAM)
    return root


@pytest.fixture(scope="session")
def used_course(tmp_path_factory: pytest.TempPathFactory, new_course: Path) -> Path:
    root = tmp_path_factory.mktemp("used") / "course"
    shutil.copytree(new_course, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FAKE", raising=False)
        for name in ["requirements.txt", "requirements-dev.txt"]:
            find_python(root / name)
    return root


@pytest.fixture
def course(tmp_path: Path, new_course: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A small course that was never launched; the current folder is its root."""
    return copied(new_course, tmp_path / NAME, monkeypatch)


@pytest.fixture
def launched(tmp_path: Path, used_course: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A small course whose ``.venv`` has all that is listed."""
    return copied(used_course, tmp_path / NAME, monkeypatch)


def copied(template: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    shutil.copytree(template, root, symlinks=True)
    monkeypatch.chdir(root)
    for variable in ["PYTHONPATH", "FAKE", *FOLDERS]:
        monkeypatch.delenv(variable, raising=False)
    return Course(root)
