"""What a given Python has, seen from outside: :func:`look_at` runs it once, and :class:`Interpreter` is the answer."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.launcher.requirements import Pin, has_all

OLDEST = (3, 11)


@dataclass(frozen=True)
class Interpreter:
    """A Python that runs.

    ``hooklab`` is the folder that ``import hooklab`` would take there, or None; ``packages`` maps the names that were
    asked for to their versions, or to None.
    """

    path: Path
    version: tuple[int, int, int]
    has_pip: bool
    hooklab: Path | None
    packages: dict[str, str | None]

    def has_everything(self, root: Path, pins: list[Pin]) -> bool:
        """Whether every pin is there in its version, and ``hooklab`` is the one of this root."""
        return self.has_course(root) and has_all(pins, self.packages)

    def has_course(self, root: Path) -> bool:
        """Whether a notebook in any folder would import this root's ``hooklab``."""
        return self.hooklab is not None and self.hooklab.resolve() == (root / "hooklab").resolve()

    @property
    def version_text(self) -> str:
        """The version as one writes it, for example ``3.11.7``."""
        return ".".join(map(str, self.version))


def look_at(python: Path, names: list[str]) -> Interpreter | None:
    """Ask a Python for its version and these packages; None if it does not run.

    Takes about 0.1 s: one start of that Python, without importing any of the packages.
    """
    script = Path(__file__).with_name("probe.py")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    try:
        answer = subprocess.run(
            [str(python), str(script), *names], capture_output=True, env=environment, check=True
        ).stdout
        found = json.loads(answer.decode("utf-8"))
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    major, minor, micro = found["version"]
    return Interpreter(
        path=python,
        version=(major, minor, micro),
        has_pip=found["has_pip"],
        hooklab=Path(found["hooklab"]) if found["hooklab"] else None,
        packages=found["packages"],
    )
