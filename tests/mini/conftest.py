import warnings
from collections.abc import Iterator

import pytest
import torch
from torch.nn.modules import module as torch_module

from hooklab.mini import border


def torch_warns_without_hooks() -> bool:
    """Whether this torch warns of inputs without gradient where only a full backward pre-hook was registered."""
    layer = torch.nn.Linear(1, 1)
    layer.register_full_backward_pre_hook(lambda module, grad_output: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(torch.ones(1, 1)).sum().backward()
    return bool(caught)


border.WARNS_WITHOUT_HOOKS = torch_warns_without_hooks()  # mini does as the installed torch does


@pytest.fixture(autouse=True)
def torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take back what a removed global hook leaves behind in torch, so that other tests meet a fresh torch."""
    monkeypatch.setattr(torch_module, "_global_is_full_backward_hook", None)
    yield
    torch_module._global_forward_hooks_with_kwargs.clear()
