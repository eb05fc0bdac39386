"""find_root: where the course is. Standard library only."""

from pathlib import Path


def find_root() -> Path:
    """The course's folder: the current one or the nearest above it that is one, else the one this file lies in.

    So a command works from anywhere in a copy of the course, on that copy, whichever copy's ``hooklab`` is installed.
    """
    here = Path.cwd()
    own = Path(__file__).resolve().parents[2]
    return next((folder for folder in [here, *here.parents] if is_root(folder)), own)


def is_root(folder: Path) -> bool:
    """Whether the folder holds what every copy of the course holds, a learner's without the solutions too."""
    return (folder / "hooklab" / "course").is_dir() and (folder / "lessons").is_dir()
