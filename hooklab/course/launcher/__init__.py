"""The launcher behind ``python -m hooklab``: from a bare Python to JupyterLab, with only the standard library.

Read ``lab`` from here downwards: :func:`main` asks ``environment`` for a Python that has the packages, which makes and
fills ``.venv`` if it is missing; ``copying`` makes the learner's copy of the lessons; then :func:`hand_over` replaces
this process with JupyterLab.
"""

import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

from hooklab.course.launcher.copying import bring_up_to_date
from hooklab.course.launcher.environment import find_python
from hooklab.course.launcher.programs import EXTENSIONS, LauncherError, say, variables
from hooklab.course.root import find_root

__all__ = ["main"]

LEARN, WORK, SITE = "requirements.txt", "requirements-dev.txt", "requirements-site.txt"
# A command: its line in the help, the requirement file that it needs, and the module that does it.
COMMANDS = {
    "lab": ("open JupyterLab on your own copy of the lessons; further arguments are JupyterLab's", LEARN, "jupyterlab"),
    "test": ("run the tests; further arguments are pytest's", WORK, "pytest"),
    "doctor": ("say whether all that the course needs is there", LEARN, "hooklab.course.launcher.doctor"),
    "build": ("make lessons/ and solutions/ from solutions/source/", WORK, "hooklab.course.build"),
    "experiment": ("run an experiment that a lesson shows", LEARN, "hooklab.course.experiments"),
    "site": ("write the course as web pages", SITE, "hooklab.course.site"),
    "handout": ("write what a class gets", WORK, "hooklab.course.classroom.handout"),
    "grade": ("grade what a class hands in", LEARN, "hooklab.course.classroom.grade"),
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
        print(HELP.format("\n".join(f"  {name:<11} {line}" for name, (line, *_) in COMMANDS.items())))
        return 0
    try:
        if name not in COMMANDS:
            raise LauncherError(f"there is no command {name!r}; there are {', '.join(COMMANDS)}")
        root, (_, needs, module) = find_root(), COMMANDS[name]
        if not os.path.samefile(root, Path(__file__).parents[3]):
            raise LauncherError(f"from here, Python takes the hooklab of another copy; type first: cd {root}")
        python = find_python(root / needs, install=name != "doctor")
        if name == "test" and not arguments:
            arguments = ["-n", str(min(2, os.cpu_count() or 1))]  # processes
        if name == "lab":
            arguments = [*lab_options(root, bring_up_to_date(root)), *arguments]
            say("starting JupyterLab; Ctrl-C stops it")
        return hand_over(root, python, module, arguments)
    except (LauncherError, OSError, ValueError) as error:  # a full disk, a read-only folder, a path that venv refuses
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def lab_options(root: Path, folder: Path) -> list[str]:
    """JupyterLab's options: the course is what it serves, and the first lesson in the folder is what it opens."""
    first = sorted(path.name for path in folder.glob("*.ipynb"))[:1]
    return [
        f"--ServerApp.root_dir={root}",
        f"--FileContentsManager.preferred_dir={folder}",
        f"--LabApp.default_url={'/'.join([f'/lab/tree/{folder.name}', *map(quote, first)])}",
        EXTENSIONS,
    ]


def hand_over(root: Path, python: Path, module: str, arguments: list[str]) -> int:
    """Let ``python`` run a module in this process's place: exit code and Ctrl-C are its own.

    The course's modules have a ``main(argv)``, and work where the user is; others are programs, started in the root.
    On Windows, where no process can take another's place, wait for it and return its exit code.
    """
    if module.startswith("hooklab."):  # -P: no file that lies where the user is hides a module
        start = ["-P", "-c", f"import sys; from {module} import main; sys.exit(main(sys.argv[1:]))"]
    else:
        start = ["-m", module]
        os.chdir(root)
    command, environment = [str(python), *start, *arguments], variables(root, python)
    if os.name != "nt":
        os.execve(python, command, environment)
    signal.signal(signal.SIGINT, lambda *_: None)  # the program gets Ctrl-C as well, and says what it means
    return subprocess.run(command, env=environment).returncode
