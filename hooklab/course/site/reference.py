"""The library's page: hooklab's public functions from their docstrings, with links into PyTorch's documentation."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import hooklab

TORCH = "https://docs.pytorch.org/docs/stable/"
# What signatures and docstrings name, and the page of PyTorch's documentation that explains it.
_NAMES = {
    "torch.Tensor": ("class", "tensors.html#torch.Tensor"),
    "torch.nn.Module": ("class", "generated/torch.nn.Module.html#torch.nn.Module"),
    "torch.nn.ReLU": ("class", "generated/torch.nn.ReLU.html#torch.nn.ReLU"),
    "torch.nn.parameter.Parameter": ("class", "generated/torch.nn.parameter.Parameter.html"),
    "torch.nn.modules.module.Module": ("class", "generated/torch.nn.Module.html#torch.nn.Module"),
    "torch.optim.Optimizer": ("class", "optim.html#torch.optim.Optimizer"),
    "torch.optim.optimizer.Optimizer": ("class", "optim.html#torch.optim.Optimizer"),
    "torch.device": ("class", "tensor_attributes.html#torch.device"),
    "torch.dtype": ("class", "tensor_attributes.html#torch.dtype"),
}
_PAGE = """\
# The library

What the lessons build by hand, ready to use. Each function removes its hooks when its block ends. The names lead to
[PyTorch's documentation]({torch}).

```python
import hooklab
```
"""


def write(source: Path) -> None:
    """Write the page for Sphinx to read."""
    course = ("check", "predict", "progress", "reveal")
    names = [name for name in hooklab.__all__ if name not in course]
    parts = [_PAGE.format(torch=TORCH)]
    for name in names:
        one = getattr(hooklab, name)
        kind = "autoclass" if isinstance(one, type) else "autofunction"
        members = "   :members:\n" if isinstance(one, type) else ""
        parts.append(f"## `{name}`\n\n```{{eval-rst}}\n.. {kind}:: hooklab.{name}\n{members}```\n")
    (source / "reference.md").write_text("\n".join(parts), encoding="utf-8")


def intersphinx(folder: Path) -> dict[str, Any]:
    """Write the list of PyTorch's pages that the library's page leads to, and return the setting that uses it."""
    lines = [f"{name} py:{kind} 1 {page} -\n" for name, (kind, page) in _NAMES.items()]
    head = "# Sphinx inventory version 2\n# Project: PyTorch\n# Version: \n# What follows is compressed using zlib.\n"
    inventory = folder / "torch.inv"
    inventory.write_bytes(head.encode() + zlib.compress("".join(lines).encode()))
    return {"intersphinx_mapping": {"torch": (TORCH, str(inventory))}}
