"""Small models for the tests of capture, edit and timeline, each with one property that trips hook code up."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklab import capture
from hooklab.seen import Seen

Pair = namedtuple("Pair", ["left", "right"])


def mlp() -> nn.Sequential:
    """Linear, ReLU, Linear: 3 -> 4 -> 2."""
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


class Calls(nn.Module):
    """Its forward is the function that it was given."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Reuse(nn.Module):
    """One activation, used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.b(self.act(self.a(self.act(x)))))


class Shared(nn.Module):
    """One Linear under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3)
        self.decoder = self.encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x)


@dataclass
class Result:
    hidden: Tensor
    note: str
    extra: Tensor | None = None


class ModelOutput(OrderedDict[str, Any]):
    """A dict whose values are attributes too, as the outputs of large model libraries are."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Emit(nn.Module):
    """Gives twice its input, in the structure that ``shape`` names."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Any:
        twice = x * 2
        if self.shape == "model output":
            result = ModelOutput()
            result["hidden"] = twice
            return result
        return {
            "tensor": twice,
            "tuple": (twice, None),
            "list": [twice, 3],
            "dict": {"hidden": twice, "nested": (twice + 1,)},
            "named tuple": Pair(twice, None),
            "dataclass": Result(twice, "twice"),
            "none": None,
        }[self.shape]


class Wrap(nn.Module):
    """Calls ``inner`` and returns the first tensor of its output, to end in one tensor."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x)
        if isinstance(out, dict):
            out = out["hidden"]
        elif isinstance(out, Result):
            out = out.hidden
        elif isinstance(out, (tuple, list)):
            out = out[0]
        return x if out is None else out


class Checkpointed(nn.Module):
    """A Linear, then a checkpointed block of Linear and Tanh."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 3)
        self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, self.stem(x), use_reentrant=self.use_reentrant)


class ChangedThroughAnotherView(nn.Module):
    """Returns a view whose base was changed in place through another view of it."""

    def forward(self, x: Tensor) -> Tensor:
        view = x.clone().view(3)
        view[:].add_(2)
        return view


class Raises(nn.Module):
    """Raises what it is given."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


class Retry(nn.Module):
    """Calls its part with an input that does not fit, then with one that does."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.part(x[:, :2])
        except RuntimeError:
            return self.part(x)


class Branch(nn.Module):
    """Uses ``used`` and has ``unused``; calls ``silent`` by its forward, so that no hook runs."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.silent = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.silent.forward(self.used(x))


class Recursive(nn.Module):
    """Calls itself until ``depth`` is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        x = self.step(x)
        return self(x, depth - 1) if depth else x


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape)


def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(60)


def seen_of(model: nn.Module, *what: Any, x: Tensor | None = None, **options: Any) -> Seen:
    """What one pass of the model shows to capture; with ``grads=True`` after a backward pass of its sum."""
    with capture(model, *what, **options) as seen:
        y = model(ones(2, 3) if x is None else x)
        if options.get("grads"):
            y.sum().backward()
    return seen
