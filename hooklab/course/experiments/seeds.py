"""What any experiment needs: run many small jobs, and compare paired results."""

import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from hooklab.course.progress import Progress


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


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Mean of ``ours - theirs`` over the pairs, with its 95 % t-interval and p of the two-sided paired t-test.

    Returns ``{"n", "mean", "low", "high", "p"}``; at least two pairs are needed.

    >>> paired_difference([1.0, 2.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0])["mean"]
    -1.5
    """
    from scipy import stats  # type: ignore[import-untyped]  # here, for it takes a second to import

    test = stats.ttest_rel(ours, theirs)
    low, high = map(float, test.confidence_interval())
    mean = statistics.fmean(a - b for a, b in zip(ours, theirs, strict=True))
    return {"n": len(ours), "mean": mean, "low": low, "high": high, "p": float(test.pvalue)}


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, by Holm's method: below 0.05, a finding that the others do not weaken.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
