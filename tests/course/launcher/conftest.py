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
from venv import EnvBuilder

import pytest

import hooklab
from hooklab.course.launcher.programs import FOLDERS

INSTALLER = """
import os, pathlib, shutil, sys, time
if __name__ == "__main__":
    me, words, plan = pathlib.Path(__file__).stem, sys.argv[1:], os.environ.get("FAKE", "")
    if words == ["config", "list"]:
        print("global.find-links='/wheels'")
        sys.exit()
    with open("calls.txt", "a", encoding="utf-8") as calls:
        print(me, *words, file=calls)
    if me == "ensurepip":
        shutil.copy(__file__, "pip.py")
    elif words == ["install", "uv"]:
        shutil.copy(__file__, "uv.py")
    if me + " fails" in plan:
        print("\\n".join(f"noise {n}" for n in range(30)) + "\\nERROR: No matching distribution found for tiny==1.0")
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
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def requirements(self) -> Path:
        return self.root / "requirements.txt"

    @property
    def calls(self) -> list[str]:
        """What ensurepip, pip and uv were called with."""
        path = self.root / "calls.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start ``python -m hooklab`` in this course."""
        return subprocess.Popen(
            [sys.executable, "-m", "hooklab", *arguments],
            cwd=self.root,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            # a run of the tests in the background ignores Ctrl-C, and its children would inherit that
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if os.name == "posix" else None,
        )

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run ``python -m hooklab`` in this course to its end."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    package = Path(hooklab.__file__).parent
    (root / "lessons").mkdir()
    (root / "lessons/01_first.ipynb").touch()
    shutil.copytree(
        package / "course/launcher", root / "hooklab/course/launcher", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ["__init__.py", "__main__.py", "course/__init__.py", "course/progress.py", "course/root.py"]:
        shutil.copy(package / name, root / "hooklab" / name)
    (root / "requirements.txt").write_text("# tested\ntiny==1.0\n-e .\n")
    (root / "requirements-dev.txt").write_text("-r requirements.txt\nbig==2.0\n")
    (root / "ensurepip.py").write_text(INSTALLER)
    (root / "pytest.py").write_text(PROGRAM)
    (root / "jupyterlab.py").write_text(PROGRAM)
    return root


@pytest.fixture(scope="session")
def plain_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment as ``python -m venv --without-pip`` makes it."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    EnvBuilder(symlinks=os.name != "nt").create(folder)
    return folder


@pytest.fixture
def course(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A small course without ``.venv``; the current folder is its root."""
    root = tmp_path / "Häkchen und Ösen 课程" / "mein kurs"
    shutil.copytree(template, root)
    monkeypatch.chdir(root)
    for variable in ["PYTHONPATH", "FAKE", *FOLDERS]:
        monkeypatch.delenv(variable, raising=False)
    return Course(root)


@pytest.fixture
def course_with_venv(course: Course, plain_venv: Path) -> Course:
    """A small course with a ``.venv`` that somebody made by hand, with nothing in it."""
    shutil.copytree(plain_venv, course.venv, symlinks=True)
    return course
