"""The course's experiments: minutes of computing whose results a lesson shows, each one command away.

``python -m hooklab experiment mixup`` runs one; its results lie in the folder of its lesson.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from hooklab.course.progress import Progress

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


def run_all(job: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], processes: int = 1) -> list[Any]:
    """``[job(*a) for a in arguments]``, spread over ``processes``; how many are done is shown on stderr.

    ``job`` and its arguments must be picklable when there is more than one process. The first failing job's
    exception is raised, and jobs that have not started are dropped.
    """
    progress, results = Progress(sys.stderr), list[Any]()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        each = map if processes == 1 else pool.map
        for result in each(job, *zip(*arguments, strict=True)):
            results.append(result)
            progress.show(f"{len(results)} of {len(arguments)} done")
    progress.close()
    return results
