"""monitor: which statistics it keeps of whom, and what it says about the first inf or nan."""

from __future__ import annotations

import gc
import itertools
import math
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from hooklab import capture, leftover_hooks, monitor, watching
from hooklab.health import Health
from hooklab.tallies import Row, Sample, measure, read, sample_now
from tests.nets import Branch, Calls, Checkpointed, Emit, Reuse, Wrap, mlp, ones

pytestmark = pytest.mark.usefixtures("same_numbers_each_time")


def only(health: Health, kind: str = "output", **wanted: Any) -> Row:
    """The one row that is so."""
    found = [
        row
        for row in health.rows
        if row.kind == kind and all(getattr(row, name) == value for name, value in wanted.items())
    ]
    assert len(found) == 1, found
    return found[0]


def fixed(*values: float) -> nn.Module:
    """A module that puts out these numbers, whatever goes in."""
    return Calls(lambda x: torch.tensor(values, dtype=x.dtype) + 0 * x.sum())


def sgd_of(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def health_of(model: nn.Module, x: Tensor, *what: Any, **options: Any) -> Health:
    """What one pass shows to monitor; with gradients or updates a training step."""
    optimizer = options.get("updates")
    with monitor(model, *what, **options) as health:
        y = model(x)
        if options.get("grads") or optimizer:
            y.sum().backward()
        if optimizer:
            optimizer.step()
    return health


# what is kept

USUAL = {"step": 0, "kind": "output", "module": "", "calls": 1, "nonfinite": 0.0, "saturated": None, "ratio": None}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: torch.tensor([0.0, -4.0, 0.0, 2.0]),
            USUAL | {"values": 4, "mean": -0.5, "std": math.sqrt(4.75), "largest": 4.0, "zeros": 0.5},
        ),
        (
            lambda: torch.tensor([math.inf, 1.0, math.nan, 3.0]),
            {"nonfinite": 0.5, "mean": 2.0, "std": 1.0, "largest": 3.0},
        ),
        (
            lambda: torch.tensor([math.inf, math.nan]),
            {"nonfinite": 1.0, "mean": math.nan, "std": math.nan, "largest": math.nan},
        ),
        (lambda: torch.tensor([1.0, 1.0078125], dtype=torch.bfloat16), {"mean": 1.00390625}),
        (lambda: torch.nested.nested_tensor([ones(2), ones(3)]), {"values": 5, "mean": 1.0}),
    ],
    ids=["all", "some are not finite", "none is finite", "neighbours in bfloat16", "nested"],
)
def test_a_row_has_the_statistics_of_the_finite_values(make: Callable[[], Tensor], expected: dict[str, Any]) -> None:
    row = only(health_of(nn.Identity(), make(), on_nonfinite="ignore"))
    assert {name: getattr(row, name) for name in expected} == pytest.approx(expected, nan_ok=True)


EXTREMES = [1e-45, 1e-38, 1e-30, 1e-19, 1e-10, 1.0, 1e10, 1e19, 1e30, 3e38]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("shift", [0.0, 1.0, 1e3])
def test_statistics_are_those_of_numpy_in_double_precision(dtype: torch.dtype, later: bool, shift: float) -> None:
    scales = EXTREMES if dtype is torch.float32 else [*EXTREMES, 1e-300, 1e-170, 1e170, 1e307]
    for scale in scales:
        values = ((torch.rand(500, dtype=torch.float64) - 0.5 + shift) * (scale / max(shift + 0.5, 1))).to(dtype)
        values[:100] = -0.0 if shift == 0 else values[:100]
        exact = values.double().numpy() / scale  # numpy's squares overflow, too
        if later:
            counts, numbers = measure(values, None)
            found = read(counts.tolist(), numbers.tolist(), 500, None)
        else:
            found = sample_now(values)
        assert (found.finite, found.nonzero) == (500, np.count_nonzero(exact))
        close = {"rel": 1e-4, "abs": 1e-6 * abs(exact).max()} if dtype is torch.float32 else {"rel": 1e-9, "abs": 1e-13}
        measured = [one / scale for one in (found.mean, found.std, found.largest)]
        assert measured == pytest.approx([exact.mean(), exact.std(), abs(exact).max()], **close), scale


@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1.0, 3e38, 1e200])
def test_samples_of_several_tensors_are_merged_as_if_they_were_one(scale: float) -> None:
    parts = [torch.rand(size, dtype=torch.float64) * scale * sign for size, sign in ((3, 1), (50, -1), (1, 1))]
    merged = Sample()
    for part in parts:
        merged = merged.merged(sample_now(part))
    whole = torch.cat(parts).numpy() / scale
    measured = [one / scale for one in (merged.mean, merged.std, merged.largest)]
    assert measured == pytest.approx([whole.mean(), whole.std(), abs(whole).max()], rel=1e-4, abs=1e-5)


def test_counts_of_more_values_than_float32_can_count_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "must_wait", lambda device: True)
    health = health_of(nn.Identity(), ones(2**24 + 1), "")
    assert (only(health).nonfinite, only(health).zeros) == (0.0, 0.0) and health.first_nonfinite is None


def test_the_statistics_of_very_many_values_are_those_of_double_precision() -> None:
    values = torch.randn(5, 2**20).relu().t()
    exact = values.double()
    found = sample_now(values, None)
    assert found._replace(mean=0.0, std=0.0) == (
        (values.numel(), values.numel(), 0.0, 0.0, float(values.max()), int(torch.count_nonzero(values)), None)
    )
    assert (found.mean, found.std) == pytest.approx((float(exact.mean()), float(exact.std(correction=0))), rel=2e-5)


@pytest.mark.parametrize(
    ("module", "flat", "steep"),
    [
        (nn.Sigmoid(), [-5.0, 5.0], [-4.0, 4.0]),
        (nn.Tanh(), [-3.0, 3.0], [-2.0, 2.0]),
        (nn.Hardtanh(-2, 4), [-2.0, 9.0], [-1.0, 3.0]),
        (nn.ReLU6(), [-1.0, 6.5], [1.0, 5.0]),
        (nn.Softsign(), [-200.0, 200.0], [-20.0, 20.0]),
        (nn.Hardsigmoid(), [-4.0, 4.0], [-2.0, 2.0]),
    ],
)
def test_saturation_is_the_share_near_the_ends_of_the_range(module: nn.Module, flat: Any, steep: Any) -> None:
    with monitor(module) as health:
        module(torch.tensor(flat + steep))
        module(torch.tensor(flat))
    assert [row.saturated for row in health.rows] == [0.5, 1.0]


# what cannot be read


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_under_vmap_nothing_is_read_and_nothing_breaks(later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "must_wait", lambda device: later)
    with monitor(mlp()) as health:
        torch.func.vmap(health._options.model)(ones(5, 3))
    assert health.rows == [] and "no numbers to read: '0', '1', '2'" in str(health)


def test_of_distributed_parameters_each_process_reads_its_own_part(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        model = mlp()
        model[0].weight.data.fill_(10.0)
        fully_shard(model, mesh=mesh)
        sgd = sgd_of(model)
        with monitor(model, updates=sgd, on_nonfinite="ignore") as health:
            model(ones(2, 3)).sum().backward()
            sgd.step()
            model(ones(2, 3) * 3e38)
        assert {row.module for row in health.rows if row.kind == "update" and row.ratio} == {"0", "2"}
        assert health.first_nonfinite is not None and "parameters and buffers are finite" in health.first_nonfinite.text
        assert "no numbers" not in str(health)
    finally:
        torch.distributed.destroy_process_group()


# whose, and when


@pytest.mark.parametrize("shape", ["tensor", "tuple", "list", "dict", "named tuple", "dataclass", "model output"])
def test_every_output_structure_is_measured(shape: str) -> None:
    health = health_of(Wrap(Emit(shape)), torch.full((2,), 3.0, requires_grad=True), "inner", grads=True)
    assert only(health).largest == (7.0 if shape == "dict" else 6.0)
    assert only(health, "gradient").largest == 1.0


def test_all_uses_in_one_step_are_taken_together() -> None:
    model = Reuse()
    with monitor(model, "act", grads=True) as health, capture(model, "act", grads=True) as seen:
        model(torch.randn(4, 3)).sum().backward()
    row, together = only(health), torch.cat([call.output for call in seen.calls("act")])
    assert (row.calls, row.values) == (3, 36)
    assert [row.mean, row.std] == pytest.approx([together.mean().item(), together.std(correction=0).item()], abs=1e-6)
    assert row.largest == together.abs().max()
    # the first act is not reached: its input asks for no gradient
    assert only(health, "gradient").calls == 2


def test_one_loss_of_two_passes_has_the_gradients_of_both() -> None:
    model = mlp()
    with monitor(model, grads=True) as health:
        (model(ones(2, 3)) * 2 + model(ones(2, 3))).sum().backward()
    assert [(row.step, row.mean) for row in health.rows if (row.kind, row.module) == ("gradient", "2")] == [
        (1, 1.0),
        (0, 2.0),
    ]


def test_a_gradient_that_never_arrives_is_reported() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    with monitor(model, grads=True) as health:
        y = model(ones(2, 3, 4))
        assert "no gradient arrived" not in str(health)
        y.sum().backward()
    assert "no gradient arrived at the output of: '0'\n" in str(health) + "\n"
    with pytest.raises(LookupError, match=r"A backward pass ran, and no gradient arrived .*inplace=True"):
        health.series("gradient", "0", "std")


def test_an_output_that_the_loss_does_not_use_has_no_gradient() -> None:
    model = Calls(torch.unbind)
    with monitor(model, grads=True) as health:
        model(ones(2, 3).requires_grad_())[0].sum().backward()
    assert (only(health, "gradient").values, only(health, "gradient").calls) == (3, 1)


# updates


def test_an_update_is_what_the_parameters_moved_by() -> None:
    model = nn.Linear(2, 1)
    nn.init.constant_(model.weight, 2.0)
    nn.init.zeros_(model.bias)
    row = only(health_of(model, torch.tensor([[3.0, 0.0]]), updates=sgd_of(model, 0.5)), "update")
    assert (row.calls, row.values, row.largest, row.zeros) == (2, 3, 1.5, pytest.approx(1 / 3))
    assert row.ratio == pytest.approx(math.sqrt(1.5**2 + 0.5**2) / math.sqrt(8))


def test_the_ratio_does_not_depend_on_the_dtype_of_other_parameters() -> None:
    model = nn.Sequential(nn.Linear(8, 8).half(), Calls(Tensor.float), nn.Linear(8, 8))
    model[2].weight.data.mul_(3e5)
    before = [one.detach().clone() for one in model[2].parameters()]
    health = health_of(model, ones(4, 8).half(), updates=sgd_of(model, 1e-9), on_nonfinite="ignore")
    moved = torch.cat([(now - old).flatten() for now, old in zip(model[2].parameters(), before, strict=True)]).detach()
    size = torch.cat([old.flatten() for old in before])
    assert only(health, "update", module="2").ratio == pytest.approx(float(moved.norm() / size.norm()), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "passes"),
    [
        (torch.optim.SGD, 1),
        (torch.optim.Adam, 1),
        (lambda parameters: torch.optim.LBFGS(parameters, lr=1e-3, max_iter=3), 3),
    ],
    ids=["SGD", "Adam", "LBFGS"],
)
def test_every_step_with_a_closure_has_its_update(make: Any, passes: int) -> None:
    model = mlp()
    optimizer = make(model.parameters())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(ones(2, 3)).square().sum()
        loss.backward()
        return loss

    with monitor(model, "0", updates=optimizer) as health:
        for _ in range(3):
            optimizer.step(closure)
    last = [passes * number - 1 for number in (1, 2, 3)]
    assert [row.step for row in health.rows if row.kind == "update"] == last


def test_a_second_update_in_one_step_is_added_to_the_first() -> None:
    model = mlp()
    sgd = sgd_of(model)
    with monitor(model, "0", updates=sgd, every=2) as health:
        for _ in range(2):  # the second step is not recorded
            model(ones(2, 3)).sum().backward()
            sgd.step()
            sgd.step()
    assert only(health, "update").calls == 4


class Experts(nn.Module):
    """A module with children, a parameter of its own, and one in a list that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.act = nn.Parameter(ones(4, 4)), nn.SiLU()
        self.more = nn.ParameterList([ones(4)])

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x @ self.weight) + self.more[0]


def test_parameters_outside_of_layers_are_watched_with_the_module_that_has_them() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Experts())
    health = health_of(model, ones(2, 4), updates=sgd_of(model))
    assert {(row.module, row.values) for row in health.rows if row.kind == "update"} == {("0", 20), ("1", 20)}
    assert list(health._options.hooked) == ["0", "1", "1.act"]
    health = health_of(model, ones(2, 4), "", "0", updates=sgd_of(model))
    assert {(row.module, row.values) for row in health.rows if row.kind == "update"} == {("0", 20), ("", 20)}


def test_updates_of_several_optimizers_are_told() -> None:
    model = mlp()
    both = [sgd_of(model[0]), sgd_of(model[2])]
    with monitor(model, updates=both) as health:
        model(ones(2, 3)).sum().backward()
        for one in both:
            one.step()
    assert [row.module for row in health.rows if row.kind == "update"] == ["0", "2"]


def test_an_update_after_several_passes_belongs_to_the_last_one_recorded() -> None:
    model = mlp()
    sgd = sgd_of(model)
    with monitor(model, "0", updates=sgd, every=2) as health:
        for number in range(8):
            model(ones(2, 3)).sum().backward()
            if number % 4 == 3:
                sgd.step()
    assert [row.step for row in health.rows if row.kind == "update"] == [2, 6]


def test_a_frozen_layer_does_not_move_and_has_no_gradient() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    health = health_of(model, ones(2, 3), updates=sgd_of(model))
    assert only(health, "update", module="0").ratio == 0.0
    assert health.without_gradient == ["0.weight", "0.bias"]


def test_a_step_that_a_fused_optimizer_skips_is_no_update() -> None:
    model, scaler = nn.Linear(2, 1), torch.amp.GradScaler("cpu", init_scale=2.0)
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    with monitor(model, updates=adam) as health:
        for factor in (1.0, math.inf):
            adam.zero_grad()
            scaler.scale(model(ones(4, 2)).mean() * factor).backward()
            scaler.step(adam)
            scaler.update()
    assert [row.step for row in health.rows if row.kind == "update"] == [0]


# the first inf or nan


def test_the_first_module_that_makes_an_inf_is_warned_of_by_name_once_a_block_and_at_the_users_line() -> None:
    model = nn.Sequential(nn.Linear(3, 3), fixed(1.0, math.inf), nn.ReLU())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # once for each line and text
        for _ in range(2):
            with monitor(model) as health:
                model(ones(1, 3))
                model(ones(1, 3))
    assert [one.filename for one in caught] == [__file__] * 2  # one in each block
    assert str(caught[0].message).startswith("step 0: the output of '1' has 1 of 2 values inf or nan. Its inputs (larg")
    assert "parameters and buffers are finite: the values were made in this module." in str(caught[0].message)
    assert health.first_nonfinite is not None and health.first_nonfinite[:3] == (0, "output", "1")


def masked_between() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].register_forward_pre_hook(lambda module, args: args[0].masked_fill(ones(3).bool(), -math.inf).softmax(-1))
    return model


def with_running_mean(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    model[1].running_mean[0] = value
    return model


def linear(weight: float, dtype: torch.dtype) -> nn.Module:
    model = nn.Linear(1, 1, dtype=dtype)
    model.weight.data.fill_(weight)
    return model


grows = Calls(lambda x: x * 1e30)


@pytest.mark.parametrize(
    ("model", "x", "said"),
    [
        (
            mlp(),
            torch.full((2, 3), math.nan),
            "Its input has some too, and no output was read before it: look at the data.",
        ),
        (
            masked_between(),
            ones(2, 3),
            "Its input has some too. The last output read before it, of '0', was finite: look at what runs between",
        ),
        (
            with_running_mean(math.nan),
            ones(2, 3),
            "'1' has 2 of 8 values inf or nan. Its inputs are finite, but not its running_mean: look at how",
        ),
        (linear(math.inf, torch.float32), ones(1, 1), "Its inputs are finite, but not its weight: look at how"),
        (
            linear(100.0, torch.float16),
            torch.full((1, 1), 1000.0, dtype=torch.float16),
            "the values were made in this module. float16 holds no more than 65504",
        ),
        (nn.Sequential(grows, grows), ones(1), "the output of '0' in call 2 has"),
    ],
    ids=["the data", "between two layers", "a buffer", "a parameter", "an overflow", "the call of a reused module"],
)
def test_a_finding_says_what_is_known_about_where_the_values_were_made(model: nn.Module, x: Tensor, said: str) -> None:
    health = health_of(model, x, on_nonfinite="ignore")
    assert health.first_nonfinite is not None and said in health.first_nonfinite.text


@pytest.mark.parametrize(("value", "was"), [(1.0, "was finite"), (math.nan, "was not finite")])
def test_a_finding_says_whether_the_parameter_was_finite_before_the_update(value: float, was: str) -> None:
    model = nn.Sequential(linear(value, torch.float32), Calls(lambda x: x * math.nan))
    health = health_of(model, ones(1, 1), updates=sgd_of(model), on_nonfinite="ignore")
    assert health.findings[-1].text.endswith(f"Before this optimizer step the parameter {was}.")


def test_a_gradient_that_is_not_finite_is_told_from_the_forward() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Calls(torch.sqrt))
    nn.init.constant_(model[0].weight, -1.0)
    nn.init.zeros_(model[0].bias)
    said = "the gradient of the output of '1' .* outputs of this step are finite. It was made .* what comes after '1'"
    with pytest.warns(RuntimeWarning, match=said):
        health = health_of(model, ones(1, 2), grads=True)
    assert health.findings[0][:3] == (0, "gradient", "1")


def test_raise_stops_at_the_module() -> None:
    model = nn.Sequential(nn.Linear(3, 3), fixed(math.nan), nn.ReLU())
    ran: list[int] = []
    model[2].register_forward_hook(lambda *args: ran.append(1))
    with pytest.raises(FloatingPointError, match="the output of '1'"), monitor(model, on_nonfinite="raise"):
        model(ones(1, 3))
    assert ran == [] and len(leftover_hooks(model)) == 1


def test_findings_have_the_first_of_each_kind() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    sgd = sgd_of(model, 1.0)
    with monitor(model, grads=True, updates=sgd, on_nonfinite="ignore") as health:
        for scale in (1.0, math.nan):
            (model(ones(1, 1)) * scale).sum().backward()
            sgd.step()
        model(ones(1, 1))
    assert [finding[:3] for finding in health.findings] == [
        (1, "gradient", "1"),
        (1, "update", "0"),
        (2, "output", "0"),
    ]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        *(({"every": every}, ValueError, "every is a whole number") for every in (0, 1.5, True)),
        ({"on_nonfinite": "stop"}, ValueError, "on_nonfinite is 'warn', 'raise' or 'ignore'"),
        *(
            ({"updates": no}, TypeError, "updates is an optimizer of torch.optim, or several; not")
            for no in (3, [mlp()])
        ),
        (
            {"updates": sgd_of(mlp())},
            LookupError,
            "no parameter of '0', '1', '2' is in the optimizer. Was it made for another",
        ),
    ],
)
def test_an_option_of_a_wrong_kind_is_refused(options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        monitor(mlp(), **options)


# the rest of PyTorch


def test_training_is_the_same_with_a_monitor() -> None:
    def train(watched: bool) -> list[Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(4, 2))
        adam = torch.optim.Adam(model.parameters())
        with monitor(model, grads=True, updates=adam, every=1 if watched else 10**9):
            for _ in range(5):
                adam.zero_grad()
                model(torch.randn(8, 3)).square().mean().backward()
                adam.step()
        return list(model.parameters())

    assert all(torch.equal(one, other) for one, other in zip(train(True), train(False), strict=True))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_a_checkpoint_runs_again_is_no_new_call_and_has_its_gradient(use_reentrant: bool) -> None:
    model = Checkpointed(use_reentrant)
    health = health_of(model, torch.randn(2, 3), grads=True)
    assert [only(health, module=name).calls for name in ("stem", "block.0", "block.1")] == [1, 1, 1]
    assert only(health, "gradient", module="block.1").mean == 1.0
    assert only(health, "gradient", module="block.0").values == 6


def test_on_a_device_that_works_ahead_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.ReLU(), fixed(1.0, math.inf, 0.0)), torch.randn(6, 3) * 9
    now = monitor(model, on_nonfinite="ignore")
    with now as expected:
        model(x)
    monkeypatch.setattr(watching, "must_wait", lambda device: True)
    with monitor(model) as later:
        model(x)
        assert len(later._session.waiting) == 4
        with pytest.warns(RuntimeWarning, match="step 0: the output of '3' has 1 of 3 values"):
            model(x)
    assert later._session.waiting == []
    for one, other in zip(expected.rows, later.rows[:4], strict=True):
        assert one[:5] == other[:5] and one[5:8] == pytest.approx(other[5:8], rel=1e-5)
        assert one[8:] == pytest.approx(other[8:])


# memory, and hooks


def test_no_tensor_and_no_graph_lives_on() -> None:
    model = mlp()
    sgd = sgd_of(model)
    alive: list[weakref.ref[Tensor]] = []
    for module in model:
        module.register_forward_hook(lambda module, args, output: alive.append(weakref.ref(output)))
    with monitor(model, grads=True, updates=sgd):
        model(ones(2, 3)).sum().backward()
        sgd.step()
        gc.collect()
        assert len(alive) == 3 and all(one() is None for one in alive)
        assert sum(type(thing) is Tensor and thing.shape == (4, 3) for thing in gc.get_objects()) == 1  # the .grad


def test_hooks_on_gradients_are_forgotten_with_their_graph() -> None:
    model = mlp()
    with monitor(model, grads=True) as health:
        for _ in range(20):
            model(ones(2, 3)).sum().backward()
        assert len(health._session.gradient_handles) <= 6


def test_after_the_block_no_hook_is_left_on_model_outputs_or_optimizer() -> None:
    model = mlp()
    sgd = sgd_of(model)
    with monitor(model, grads=True, updates=sgd) as health:
        both = [model(ones(2, 3)), model(ones(2, 3))]
    for y in both:
        y.sum().backward()
        assert not y._backward_hooks
    sgd.step()
    assert leftover_hooks(model) == []
    assert not sgd._optimizer_step_pre_hooks and not sgd._optimizer_step_post_hooks
    assert {row.kind for row in health.rows} == {"output"}


# reading


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("output", "O", "mean"), "'O' was not selected"),
        (("gradient", "0", "mean"), r"nothing was recorded as gradient of '0'. Open the block with .*grads=True"),
        (("update", "0", "mean"), "Open the block with .*updates=optimizer"),
        (("outputs", "0", "mean"), "A kind is one of 'output', 'gradient', 'update'"),
    ],
)
def test_a_series_that_is_not_there_is_an_error_that_says_why(asked: Any, said: str) -> None:
    with pytest.raises(LookupError, match=said):
        health_of(mlp(), ones(2, 3)).series(*asked)


def test_its_text_shows_the_last_step_and_what_is_worth_knowing() -> None:
    model = Branch()
    text = str(health_of(model, ones(1, 3), updates=sgd_of(model)))
    assert text.startswith("1 steps of Branch recorded, 3 modules watched")
    assert [line.split()[:2] for line in text.splitlines()[2:4]] == [["output", "used"], ["update", "used"]]
    assert "silent (never ran): 'unused', 'silent'" in text
    assert "without a gradient: 'unused.weight', 'unused.bias'" in text


@pytest.mark.filterwarnings("ignore:step")
def test_a_plot_has_a_panel_for_each_kind_and_a_line_for_each_module() -> None:
    model = nn.Sequential(mlp(), fixed(1.0, math.inf))
    sgd = sgd_of(model)
    with monitor(model, grads=True, updates=sgd, every=2) as health:
        for _ in range(5):
            model[0](ones(2, 3)).sum().backward()
            model(ones(2, 3))
            sgd.step()
    panels = [ax for ax in health.plot().axes if ax.get_title(loc="left")]
    assert [ax.get_title(loc="left").split(":")[0] for ax in panels] == [
        "outputs",
        "outputs",
        "gradients of the outputs",
        "updates of the parameters",
    ]
    assert [tick.get_text() for tick in panels[0].get_yticklabels()] == ["0.0", "0.1", "0.2", "1"]
    assert [tick.get_text() for tick in panels[3].get_yticklabels()] == ["0.0", "0.2"]
    assert panels[0].get_legend().get_texts()[0].get_text() == "inf or nan"
    assert panels[3].get_legend() is None


@pytest.mark.filterwarnings("ignore:step")
@pytest.mark.parametrize("statistic", Row._fields[3:])
@pytest.mark.parametrize("values", [(0.0, 0.0), (math.nan,), (1e300, 1e-300), (-3.0,)])
def test_every_statistic_can_be_drawn_whatever_its_values(statistic: str, values: Any) -> None:
    model = nn.Sequential(fixed(*values), nn.Tanh(), nn.Linear(len(values), 1)).double()
    health = health_of(model, ones(1).double(), updates=sgd_of(model, 0.0))
    health.plot(statistic, kind="update" if statistic == "ratio" else "output").canvas.draw()


def test_zero_and_infinity_lie_at_the_ends_of_a_scale_of_logarithms() -> None:
    health = health_of(nn.Sequential(fixed(0.0, 0.0), fixed(1.0, -1.0), fixed(100.0, -100.0)), ones(1))
    (image,) = health.plot("std").axes[0].collections
    assert image.get_array().ravel().tolist() == pytest.approx([1.0, 1.0, 100.0])
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx((1.0, 100.0))


def test_a_plot_of_nothing_is_an_error_that_says_why() -> None:
    with monitor(mlp()) as health:
        with pytest.raises(RuntimeError, match=r"nothing was recorded as output. Call the model inside the block"):
            health.plot()
        health._options.model(ones(2, 3))
    with pytest.raises(RuntimeError, match="grads=True"):
        health.plot("std", kind="gradient")


# dead units


def half_dead(*shape: int) -> nn.Module:
    """Of three units, the first gives 0 always, the second at odd calls."""
    calls = itertools.count(1)

    def forward(x: Tensor) -> Tensor:
        scale = torch.tensor([0.0, float(next(calls) % 2 == 0), 1.0])
        units = scale.view(3, *[1] * (len(shape) - 2)) if len(shape) in (4, 5) else scale
        return torch.ones(shape) * units + 0 * x

    return Calls(forward)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3), (2, 3, 4, 4), (2, 3, 1, 2, 2)])
def test_a_unit_is_dead_that_gave_only_zeros_in_every_recorded_step(
    shape: Any, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "must_wait", lambda device: on_device)
    model = nn.Sequential(half_dead(*shape), nn.Identity())
    with monitor(model, "0") as health:
        model(torch.zeros(1))
        assert health.dead_units == {"0": [0, 1]}
        model(torch.zeros(1))
    assert health.dead_units == {"0": [0]}
    assert "units that gave only 0: '0: 1 of 3'" in str(health)
    assert health_of(model[1], torch.zeros(3)).dead_units == {}


def test_a_unit_that_dies_after_steps_without_a_zero_is_not_one_that_never_fired() -> None:
    model = nn.Sequential(nn.Identity())
    with monitor(model) as health:
        model(torch.ones(4, 3))
        model(torch.tensor([[0.0, 1.0, 1.0]]))
    assert health.dead_units == {}


def test_steps_are_those_that_were_recorded_also_where_the_root_is_never_called() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for call in (model, lambda x: model[1](model[0](x))):
        with monitor(model, grads=True, every=3) as health:
            for _ in range(8):
                call(torch.ones(1, 2)).sum().backward()
        assert health.steps == [0, 3, 6] == sorted({row.step for row in health.rows})
