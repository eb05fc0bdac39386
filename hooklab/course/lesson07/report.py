"""Manifold mixup on scikit-learn's digits: the command that runs all of it, and the table.

``python -m hooklab experiment mixup`` trains a small CNN without mixup, with input mixup and with manifold mixup over
several sets of layers, on few clean labels and on partly wrong ones, and writes ``results.json``.

Public: :func:`summary`, :func:`table`, :func:`committed`.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch

from hooklab.course.experiments.seeds import paired_difference, readable_json, run_all
from hooklab.course.lesson07.experiment import FULL, LAYERS, METHODS, QUICK, SETTINGS, TEST_SIZE, run_seed

SEEDS, CHECK_SEED = 20, 0
COMPARISONS = [(method, "none") for method in METHODS if method != "none"] + [("manifold", "input")]
METRICS = ("error", "nll")
NOTES = [
    "Network, steps and learning rate were fixed after looking at plain training with seed 1000 only.",
    "The setting with wrong labels and alpha come from an earlier try (6 seeds) in which mixup had helped.",
    "Runs of one seed share split, wrong labels, initial weights and batch order; alpha is the same for all methods.",
    "The intervals speak of new splits, weights and orders of these digits; they are not corrected for their number.",
]


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Means of each method, and paired differences between methods, from rows as :func:`run_seed` returns them.

    Returns:
        ``{"means": [...], "differences": [...]}``. Each row of ``means`` has "setting", "method", "layers", "n",
        "error", "nll". Each row of ``differences`` has "setting", "method", "against", "metric", "n", "mean", "low",
        "high", "significant": ``method`` minus ``against`` over the seeds that both have (negative: better), with the
        95 % t-interval. The intervals are not corrected for their number.
    """
    scores: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for run in runs:
        scores.setdefault((run["setting"], run["method"]), {})[run["seed"]] = run
    means, differences = [], []
    for setting in SETTINGS:
        for method, layers in METHODS.items():
            rows = scores.get((setting, method), {}).values()
            if rows:
                averages = {metric: statistics.fmean(row[metric] for row in rows) for metric in METRICS}
                means.append({"setting": setting, "method": method, "layers": list(layers), "n": len(rows), **averages})
        for method, against in COMPARISONS:
            ours, theirs = scores.get((setting, method), {}), scores.get((setting, against), {})
            seeds = sorted(ours.keys() & theirs.keys())
            for metric in METRICS if seeds else ():
                difference = paired_difference([ours[s][metric] for s in seeds], [theirs[s][metric] for s in seeds])
                differences.append(
                    {"setting": setting, "method": method, "against": against, "metric": metric, **difference}
                )
    return {"means": means, "differences": differences}


def table(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A :func:`summary` as text."""
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in results["means"]):
        lines += ["", f"{setting}", f"  {'method':14s} {'layers':14s} {'seeds':>5s} {'error %':>8s} {'NLL':>7s}"]
        for row in results["means"]:
            if row["setting"] == setting:
                layers = "{" + ", ".join(map(str, row["layers"])) + "}"
                lines.append(f"  {row['method']:14s} {layers:14s} {row['n']:5d} {row['error']:8.2f} {row['nll']:7.3f}")
        for metric, unit in (("error", "percentage points of error"), ("nll", "nats of NLL")):
            lines.append(f"  paired difference, {unit}: mean [95 % interval]")
            for row in results["differences"]:
                if (row["setting"], row["metric"]) == (setting, metric):
                    lines.append(f"    {row['method']:>13s} - {row['against']:6s} {_interval(row)}")
    return "\n".join(lines[1:])


def _interval(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return f"{row['mean']:+.3f} (one seed: no interval)"
    verdict = "" if row["significant"] else "  not significant"
    return f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]{verdict}"


def committed() -> dict[str, Any]:
    """The results that the course shows, as the command wrote them, with seeds, versions and settings."""
    text = resources.files("hooklab.course.lesson07").joinpath("results.json").read_text(encoding="utf-8")
    results: dict[str, Any] = json.loads(text)
    return results


def main(argv: Sequence[str]) -> int:
    """The command ``python -m hooklab experiment mixup``."""
    parser = argparse.ArgumentParser(prog="python -m hooklab experiment mixup", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of paired seeds (default {SEEDS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK.steps} training steps instead of {FULL.steps}")
    parser.add_argument("--output", type=Path, default=Path("results.json"), help="default: %(default)s")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="default: %(default)s")
    options = parser.parse_args(argv)
    if options.seeds < 1 or options.processes < 1:
        parser.error("--seeds and --processes must be at least 1")
    if not options.output.absolute().parent.is_dir():
        parser.error(f"there is no folder {options.output.parent} to write the results to")

    training, seeds = (QUICK if options.quick else FULL), range(options.seeds)
    start = time.monotonic()
    jobs = [(seed, setting, method, training) for seed in seeds for setting in SETTINGS for method in METHODS]
    jobs += [(CHECK_SEED, setting, method, QUICK) for setting in SETTINGS for method in METHODS]
    rows = run_all(run_seed, jobs, options.processes)
    runs, check = rows[: -len(SETTINGS) * len(METHODS)], rows[-len(SETTINGS) * len(METHODS) :]
    results = {
        "experiment": "manifold mixup on scikit-learn's digits",
        "command": f"python -m hooklab experiment mixup --seeds {options.seeds}" + " --quick" * options.quick,
        "seconds": round(time.monotonic() - start),
        "processes": options.processes,
        "seeds": list(seeds),
        "versions": versions(),
        "test_size": TEST_SIZE,
        "settings": {name: asdict(setting) for name, setting in SETTINGS.items()},
        "layers": ["input", *LAYERS],
        "methods": {name: list(layers) for name, layers in METHODS.items()},
        "training": asdict(training),
        "notes": NOTES,
        "summary": summary(runs),
        "runs": runs,
        "check": {"training": asdict(QUICK), "runs": check},
    }
    options.output.write_text(readable_json(results), encoding="utf-8")
    print(table(summary(runs)))
    print(f"\n{len(jobs)} trainings in {results['seconds']} s. Written to {options.output}")
    return 0


def versions() -> dict[str, str]:
    """What the last digits of the results depend on."""
    packages = {name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")}
    cpu = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return {"python": platform.python_version(), **packages, "cpu": cpu}
