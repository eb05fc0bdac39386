"""The course's experiments: minutes of computing whose results a lesson shows, each one command away.

``python -m hooklab experiment mixup`` runs one; the results that the lessons show lie beside this file.
"""

import importlib
import sys
from collections.abc import Sequence

# name on the command line -> module with main(argv) -> int
EXPERIMENTS = {
    "deaths": "hooklab.course.lesson08.deaths",
    "mixup": "hooklab.course.lesson07.report",
    "seeing": "hooklab.course.lesson09.experiment",
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment that ``argv`` begins with; the rest of ``argv`` are its options. Returns the exit code.

    >>> main(["--help"])
    usage: python -m hooklab experiment NAME [options]
    names: deaths, mixup, seeing. For the options of one: python -m hooklab experiment NAME --help
    0
    """
    known = ", ".join(EXPERIMENTS)
    usage = (
        "usage: python -m hooklab experiment NAME [options]\n"
        f"names: {known}. For the options of one: python -m hooklab experiment NAME --help"
    )
    if not argv or argv[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    name, *options = argv
    if name not in EXPERIMENTS:
        print(f"there is no experiment {name!r}\n{usage}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(EXPERIMENTS[name]).main(options)
    return code
