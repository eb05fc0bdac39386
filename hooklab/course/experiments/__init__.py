"""The course's experiments: minutes of computing whose results a lesson shows, each one command away.

``python -m hooklab experiment mixup`` runs one; its results lie in the folder of its lesson.
"""

import argparse
import importlib
from collections.abc import Sequence

# name on the command line -> module with main(argv) -> int
EXPERIMENTS = {
    "deaths": "hooklab.course.lesson08.deaths",
    "mixup": "hooklab.course.lesson07.report",
    "seeing": "hooklab.course.lesson09.experiment",
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment that ``argv`` begins with; the rest of ``argv`` are its options. Returns the exit code.

    Raises SystemExit for an unknown name, after a line that lists the known ones.
    """
    parser = argparse.ArgumentParser(prog="python -m hooklab experiment")
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="NAME --help shows those of an experiment")
    chosen = parser.parse_args(argv)
    code: int = importlib.import_module(EXPERIMENTS[chosen.name]).main(chosen.options)
    return code
