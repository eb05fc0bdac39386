from collections.abc import Iterator

import pytest
from torch.nn.modules import module as torch_module


@pytest.fixture(autouse=True)
def torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take back what a removed global hook leaves behind in torch, so that other tests meet a fresh torch."""
    monkeypatch.setattr(torch_module, "_global_is_full_backward_hook", None)
    yield
    torch_module._global_forward_hooks_with_kwargs.clear()
