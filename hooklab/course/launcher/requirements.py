"""Where the course is and what it needs: the root folder, and the pins of its requirements.txt.

:func:`find_root` says whether the current folder is the course's root. :func:`read_pins` reads the tested versions, and
:func:`same_version` compares one with an installed version.
"""

import hashlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import hooklab
from hooklab.course.launcher.messages import LauncherError, os_errors_in_one_line

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*(?P<version>[^\s;*]+)")


@dataclass(frozen=True)
class Pin:
    """A package and the version that the course was tested with."""

    name: str
    version: str


def find_root() -> Path:
    """The current folder, if it is the course's root.

    Raises:
        LauncherError: if it is not; it names the folder to go to when this package lies in one.
    """
    here = Path.cwd()
    if is_root(here):
        return here
    wanted = "the folder that holds requirements.txt, lessons/ and hooklab/"
    home = Path(hooklab.__file__).resolve().parent.parent
    if is_root(home):
        raise LauncherError(f"start this in {wanted}; type first: cd {shlex.quote(str(home))}")
    raise LauncherError(f"start this in {wanted}; {here} is not it: cd to your copy of the course first")


def is_root(folder: Path) -> bool:
    """Whether the folder holds what every copy of the course holds."""
    return (folder / "requirements.txt").is_file() and (folder / "lessons").is_dir() and (folder / "hooklab").is_dir()


def read_pins(root: Path) -> list[Pin]:
    """The pins of ``requirements.txt``, in its order. Comments, ``-e .`` and options of pip are left out.

    Raises:
        LauncherError: for a line that is not ``name==version``: what is not pinned was not tested.
    """
    pins = []
    with os_errors_in_one_line("read requirements.txt"):
        lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text or text.startswith("-"):
            continue
        match = _PIN.fullmatch(text)
        if match is None:
            raise LauncherError(f"requirements.txt, line {number}: expected name==version, found {text!r}")
        pins.append(Pin(match["name"], match["version"]))
    return pins


def fingerprint(root: Path) -> str:
    """The SHA-256 of ``requirements.txt``: it changes when the file does."""
    with os_errors_in_one_line("read requirements.txt"):
        return hashlib.sha256((root / "requirements.txt").read_bytes()).hexdigest()


def has_all(pins: list[Pin], installed: dict[str, str | None]) -> bool:
    """Whether every pin is installed in its version."""
    return all(same_version(pin.version, installed.get(pin.name) or "") for pin in pins)


def same_version(tested: str, installed: str) -> bool:
    """Whether an installed version is the tested one; a local part such as ``+cpu`` counts only if the pin has one.

    >>> same_version("2.13.0", "2.13.0+cpu"), same_version("2.13.0", "2.13.1")
    (True, False)
    """
    return tested in (installed, installed.partition("+")[0])
