"""What any experiment needs: run many small jobs with a progress bar, and compare paired results."""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO


def run_all(
    job: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    processes: int,
    stream: TextIO | None = None,
    journal: Path | None = None,
) -> list[Any]:
    """``[job(*a) for a in arguments]``, spread over ``processes``, with a progress bar on ``stream`` (default: stderr).

    ``job`` and its arguments must be picklable when there is more than one process. The first failing job's
    exception is raised, and jobs that have not started are dropped.

    With a ``journal``, a file, each result is saved there as soon as it is known, and saved results are not
    computed again: interrupted work continues where it stopped. Arguments and results must then be JSON.
    """
    stream = stream or sys.stderr
    known = _read_journal(journal)
    open_jobs = [a for a in arguments if json.dumps(a) not in known]

    def note(a: tuple[Any, ...], result: Any) -> None:
        known[json.dumps(a)] = result
        if journal is not None:
            with journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps([a, result]) + "\n")

    if processes == 1:
        for a in _with_bar(open_jobs, len(open_jobs), stream):
            note(a, job(*a))
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(job, *a): a for a in open_jobs}
            try:
                for done in _with_bar(as_completed(futures), len(futures), stream):
                    note(futures[done], done.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return [known[json.dumps(a)] for a in arguments]


def _read_journal(journal: Path | None) -> dict[str, Any]:
    known = {}
    if journal is not None and journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            try:
                a, result = json.loads(line)
            except ValueError:
                continue  # the line that was being written when the work was interrupted
            known[json.dumps(a)] = result
    return known


def bar(done: int, total: int, seconds: float, width: int = 30) -> str:
    """One line of progress: a bar, a count, and the time that is left if the rest goes at the pace so far.

    >>> bar(3, 12, 60.0)
    '[#######-----------------------]  3/12  3:00 left'
    """
    filled = "#" * (width * done // total)
    left = f"{_clock(seconds / done * (total - done))} left" if done else "starting"
    return f"[{filled:-<{width}}] {done:{len(str(total))}d}/{total}  {left}"


def paired_difference(ours: Sequence[float], theirs: Sequence[float], level: float = 0.95) -> dict[str, Any]:
    """Mean of ``ours - theirs`` over the pairs, with its t-interval and the p-value of the two-sided paired t-test.

    Returns ``{"n", "mean", "low", "high", "p"}``. With one pair there is neither interval nor test: they are None.

    >>> paired_difference([1.0, 2.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0])["mean"]
    -1.5
    """
    from scipy import special  # type: ignore[import-untyped]  # not scipy.stats, which takes a second to import

    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    n, mean = len(differences), statistics.fmean(differences)
    if n < 2:
        return {"n": n, "mean": mean, "low": None, "high": None, "p": None}
    error = statistics.stdev(differences) / math.sqrt(n)
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * error
    p = float(2 * special.stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0)
    return {"n": n, "mean": mean, "low": mean - half, "high": mean + half, "p": p}


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


def readable_json(results: Mapping[str, Any]) -> str:
    """JSON with a line per run or table row, so that a change of results is a readable diff; six digits a number."""

    def dump(value: Any, indent: int) -> str:
        flat = json.dumps(value, ensure_ascii=False)
        if len(flat) <= 200 or not isinstance(value, (dict, list)):
            return flat
        pad = "\n" + " " * (indent + 1)
        if isinstance(value, list):
            return "[" + pad + f",{pad}".join(dump(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
        items = (f"{json.dumps(key, ensure_ascii=False)}: {dump(item, indent + 1)}" for key, item in value.items())
        return "{" + pad + f",{pad}".join(items) + "\n" + " " * indent + "}"

    return dump(_six_digits(results), 0) + "\n"


def _six_digits(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _six_digits(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_six_digits(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _with_bar(items: Iterable[Any], total: int, stream: TextIO) -> Iterator[Any]:
    """Pass ``items`` on and show how many were dealt with: redrawn on a terminal, a line per tenth in a log."""
    start, in_place = time.monotonic(), stream.isatty()
    for done, item in enumerate(items, start=1):
        yield item
        if in_place or done == total or done * 10 // total > (done - 1) * 10 // total:
            line = bar(done, total, time.monotonic() - start)
            text = f"\r{line}" if in_place else f"{line}\n"
            stream.write(text + "\n" * (in_place and done == total))
            stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
