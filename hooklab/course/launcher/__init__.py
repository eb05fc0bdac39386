"""The launcher behind ``python -m hooklab``: find the course, make its environment, start what was asked for.

It runs before anything is installed, so these modules use the standard library alone:

- ``requirements``: where the course is, and the tested versions it pins
- ``interpreter``, ``probe``: what a given Python has
- ``environment``: the Python to use; makes ``.venv`` when there is none (``locking``, ``installing`` help)
- ``private``: the folders under ``.cache/`` that keep pip, Jupyter and matplotlib inside the course
- ``commands``: ``lab`` and ``test``; ``doctor`` and ``checkup``: ``doctor``
"""

import difflib
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

from hooklab.course.launcher.messages import LauncherError

__all__ = ["main"]

FAILED = 2  # exit code of an error of the launcher's own; pytest, JupyterLab and the builder have theirs
INTERRUPTED = 130  # what a shell reports after Ctrl-C


@dataclass(frozen=True)
class Command:
    """One subcommand: its line in the help, and where it lives.

    ``function`` is ``module:name``, imported when it is called; it takes the further arguments and returns the
    exit code. ``inside`` says that it needs the course's packages, so that it runs in the interpreter that has them.
    """

    help: str
    function: str
    inside: bool = False


COMMANDS = {
    "lab": Command(
        "open JupyterLab on the lessons; further arguments go to JupyterLab", "hooklab.course.launcher.commands:lab"
    ),
    "test": Command("run the tests; further arguments go to pytest", "hooklab.course.launcher.commands:test"),
    "doctor": Command("say whether all that the course needs is there", "hooklab.course.launcher.doctor:doctor"),
    "build": Command("make lessons/ and solutions/ from solutions/source/", "hooklab.course.build:main", inside=True),
    "experiment": Command(
        "run one of the experiments whose results the lessons show", "hooklab.course.experiments:main", inside=True
    ),
    "screenshot": Command(
        "take the README's picture, in a browser", "hooklab.course.browser.screenshot:main", inside=True
    ),
}


def main(argv: list[str]) -> int:
    """Run ``python -m hooklab`` with these arguments and return the exit code.

    0 is success, 2 an error of the launcher (one line on stderr), 130 an interruption; any other number comes from the
    command itself.
    """
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    name, *arguments = argv
    if name not in COMMANDS:
        return _fail(LauncherError(unknown_command(name)))
    command = COMMANDS[name]
    if not command.inside and arguments in (["-h"], ["--help"]):
        print(help_text())
        return 0
    try:
        if command.inside:
            from hooklab.course.launcher.commands import go_inside

            code = go_inside(argv)
            if code is not None:
                return code
        return _load(command.function)(arguments)
    except LauncherError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("\nhooklab: interrupted", file=sys.stderr)
        return INTERRUPTED


def help_text() -> str:
    """The help: one line for each subcommand, and what happens at the first start."""
    lines = [f"  {name:<11} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m hooklab COMMAND [arguments]",
            "",
            *lines,
            "",
            "Run it in the folder that holds requirements.txt, lessons/ and hooklab/. The first lab or test makes",
            "the folder .venv and installs requirements.txt into it, which can take minutes; after that they start",
            "at once. `python -m hooklab lab --no-browser` prints the address instead of opening a browser.",
        ]
    )


def unknown_command(name: str) -> str:
    """The sentence for a subcommand that does not exist, with the near one if there is one."""
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
    return f"there is no command {name!r}; {hint}"


def _load(function: str) -> Callable[[list[str]], int]:
    module, _, name = function.partition(":")
    loaded: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return loaded


def _fail(error: LauncherError) -> int:
    if error.context:
        print(error.context, file=sys.stderr)
    print(f"hooklab: error: {error.line}", file=sys.stderr)
    return FAILED
