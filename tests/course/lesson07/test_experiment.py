"""The experiment on manifold mixup: its parts, its command, and that the committed results still come out."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from hooklab.course.experiments import main
from hooklab.course.experiments.seeds import paired_difference, readable_json, run_all
from hooklab.course.lesson07 import report
from hooklab.course.lesson07.experiment import (
    FULL,
    METHODS,
    QUICK,
    SETTINGS,
    TEST_SIZE,
    Training,
    _digits,
    run_seed,
    split,
)
from hooklab.course.lesson07.report import committed, summary, table

FEW, WRONG = SETTINGS


def rows(setting: str, **errors: list[float]) -> list[dict]:
    """Runs with the given errors for seeds 0, 1, …; NLL is a hundredth of the error."""
    return [
        {"setting": setting, "method": method, "seed": seed, "error": error, "nll": error / 100}
        for method, values in errors.items()
        for seed, error in enumerate(values)
    ]


# Statistics


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    from scipy import stats

    ours, theirs = [1.0, 2.5, 2.0, 4.0, 0.5], [1.5, 2.0, 3.5, 4.5, 2.0]
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    difference = paired_difference(ours, theirs)
    assert difference["n"] == 5
    assert difference["mean"] == pytest.approx(-0.7)
    assert (difference["low"], difference["high"]) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("ours", "significant"), [([-1, -2, -1, -2], True), ([1, 2, 1, 2], True), ([-1, 2, 1, -2], False)]
)
def test_significant_means_that_zero_is_outside_the_interval(ours: list[float], significant: bool) -> None:
    assert paired_difference(ours, [0, 0, 0, 0])["significant"] is significant


def test_one_pair_has_no_interval_and_is_not_significant() -> None:
    assert paired_difference([1.0], [3.0]) == {"n": 1, "mean": -2.0, "low": None, "high": None, "significant": False}


def test_different_numbers_of_runs_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_difference([1.0, 2.0], [1.0])


def test_a_difference_is_method_minus_reference_over_the_seeds_that_both_have() -> None:
    result = summary(rows(FEW, none=[10.0, 20.0, 90.0], input=[7.0, 18.0]))
    (error, nll) = result["differences"]
    assert (error["method"], error["against"], error["metric"], error["n"]) == ("input", "none", "error", 2)
    assert error["mean"] == pytest.approx(-2.5)
    assert nll["mean"] == pytest.approx(-0.025)


def test_the_order_of_the_runs_does_not_matter() -> None:
    runs = rows(FEW, none=[10.0, 20.0], input=[7.0, 18.0]) + rows(WRONG, none=[5.0])
    assert summary(runs[::-1]) == summary(runs)


def test_means_cover_every_method_that_ran_and_no_other() -> None:
    means = summary(rows(WRONG, none=[10.0, 20.0], manifold=[7.0]))["means"]
    assert [(row["method"], row["layers"], row["n"], row["error"]) for row in means] == [
        ("none", [], 2, 15.0),
        ("manifold", [0, 1, 2], 1, 7.0),
    ]


def test_the_table_calls_not_significant_what_is_not() -> None:
    text = table(summary(rows(FEW, none=[10.0, 10.0, 10.0], input=[8.0, 8.1, 7.9], manifold=[9.0, 11.0, 10.5])))
    (input_line,) = (line for line in text.splitlines() if "input - none" in line and "-2.000" in line)
    (manifold_line,) = (line for line in text.splitlines() if "manifold - none" in line and "+0.167" in line)
    assert "not significant" not in input_line
    assert "not significant" in manifold_line


# Data and runs


def test_exactly_a_fifth_of_the_training_labels_is_wrong_and_the_test_labels_are_clean() -> None:
    x, y = _digits()
    truth = {image.numpy().tobytes(): int(label) for image, label in zip(x, y, strict=True)}
    data = split(3, WRONG)

    def wrong(images: torch.Tensor, labels: torch.Tensor) -> int:
        return sum(truth[i.numpy().tobytes()] != int(label) for i, label in zip(images, labels, strict=True))

    assert (len(data.y_train), wrong(data.x_train, data.y_train)) == (600, 120)
    assert (len(data.y_test), wrong(data.x_test, data.y_test)) == (TEST_SIZE, 0)
    few = split(3, FEW)
    assert (len(few.y_train), wrong(few.x_train, few.y_train)) == (100, 0)


def test_no_test_digit_is_trained_on() -> None:
    data = split(5, WRONG)
    train = {image.numpy().tobytes() for image in data.x_train}
    assert not any(image.numpy().tobytes() in train for image in data.x_test)


def test_all_methods_of_a_seed_start_from_the_same_weights_and_are_tested_on_the_same_digits() -> None:
    untrained = {method: run_seed(1, FEW, method, Training(steps=0)) for method in METHODS}
    assert len({(run["error"], run["nll"]) for run in untrained.values()}) == 1


def test_all_methods_of_a_seed_see_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from hooklab.course.lesson07 import experiment

    batches, seen = experiment._batches, []

    def spy(*args: object) -> object:
        for x, y in batches(*args):
            seen[-1].append(y)
            yield x, y

    monkeypatch.setattr(experiment, "_batches", spy)
    for method in ("none", "input", "all"):
        seen.append([])
        run_seed(1, FEW, method, Training(steps=3))
    for one, other in pairwise(seen):
        assert len(one) == 3
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_run_leaves_random_state_and_threads_as_they_were() -> None:
    torch.manual_seed(0)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    run_seed(0, FEW, "manifold", Training(steps=1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_run_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = run_seed(0, FEW, "manifold", Training(steps=2))
    torch.manual_seed(2)
    assert run_seed(0, FEW, "manifold", Training(steps=2)) == first
    assert run_seed(1, FEW, "manifold", Training(steps=2))["nll"] != first["nll"]


# The committed results


def test_the_committed_results_are_of_the_set_up_in_the_code() -> None:
    results = committed()
    assert len(results["seeds"]) >= 10
    assert results["training"] == vars(FULL)
    assert results["settings"] == {name: vars(setting) for name, setting in SETTINGS.items()}
    assert results["methods"] == {name: list(layers) for name, layers in METHODS.items()}
    assert {(r["seed"], r["setting"], r["method"]) for r in results["runs"]} == {
        (seed, setting, method) for seed in results["seeds"] for setting in SETTINGS for method in METHODS
    }
    assert set(results["versions"]) == {"python", "torch", "numpy", "scikit-learn", "cpu"}


def test_the_committed_summary_is_that_of_the_committed_runs() -> None:
    results = committed()
    for part, ours in summary(results["runs"]).items():
        for row, stored in zip(ours, results["summary"][part], strict=True):
            assert row.keys() == stored.keys()
            for key, value in row.items():
                assert value == (pytest.approx(stored[key], abs=1e-4) if isinstance(value, float) else stored[key])


# After 60 steps the rounding of other instruction sets (SSE4.1, AVX, AVX2) moved NLL by at most 0.0011 and error by at
# most two digits (0.25 points), while the methods lie 0.02 to 0.2 nats apart. So the tolerance lets any machine
# pass and no change of the method.
NLL_TOLERANCE, ERROR_TOLERANCE = 0.006, 1.0


@pytest.mark.parametrize(("setting", "method"), [(FEW, "none"), (FEW, "manifold"), (WRONG, "input")])
def test_a_short_run_of_one_seed_gives_the_committed_result(setting: str, method: str) -> None:
    check = committed()["check"]
    assert check["training"] == vars(QUICK)
    (stored,) = (run for run in check["runs"] if (run["setting"], run["method"]) == (setting, method))
    run = run_seed(stored["seed"], setting, method, QUICK)
    assert run["nll"] == pytest.approx(stored["nll"], abs=NLL_TOLERANCE)
    assert run["error"] == pytest.approx(stored["error"], abs=ERROR_TOLERANCE)


# After all 600 steps the same rounding moved error by up to 1.5 points and NLL by up to 0.045 nats on wrong labels.
@pytest.mark.long
def test_a_whole_run_of_one_seed_gives_about_the_committed_result() -> None:
    stored = {(run["seed"], run["setting"], run["method"]): run for run in committed()["runs"]}
    errors = {}
    for method in ("none", "manifold"):
        run = run_seed(0, WRONG, method)
        errors[method] = run["error"]
        assert run["error"] == pytest.approx(stored[0, WRONG, method]["error"], abs=3.0)
        assert run["nll"] == pytest.approx(stored[0, WRONG, method]["nll"], abs=0.1)
    assert errors["manifold"] < errors["none"] - 4


def test_the_tolerance_tells_the_methods_of_the_check_apart() -> None:
    for setting in SETTINGS:
        runs = {run["method"]: run["nll"] for run in committed()["check"]["runs"] if run["setting"] == setting}
        for one, other in (("none", "input"), ("none", "manifold"), ("input", "manifold")):
            assert abs(runs[one] - runs[other]) > 2 * NLL_TOLERANCE


# The command


def test_the_command_writes_results_and_prints_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "QUICK", Training(steps=1))
    output = tmp_path / "results.json"
    assert main(["mixup", "--quick", "--seeds", "1", "--processes", "1", "--output", str(output)]) == 0

    results = json.loads(output.read_text(encoding="utf-8"))
    assert results["seeds"] == [0]
    assert results["training"]["steps"] == 1
    assert len(results["runs"]) == len(SETTINGS) * len(METHODS)
    assert results["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # +cpu, +cu132
    assert str(tmp_path) not in json.dumps(results)
    printed = capsys.readouterr()
    assert "manifold - none" in printed.out
    assert "24/24" in printed.err


def test_an_unknown_experiment_is_an_error_that_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mixxup"]) == 2
    assert "names: mixup" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0"], "at least 1"),
        (["--processes", "0"], "at least 1"),
        (["--quick", "--seeds", "1", "--output", "nowhere/results.json"], "there is no folder nowhere"),
    ],
)
def test_a_bad_option_is_refused_before_anything_runs(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["mixup", *options])
    assert message in capsys.readouterr().err


# Running many jobs


class Terminal:
    """A stream that remembers; ``tty`` says whether it is a terminal."""

    def __init__(self, tty: bool) -> None:
        self.tty, self.text = tty, ""

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_arguments(processes: int) -> None:
    arguments = [(3.0, 4.0), (5.0, 12.0), (8.0, 15.0)]
    assert run_all(math.hypot, arguments, processes, Terminal(tty=False)) == [5.0, 13.0, 17.0]


def test_a_failing_job_is_an_error() -> None:
    with pytest.raises(ValueError, match="math domain error"):
        run_all(math.sqrt, [(1.0,), (-1.0,)], 1, Terminal(tty=False))


def test_on_a_terminal_the_bar_is_redrawn_in_one_line() -> None:
    stream = Terminal(tty=True)
    run_all(math.sqrt, [(1.0,)] * 25, 1, stream)
    assert stream.text.count("\r") == 25
    assert stream.text.count("\n") == 1
    assert stream.text.endswith("0:00 left\n")


def test_in_a_log_the_bar_is_a_line_per_tenth() -> None:
    stream = Terminal(tty=False)
    run_all(math.sqrt, [(1.0,)] * 50, 1, stream)
    assert "\r" not in stream.text
    assert len(stream.text.splitlines()) == 10


def test_readable_json_reads_back_with_six_digits() -> None:
    value = {"rows": [{"x": 1 / 3, "name": "é" * 30, "n": n} for n in range(20)], "empty": {}}
    text = readable_json(value)
    assert json.loads(text)["rows"][7] == {"x": 0.333333, "name": "é" * 30, "n": 7}
    assert len(text.splitlines()) == 25
