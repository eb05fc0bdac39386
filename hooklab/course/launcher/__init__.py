"""The launcher behind ``python -m hooklab``: from a bare Python to JupyterLab, with the standard library alone.

Read ``lab`` from here downwards: :func:`main` asks ``environment`` for a Python that has the packages, which makes and
fills ``.venv`` when there is none; then ``programs`` puts JupyterLab in this process's place.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from hooklab.course.launcher.environment import find_python
from hooklab.course.launcher.programs import LauncherError, hand_over, say
from hooklab.course.root import find_root

__all__ = ["main"]


class Command(NamedTuple):
    """A subcommand: its line in the help, the requirement file it needs, what Python is started with, and where."""

    help: str
    needs: str
    start: list[str]
    where: Literal["root", "here"] = "root"  # the folder that it is started in


def calling(module: str) -> list[str]:
    """Python's arguments for a module of the course with a ``main(argv)``."""
    return ["-c", f"import sys; from {module} import main; sys.exit(main(sys.argv[1:]))"]


LEARN, WORK = "requirements.txt", "requirements-dev.txt"
COMMANDS = {
    "lab": Command("open JupyterLab on the lessons; further arguments are JupyterLab's", LEARN, ["-m", "jupyterlab"]),
    "test": Command("run the tests; further arguments are pytest's", WORK, ["-m", "pytest"]),
    "doctor": Command("say whether all that the course needs is there", LEARN, calling(f"{__name__}.doctor")),
    "build": Command("make lessons/ and solutions/ from solutions/source/", WORK, calling("hooklab.course.build")),
    "experiment": Command("run an experiment that a lesson shows", LEARN, calling("hooklab.course.experiments")),
    "handout": Command("write what a class gets", WORK, ["-P", *calling("hooklab.course.classroom.handout")], "here"),
    "grade": Command("grade what a class hands in", LEARN, ["-P", *calling("hooklab.course.classroom.grade")], "here"),
    "screenshot": Command("retake the README's picture", WORK, calling("hooklab.course.browser.screenshot")),
}
HELP = """\
usage: python -m hooklab COMMAND [arguments]

{}

The first use makes the folder .venv and installs the tested packages into it, which can take minutes; after that, the
commands start at once. `python -m hooklab lab --no-browser` prints the address instead of opening a browser."""


def main(argv: list[str]) -> int:
    """Run ``python -m hooklab`` with these arguments and return the exit code.

    2 is an error of the launcher, 130 an interruption of it; any other number comes from what was started.
    """
    name, *arguments = argv or ["--help"]
    if name in ("-h", "--help", "help"):
        print(HELP.format("\n".join(f"  {name:<11} {command.help}" for name, command in COMMANDS.items())))
        return 0
    try:
        if name not in COMMANDS:
            raise LauncherError(f"there is no command {name!r}; there are {', '.join(COMMANDS)}")
        root, command = find_root(), COMMANDS[name]
        if not os.path.samefile(root, Path(__file__).parents[3]):
            raise LauncherError(f"from here, Python takes the hooklab of another copy; type first: cd {root}")
        python = find_python(root / command.needs, install=name != "doctor")
        if name == "lab":
            say("starting JupyterLab; Ctrl-C stops it")
            arguments = [*lab_options(root), *arguments]
        return hand_over(root, python, [*command.start, *arguments], Path.cwd() if command.where == "here" else root)
    except (LauncherError, OSError, ValueError) as error:  # a full disk, a read-only folder, a path that venv refuses
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def lab_options(root: Path) -> list[str]:
    """JupyterLab's options: the course is what it serves, and the first lesson is what it opens."""
    lessons = sorted(path.name for path in (root / "lessons").glob("*.ipynb"))
    return [
        f"--ServerApp.root_dir={root}",
        f"--FileContentsManager.preferred_dir={root / 'lessons'}",
        f"--LabApp.default_url={'/'.join(['/lab/tree/lessons', *map(quote, lessons[:1])])}",
    ]
