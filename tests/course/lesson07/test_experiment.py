"""The experiment on mixup: its parts, its command, and that the committed results still come out."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from hooklab.course.experiments import main, run_all
from hooklab.course.lesson07 import experiment, report
from hooklab.course.lesson07.experiment import SCENARIOS, run, split
from hooklab.course.lesson07.report import alike, choose, committed, compare, in_short, is_significant, table, verdict
from hooklab.course.lesson07.shapes import SHAPES, shapes

FEW, WRONG, NOISY = SCENARIOS


def rows(
    scenario: str, places: tuple[int, ...], errors: list[float], alpha: float = 1.0, steps: int = 75
) -> list[dict]:
    """Runs with the given errors for seeds 0, 1, …; NLL is a hundredth of the error."""
    setting = {"scenario": scenario, "places": list(places), "alpha": alpha, "steps": steps}
    return [{**setting, "seed": seed, "error": error, "nll": error / 100} for seed, error in enumerate(errors)]


THREE_ARMS = [
    *rows(FEW, (), [10.0, 20.0, 15.0, 12.0], alpha=0.0),
    *rows(FEW, (0,), [8.0, 18.1, 13.0, 9.9]),
    *rows(FEW, (1, 2), [9.0, 21.0, 14.5, 13.0]),
]


# Statistics


def test_holm_multiplies_the_smallest_by_all_and_never_lets_a_larger_one_pass_a_smaller_one() -> None:
    assert report.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert report.holm([0.5, 0.9]) == [1.0, 1.0]


# Choosing and comparing


def test_settings_are_chosen_by_the_mean_error_and_where_equal_by_nll() -> None:
    tied = rows(FEW, (2, 3), [8.0, 22.0], alpha=0.2)
    for row in tied:
        row["nll"] = 0.0
    tried = [
        *rows(FEW, (), [10.0, 12.0], steps=150),
        *rows(FEW, (), [10.0, 11.0], steps=300),
        *rows(FEW, (1, 2), [9.0, 21.0], alpha=2.0),
        *tied,
        *rows(FEW, (0,), [1.0, 1.0]),
    ]
    chosen = {row["arm"]: (row["places"], row["alpha"], row["steps"]) for row in choose(tried)}
    assert chosen == {
        "no mixup": ([], 1.0, 300),
        "input mixup": ([0], 1.0, 75),
        "manifold mixup": ([2, 3], 0.2, 75),
    }


def test_a_difference_is_arm_minus_the_other_over_the_seeds_that_both_have() -> None:
    runs = [*THREE_ARMS, *rows(FEW, (0,), [0.0] * 9)[4:]]  # seeds that the other arms do not have
    first = compare(runs, choose(THREE_ARMS))[0]
    assert (first["arm"], first["against"], first["metric"], first["n"]) == ("input mixup", "no mixup", "error", 4)
    assert first["mean"] == pytest.approx(-2.0)


def test_p_is_corrected_for_all_the_comparisons() -> None:
    compared = compare(THREE_ARMS, choose(THREE_ARMS))
    assert len(compared) == 6
    assert [row["p_holm"] for row in compared] == report.holm([row["p"] for row in compared])
    assert is_significant(compared[0]) and not is_significant(compared[2])


def test_the_table_has_settings_results_and_says_what_is_not_significant() -> None:
    chosen = choose(THREE_ARMS)
    results = {"chosen": chosen, "compared": compare(THREE_ARMS, chosen), "compared_runs": THREE_ARMS}
    text = table(results, FEW)
    assert "{1, 2}" in text and "14.25" in text
    (clear,) = (line for line in text.splitlines() if "input mixup - no mixup" in line and "-2.000" in line)
    (unclear,) = (line for line in text.splitlines() if "manifold mixup - no mixup" in line and "+0.125" in line)
    assert "not significant" in unclear and "not significant" not in clear


def test_in_short_says_of_each_difference_how_sure_it_is_and_whether_it_may_be_chance() -> None:
    row = {"scenario": FEW, "arm": "manifold mixup", "metric": "error"}
    sure = {**row, "mean": -1.76, "low": -2.4, "high": -1.12, "p_holm": 0.001}
    unsure = {**row, "mean": 0.08, "low": -1.2, "high": 1.33, "p_holm": 0.2}
    line = in_short({"compared": [sure, unsure]}).splitlines()[1]
    cells = line.removeprefix(FEW).split("   ")
    assert [cell.strip() for cell in cells if cell] == ["-1.8 [-2.4, -1.1]", "+0.1 [-1.2, +1.3] may be chance"]


def test_a_verdict_goes_by_the_sign_and_only_where_it_is_significant() -> None:
    results = {"compared": compare(THREE_ARMS, choose(THREE_ARMS))}
    assert verdict(results, FEW, "input mixup", "no mixup") == "better"
    assert verdict(results, FEW, "manifold mixup", "no mixup") == "no clear difference"
    results["compared"][0]["mean"] *= -1
    assert verdict(results, FEW, "input mixup", "no mixup") == "worse"


def test_runs_made_again_are_held_against_the_stored_ones_of_the_same_settings_alone() -> None:
    stored = rows(FEW, (1, 2), [5.0, 6.0])
    again = [*rows(FEW, (1, 2), [6.9, 9.0]), *rows(FEW, (1, 2), [0.0], alpha=2.0), *rows(FEW, (1, 2), [0.0], steps=9)]
    assert alike(again, stored) == [True, False]


# Data and runs


def test_the_training_part_and_the_validation_part_have_the_same_share_of_wrong_labels_and_the_test_part_has_none() -> (
    None
):
    (x, y), (x_test, y_test) = experiment._data("digits")
    truth = {
        i.numpy().tobytes(): int(label) for i, label in zip(torch.cat([x, x_test]), torch.cat([y, y_test]), strict=True)
    }

    def wrong(images: torch.Tensor, labels: torch.Tensor) -> int:
        return sum(truth[i.numpy().tobytes()] != int(label) for i, label in zip(images, labels, strict=True))

    validated, tested = split(3, WRONG, "validation"), split(3, WRONG, "test")
    assert (len(validated.y_train), wrong(validated.x_train, validated.y_train)) == (600, 120)
    assert (len(validated.y_judge), wrong(validated.x_judge, validated.y_judge)) == (400, 80)
    assert (len(tested.y_judge), wrong(tested.x_judge, tested.y_judge)) == (797, 0)
    assert torch.equal(validated.y_train, tested.y_train)
    few = split(3, FEW, "validation")
    assert (len(few.y_train), wrong(few.x_train, few.y_train)) == (100, 0)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_judged_on_is_never_trained_on(scenario: str) -> None:
    data = {part: split(5, scenario, part) for part in ("validation", "test")}
    train = {image.numpy().tobytes() for image in data["test"].x_train}
    for part in data.values():
        assert not any(image.numpy().tobytes() in train for image in part.x_judge)


def test_shapes_are_bright_where_they_are_and_all_kinds_come() -> None:
    images, labels = shapes(400, seed=3, noise=0.0)
    assert images.shape == (400, 1, 16, 16) and set(images.unique().tolist()) == {0.0, 1.0}
    assert labels.bincount().min() > 50 and len(labels.bincount()) == len(SHAPES)
    area = [images[labels == kind].mean().item() for kind in range(len(SHAPES))]
    assert all(0.03 < one < 0.4 for one in area)
    ring, disc = (images[labels == SHAPES.index(name)] for name in ("ring", "disc"))
    middle = [
        one[one.nonzero()[:, 0].float().mean().round().int(), one.nonzero()[:, 1].float().mean().round().int()]
        for one in ring[:, 0]
    ]
    assert sum(middle) < len(middle) / 10  # nearly all rings are dark in their middle
    assert len(disc) > 0


def test_all_arms_of_a_seed_start_from_the_same_weights_and_are_judged_on_the_same_examples() -> None:
    untrained = [run(1, FEW, places, 1.0, steps=0) for places in ((), (0,), (1, 2))]
    assert len({(one["error"], one["nll"]) for one in untrained}) == 1


def test_all_arms_of_a_seed_see_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, seen = experiment._batches, []

    def spy(*args: object) -> object:
        for x, y in batches(*args):
            seen[-1].append(y)
            yield x, y

    monkeypatch.setattr(experiment, "_batches", spy)
    for places in ((), (0,), (0, 1, 2, 3)):
        seen.append([])
        run(1, FEW, places, 1.0, steps=3)
    for one, other in pairwise(seen):
        assert len(one) == 3
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_run_leaves_random_state_and_threads_as_they_were() -> None:
    torch.manual_seed(0)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    run(0, FEW, (0, 1, 2), 1.0, steps=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_run_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = run(0, FEW, (0, 1, 2), 1.0, steps=2)
    torch.manual_seed(2)
    assert run(0, FEW, (0, 1, 2), 1.0, steps=2) == first
    assert run(1, FEW, (0, 1, 2), 1.0, steps=2)["nll"] != first["nll"]


# The committed results


def test_the_committed_results_are_of_the_set_up_in_the_code() -> None:
    results = committed()
    assert results["settings"] == json.loads(json.dumps(report.setup()))
    assert len(results["settings"]["comparing_seeds"]) >= 20
    assert not set(results["settings"]["comparing_seeds"]) & set(results["settings"]["choosing_seeds"])
    assert {row["seed"] for row in results["compared_runs"]} == set(results["settings"]["comparing_seeds"])
    assert len(results["validation"]) == len(report.grid()) * len(SCENARIOS)
    assert set(results["versions"]) == {"python", "torch", "numpy", "scikit-learn", "cpu"}


def test_the_committed_choice_and_comparison_follow_from_the_committed_runs() -> None:
    results = committed()
    for row in results["chosen"]:
        sets = report.ARMS[row["arm"]]
        mine = [v for v in results["validation"] if v["scenario"] == row["scenario"] and tuple(v["places"]) in sets]
        assert row["error"] == pytest.approx(min(v["error"] for v in mine), abs=1e-4)
    for ours, stored in zip(compare(results["compared_runs"], results["chosen"]), results["compared"], strict=True):
        assert ours.keys() == stored.keys()
        for key, value in ours.items():
            assert value == (
                pytest.approx(stored[key], rel=1e-3, abs=1e-4) if isinstance(value, float) else stored[key]
            )


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_runs_of_one_seed_give_about_the_committed_results(scenario: str) -> None:
    results = committed()
    seed = results["settings"]["comparing_seeds"][0]
    for stored in results["compared_runs"]:
        if (stored["seed"], stored["scenario"]) == (seed, scenario):
            again = run(seed, scenario, stored["places"], stored["alpha"], stored["steps"])
            assert alike([again], [stored]) == [True]


# The command


def test_the_command_writes_results_and_prints_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = {"ALPHAS": (1.0,), "STEPS": (2,), "CHOOSING_SEEDS": (1, 2), "COMPARING_SEEDS": (3, 4)}
    few["ARMS"] = {"no mixup": ((),), "input mixup": ((0,),), "manifold mixup": ((1, 2),)}
    for name, value in few.items():
        monkeypatch.setattr(report, name, value)
    assert main(["mixup", "--processes", "1"]) == 0

    results = json.loads(Path("results.json").read_text(encoding="utf-8"))
    assert [row["arm"] for row in results["chosen"]] == ["no mixup", "input mixup", "manifold mixup"] * 3
    assert len(results["compared"]) == 18
    assert results["trainings"] == 2 * 3 * 3 + 2 * 9
    assert results["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # +cpu, +cu132
    assert str(tmp_path) not in json.dumps(results)
    assert "manifold mixup - no mixup" in capsys.readouterr().out


def test_an_unknown_experiment_is_an_error_that_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["mixxup"])
    assert "mixup" in capsys.readouterr().err


@pytest.mark.parametrize("processes", [1, 2])
def test_jobs_give_their_results_in_order_and_a_failing_one_is_an_error(processes: int) -> None:
    assert run_all(math.hypot, [(3.0, 4.0), (5.0, 12.0)], processes) == [5.0, 13.0]
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        run_all(math.sqrt, [(1.0,), (-1.0,)], processes)


def test_readable_json_reads_back_with_six_digits_and_has_a_line_for_each_row() -> None:
    value = {"rows": [{"x": 1 / 3, "name": "é" * 30, "n": n} for n in range(20)], "empty": {}}
    text = report.readable_json(value)
    assert json.loads(text)["rows"][7] == {"x": 0.333333, "name": "é" * 30, "n": 7}
    assert len(text.splitlines()) == 25
