"""``lab`` and ``test``: make the environment ready, then hand over to JupyterLab or pytest.

Handing over means that the other program takes this one's place, so its exit code, its messages and Ctrl-C are its own.
"""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from hooklab.course.launcher.environment import ready_python
from hooklab.course.launcher.messages import os_errors_in_one_line, say
from hooklab.course.launcher.private import child_environment
from hooklab.course.launcher.requirements import find_root


def lab(arguments: list[str]) -> int:
    """Open JupyterLab on the first lesson; further arguments are JupyterLab's."""
    root = find_root()
    python = ready_python(root)
    say("starting JupyterLab; Ctrl-C stops it")
    return hand_over(root, python, ["-m", "jupyterlab", *lab_options(root), *arguments])


def lab_options(root: Path) -> list[str]:
    """JupyterLab's options: the course is what it serves, and the first lesson is what it opens."""
    lessons = sorted(path.name for path in (root / "lessons").glob("*.ipynb"))
    start = "/".join(["/lab/tree/lessons", *map(quote, lessons[:1])])
    return [
        f"--ServerApp.root_dir={root}",
        f"--FileContentsManager.preferred_dir={root / 'lessons'}",
        f"--LabApp.default_url={start}",
    ]


def test(arguments: list[str]) -> int:
    """Run pytest in the root; further arguments are pytest's, and its exit code is ours."""
    root = find_root()
    python = ready_python(root)
    return hand_over(root, python, ["-m", "pytest", *arguments])


def go_inside(argv: list[str]) -> int | None:
    """Run ``python -m hooklab *argv`` in the Python that has everything; None if that is the running one already."""
    root = find_root()
    python = ready_python(root)
    if python == Path(sys.executable) or python.parent.parent == Path(sys.prefix):
        os.environ.update(child_environment(root, python))
        return None
    return hand_over(root, python, ["-m", "hooklab", *argv])


def hand_over(root: Path, python: Path, arguments: list[str]) -> int:
    """Run ``python`` with these arguments in ``root``, in this process's place.

    On Windows, where no process can take another's place, wait for it and return its exit code.
    """
    environment = child_environment(root, python)
    command = [str(python), *arguments]
    if os.name != "nt":
        sys.stdout.flush()
        sys.stderr.flush()
        with os_errors_in_one_line("start the course's Python"):
            os.execve(python, command, environment)
    process = subprocess.Popen(command, cwd=root, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # Ctrl-C reached the program as well, and what it means is for it to say
            continue
