"""Does mixing help? The command that computes it, what its results say, and the table.

``python -m hooklab experiment mixup`` does two things. First it **chooses**: for every scenario it trains every
combination of places, α and number of steps with a few seeds, and judges them on validation examples. Then it
**compares**: each of the three arms (no mixup, input mixup, manifold mixup), at the settings that were best for it on
validation, is trained with fresh seeds and judged on the test examples, which are looked at once.

Public: :func:`choose`, :func:`compare`, :func:`table`, :func:`in_short`, :func:`committed`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata, resources
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from hooklab.course.experiments import run_all
from hooklab.course.lesson07 import experiment
from hooklab.course.lesson07.experiment import PLACES, SCENARIOS, run

Row = Mapping[str, Any]

# arm -> the sets of places that it may choose from
ARMS: dict[str, tuple[tuple[int, ...], ...]] = {
    "no mixup": ((),),
    "input mixup": ((0,),),
    "manifold mixup": ((0, 1, 2), (1, 2), (2, 3), (0, 1, 2, 3)),
}
ALPHAS = (0.2, 0.5, 1.0, 2.0)
STEPS = (75, 100, 150, 200, 300, 600)
CHOOSING_SEEDS, COMPARING_SEEDS = tuple(range(2000, 2004)), tuple(range(100, 120))
COMPARISONS = (("input mixup", "no mixup"), ("manifold mixup", "no mixup"), ("manifold mixup", "input mixup"))
METRICS = ("error", "nll")
# How many points of error another CPU's rounding may move a single run; `experiment.run` has the measured values.
ROUNDING = dict(zip(SCENARIOS, (2.0, 2.0, 6.0), strict=True))
LEVEL = 0.05


def grid() -> list[tuple[tuple[int, ...], float, int]]:
    """Every combination of places, α and steps, in a fixed order."""
    sets = [(arm, places) for arm, sets in ARMS.items() for places in sets]
    return [
        (places, alpha, steps) for arm, places in sets for alpha in (ALPHAS if places else (0.0,)) for steps in STEPS
    ]


def choose(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The settings with the lowest mean validation error, for each scenario and arm.

    Returns rows with "scenario", "arm", "places", "alpha", "steps", "error", "nll".
    """
    chosen = []
    for scenario in SCENARIOS:
        for arm, sets in ARMS.items():
            best = min(
                (row for row in means(rows) if row["scenario"] == scenario and tuple(row["places"]) in sets),
                key=lambda row: (row["error"], row["nll"]),
                default=None,
            )
            if best is not None:
                chosen.append({"arm": arm, **best})
    return chosen


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Error and NLL averaged over the seeds, a row for each scenario, places, α and steps."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["scenario"], tuple(row["places"]), row["alpha"], row["steps"]), []).append(row)
    return [
        {
            **{"scenario": scenario, "places": list(places), "alpha": alpha, "steps": steps},
            **{metric: statistics.fmean(row[metric] for row in group) for metric in METRICS},
        }
        for (scenario, places, alpha, steps), group in groups.items()
    ]


def compare(rows: Sequence[Row], chosen: Sequence[Row]) -> list[dict[str, Any]]:
    """The arms at their chosen settings against each other, paired by seed.

    Returns rows with "scenario", "arm", "against", "metric", "n", "mean", "low", "high" (the 95 % interval), "p", and
    "p_holm", corrected for the number of rows. A negative mean: ``arm`` is better than ``against``.
    """
    scores: dict[tuple[str, str], dict[int, Row]] = {}
    for setting in chosen:
        same = ("scenario", "places", "alpha", "steps")
        mine = [row for row in rows if all(row[key] == setting[key] for key in same)]
        scores[setting["scenario"], setting["arm"]] = {row["seed"]: row for row in mine}
    compared: list[dict[str, Any]] = []
    for scenario in dict.fromkeys(setting["scenario"] for setting in chosen):
        for arm, against in COMPARISONS:
            ours, theirs = scores[scenario, arm], scores[scenario, against]
            seeds = sorted(ours.keys() & theirs.keys())
            for metric in METRICS:
                difference = paired_difference([ours[s][metric] for s in seeds], [theirs[s][metric] for s in seeds])
                compared.append({"scenario": scenario, "arm": arm, "against": against, "metric": metric, **difference})
    corrected = holm([row["p"] for row in compared])
    return [{**row, "p_holm": p} for row, p in zip(compared, corrected, strict=True)]


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


def is_significant(row: Row) -> bool:
    """Whether a row of :func:`compare` is significant after the correction."""
    return bool(row["p_holm"] < LEVEL)


def verdict(results: Mapping[str, Any], scenario: str, arm: str, against: str, metric: str = "error") -> str:
    """What a comparison says of ``arm``: "better", "worse" or "no clear difference"."""
    wanted = {"scenario": scenario, "arm": arm, "against": against, "metric": metric}
    (row,) = (row for row in results["compared"] if all(row[key] == value for key, value in wanted.items()))
    return ("better" if row["mean"] < 0 else "worse") if is_significant(row) else "no clear difference"


def alike(again: Sequence[Row], stored: Sequence[Row]) -> list[bool]:
    """For each run that is also stored: do the two errors differ by no more than rounding explains?"""
    key = itemgetter("seed", "scenario", "alpha", "steps")
    errors = {(key(row), tuple(row["places"])): row["error"] for row in stored}
    both = [(row, errors.get((key(row), tuple(row["places"])))) for row in again]
    return [abs(row["error"] - other) <= ROUNDING[row["scenario"]] for row, other in both if other is not None]


def in_short(results: Mapping[str, Any]) -> str:
    """Manifold mixup beside the two others, in points of test error with 95 % intervals: a line for each scenario."""
    others = ("no mixup", "input mixup")
    lines = [" " * 18 + "".join(f"   {'against ' + other:19s}" for other in others)]
    for scenario in dict.fromkeys(row["scenario"] for row in results["compared"]):
        cells = []
        for row in results["compared"]:
            if (row["scenario"], row["arm"], row["metric"]) == (scenario, "manifold mixup", "error"):
                interval = f"{row['mean']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"
                cells.append(interval + ("" if is_significant(row) else " may be chance"))
        lines.append(f"{scenario:18s}" + "".join(f"   {cell:19s}" for cell in cells))
    return "\n".join(line.rstrip() for line in lines)


def table(results: Mapping[str, Any], scenario: str) -> str:
    """What came out in one scenario, as text: the chosen settings with their test results, and the differences."""
    lines = [f"{scenario}: settings chosen on validation, and the result on test"]
    lines.append(f"  {'way':15s} {'places':13s} {'α':>4s} {'steps':>6s} {'error %':>8s} {'NLL':>7s}")
    tested = {(row["scenario"], tuple(row["places"])): row for row in means(results["compared_runs"])}
    for row in results["chosen"]:
        if row["scenario"] == scenario:
            places = "{" + ", ".join(map(str, row["places"])) + "}" if row["places"] else "–"
            alpha = f"{row['alpha']:g}" if row["places"] else "–"
            test = tested[scenario, tuple(row["places"])]
            lines.append(
                f"  {row['arm']:15s} {places:13s} {alpha:>4s} {row['steps']:6d} {test['error']:8.2f} {test['nll']:7.3f}"
            )
    for metric, unit in (("error", "points of error"), ("nll", "nats of NLL")):
        lines.append(f"  difference in {unit}: mean [95 % interval], p corrected")
        for row in results["compared"]:
            if (row["scenario"], row["metric"]) == (scenario, metric):
                lines.append(f"    {row['arm']:>14s} - {row['against']:11s} {_interval(row)}")
    return "\n".join(lines)


def _interval(row: Row) -> str:
    verdict = "" if is_significant(row) else "  not significant"
    p = f"{row['p_holm']:.3f}" if row["p_holm"] >= 0.0005 else "< 0.001"
    return f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]  p {p}{verdict}"


def committed() -> dict[str, Any]:
    """The results that the course shows, as the command wrote them, with seeds, versions and settings."""
    text = resources.files("hooklab.course.lesson07").joinpath("results.json").read_text(encoding="utf-8")
    results: dict[str, Any] = json.loads(text)
    return results


def main(argv: Sequence[str]) -> int:
    """The command ``python -m hooklab experiment mixup``."""
    parser = argparse.ArgumentParser(
        prog="python -m hooklab experiment mixup",
        description="Choose settings on validation examples, then compare on test examples. All results are written to "
        "results.json in the current folder.",
    )
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="default: %(default)s")
    results = compute(parser.parse_args(argv).processes)
    Path("results.json").write_text(readable_json(results), encoding="utf-8")
    for scenario in SCENARIOS:
        print(table(results, scenario), end="\n\n")
    print(f"{results['trainings']} trainings, {results['seconds']} s of computing. Written to results.json")
    return 0


def compute(processes: int) -> dict[str, Any]:
    """Run everything that :func:`main` runs."""
    start = time.monotonic()
    validated = run_all(
        run,
        [
            (seed, scenario, *setting, "validation")
            for seed in CHOOSING_SEEDS
            for scenario in SCENARIOS
            for setting in grid()
        ],
        processes,
    )
    chosen = choose(validated)
    tested = run_all(
        run,
        [
            (seed, row["scenario"], tuple(row["places"]), row["alpha"], row["steps"], "test")
            for seed in COMPARING_SEEDS
            for row in chosen
        ],
        processes,
    )
    return {
        "experiment": "mixup and manifold mixup on digits and made shapes",
        "command": "python -m hooklab experiment mixup",
        "trainings": len(validated) + len(tested),
        "seconds": round(processes * (time.monotonic() - start)),
        "versions": versions(),
        "settings": setup(),
        "notes": committed()["notes"],
        "chosen": chosen,
        "compared": compare(tested, chosen),
        "validation": means(validated),
        "compared_runs": tested,
    }


def readable_json(results: Mapping[str, Any]) -> str:
    """JSON with a line for each row of a table, so that a change of results is a readable diff; six digits a number."""
    rounded = json.loads(json.dumps(results), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    parts = []
    for name, value in rounded.items():
        rows = [json.dumps(row, ensure_ascii=False) for row in value] if isinstance(value, list) else []
        parts.append(f'"{name}": ' + ("[\n  " + ",\n  ".join(rows) + "\n ]" if rows else json.dumps(value)))
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def setup() -> dict[str, Any]:
    """Everything that the results depend on, apart from versions."""
    return {
        "scenarios": {name: asdict(scenario) for name, scenario in SCENARIOS.items()},
        "arms": {arm: [list(places) for places in sets] for arm, sets in ARMS.items()},
        "places": list(PLACES),
        "alphas": list(ALPHAS),
        "steps": list(STEPS),
        "choosing_seeds": list(CHOOSING_SEEDS),
        "comparing_seeds": list(COMPARING_SEEDS),
        "training": {
            name.lower(): getattr(experiment, name)
            for name in ("BATCH_SIZE", "LEARNING_RATE", "MOMENTUM", "WEIGHT_DECAY", "POOL")
        },
    }


def versions() -> dict[str, str]:
    """What the last digits of the results depend on."""
    packages = {name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")}
    cpu = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return {"python": platform.python_version(), **packages, "cpu": cpu}


def lowest(results: dict[str, Any], scenario: str, **wanted: object) -> float:
    """Return the lowest validation error of a scenario, in percent, among the rows with these settings."""
    rows = [row for row in results["validation"] if row["scenario"] == scenario]
    return float(min(row["error"] for row in rows if all(row[name] == value for name, value in wanted.items())))


def tried(results: dict[str, Any]) -> dict[str, int]:
    """Return how many settings each arm could choose from, in each scenario."""
    first = next(iter(SCENARIOS))
    rows = [tuple(row["places"]) for row in results["validation"] if row["scenario"] == first]
    return {arm: sum(places in sets for places in rows) for arm, sets in ARMS.items()}


def gains(results: dict[str, Any], scenario: str, steps: int, alpha: float) -> list[float]:
    """By how many points of error each set of places lies below no mixup, at a number of steps and an alpha."""
    none = lowest(results, scenario, places=[], steps=steps)
    rows = [row for row in results["validation"] if (row["scenario"], row["steps"]) == (scenario, steps)]
    return [none - row["error"] for row in rows if row["places"] and row["alpha"] == alpha]
