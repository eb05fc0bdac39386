"""No kind of tensor in a model breaks its forward, its backward or a step when a tool looks at it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, run_until, timeline, watching
from hooklab._shared.trees import nbytes
from tests.nets import ones


class Refusing(Tensor):
    """Has a shape and a dtype, and raises when anything is computed from it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "__get__":
            return super().__torch_function__(func, types, args, kwargs or {})
        raise ArithmeticError(f"no {func.__name__} here")


class Opaque(Tensor):
    """Has no way to get at its values, as a tensor of a library that is not at hand."""

    @staticmethod
    def __new__(cls) -> Opaque:
        made: Opaque = Tensor._make_wrapper_subclass(cls, (2, 2), dtype=torch.float32)  # type: ignore[attr-defined]
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ArithmeticError(f"no {func} here")


def fake() -> Tensor:
    with FakeTensorMode():
        return torch.ones(2, 2)


def in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return torch.ones(2, 2)


ODD: dict[str, Callable[[], Tensor]] = {
    "meta": lambda: torch.ones(2, 2, device="meta"),
    "float8": lambda: ones(2, 2).to(torch.float8_e4m3fn),
    "half": lambda: ones(2, 2).half(),
    "complex": lambda: 1j * ones(2, 2),
    "conjugate": lambda: (1j * ones(2, 2)).conj(),
    "coo": lambda: ones(2, 2).to_sparse(),
    "csr": lambda: ones(2, 2).to_sparse_csr(),
    "mkldnn": lambda: ones(2, 2).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(ones(2, 2), 0.1, 0, torch.quint8),
    "empty": lambda: ones(0, 2),
    "number": lambda: torch.tensor(1.0),
    "bool": lambda: ones(2, 2).bool(),
    "int8": lambda: ones(2, 2).to(torch.int8),
    "uint16": lambda: ones(2, 2).to(torch.uint16),
    "bits": lambda: ones(2, 2).to(torch.uint8).view(torch.bits8),
    "inf and nan": lambda: torch.tensor([[float("inf"), float("nan")]] * 2),
    "nested": lambda: torch.nested.nested_tensor([ones(2, 2), ones(1, 2)]),
    "jagged": lambda: torch.nested.nested_tensor([ones(2, 2), ones(1, 2)], layout=torch.jagged),
    "masked": lambda: torch.masked.masked_tensor(ones(2, 2), ones(2, 2).bool()),
    "fake": fake,
    "inference": in_inference_mode,
    "refusing": lambda: ones(2, 2).as_subclass(Refusing),
    "refusing with a graph": lambda: ones(2, 2).requires_grad_().as_subclass(Refusing),
    "opaque": Opaque,
}


READABLE = {"float8", "half", "complex", "conjugate", "coo", "csr", "jagged"}


class Odd(nn.Module):
    """Holds an odd parameter or buffer, and returns it beside an output that is inf."""

    def __init__(self, odd: Tensor) -> None:
        super().__init__()
        try:
            self.odd = nn.Parameter(odd, requires_grad=False)
        except Exception:
            self.register_buffer("odd", odd)

    def forward(self, x: Tensor, **batch: Any) -> tuple[Tensor, Tensor]:
        return self.odd, x / 0


class Model(nn.Module):
    def __init__(self, kind: str, requires_grad: bool) -> None:
        super().__init__()
        self.kind, self.layer, self.odd = kind, nn.Linear(2, 2), Odd(ODD[kind]())
        if requires_grad:
            self.odd.odd.requires_grad_()

    def forward(self, x: Tensor, **batch: Any) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = self.odd(self.layer(x), **batch)
        return made

    def step(self, **batch: Any) -> None:
        self(ones(2, 2), **batch)[1].sum().backward()
        self.sgd.step()

    @property
    def sgd(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)


def captured(model: Model) -> None:
    for clone in (False, True):
        with capture(model, "", "layer", "odd", inputs=True, grads=True, clone=clone) as seen:
            model.step(mask=model.odd.odd)
        assert list(seen) == ["", "layer", "odd"] and seen.grad("layer").shape == (2, 2) and repr(seen)


def edited(model: Model) -> None:
    with edit(model, lambda output, call: output, "", "layer", "odd"):
        model.step()


def traced(model: Model) -> None:
    with timeline(model) as events:
        model.step(mask=model.odd.odd)
    assert len(events) >= 11


def stopped_and_listed(model: Model) -> None:
    assert run_until(model, "odd", ones(2, 2))[0] is model.odd.odd
    assert leftover_hooks(model) == []


def mixed_beside_it(model: Model) -> None:
    with ManifoldMixup(model, "layer", include_input=False)(ones(2, 2), torch.zeros(2)):
        model.step(mask=model.odd.odd)


def monitored(model: Model) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with monitor(model, grads=True, updates=sgd, on_nonfinite="ignore") as health:
        model(ones(2, 2))[1].sum().backward()
        sgd.step()
    assert health.first_nonfinite is not None and health.first_nonfinite.module == "odd"
    assert {row.kind for row in health.rows if row.module == "layer"} == {"output", "gradient", "update"}
    (of_odd,) = [row for row in health.rows if (row.module, row.kind) == ("odd", "output")]
    assert of_odd.nonfinite < 1 or model.kind not in READABLE  # its other output is inf
    assert "no numbers to read: 'odd'" in str(health) or model.kind not in ("meta", "refusing")
    if model.kind == "meta" and "Its inputs" in health.first_nonfinite.text:  # read at once, and so explained
        assert health.first_nonfinite.text.endswith("Its inputs are finite; its odd cannot be read.")


def monitored_on_a_device_that_works_ahead(model: Model) -> None:
    with mock.patch.object(watching, "must_wait", lambda device: device.type != "meta"):
        monitored(model)


LOOKS = [captured, edited, traced, stopped_and_listed, mixed_beside_it]
LOOKS += [monitored, monitored_on_a_device_that_works_ahead]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "with gradient"])
@pytest.mark.parametrize("kind", ODD)
def test_no_kind_of_tensor_breaks_a_training(kind: str, requires_grad: bool, look: Callable[[Model], None]) -> None:
    try:
        model = Model(kind, requires_grad)
        model.step()
    except Exception as error:
        pytest.skip(f"torch itself: {error}")
    look(Model(kind, requires_grad))


class WithoutHooks(Tensor):
    def register_hook(self, hook: Any) -> Any:
        raise ArithmeticError("no hooks here")


def test_an_output_that_refuses_hooks_is_told_and_the_one_beside_it_is_recorded() -> None:
    class Two(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x).as_subclass(WithoutHooks), super().forward(x)

    model = nn.Sequential(Two(2, 2))
    with monitor(model, grads=True) as health:
        model(ones(2, 2))[1].sum().backward()
    assert "no numbers to read: '0'" in str(health)
    assert {row.kind for row in health.rows if row.module == "0"} == {"output", "gradient"}


def test_the_bytes_that_an_object_holds_are_counted_and_no_tensor_twice() -> None:
    x = ones(2, 2)
    assert nbytes((x, SimpleNamespace(keys=x, values=ones(3)))) == 4 * (4 + 3)
