"""The hook machinery of PyTorch in five small files, to be read in one sitting.

Read them in this order; each needs only the ones before it:

1. ``handles``: a table of hooks, and the handle that removes one again.
2. ``graph``: the autograd graph, and how ``backward()`` walks it.
3. ``tensor``: ``Tensor``, with ``register_hook`` and ``retain_grad``.
4. ``border``: how a full backward hook sees both ends of a module.
5. ``module``: ``Module.__call__``, where all of it comes together.

Names and behaviour are torch's own: the same program run in both writes the same log of hook calls, values and
errors. Where torch does something that few people expect, it is done here as well, below a comment that begins with
``Surprise``. Only NumPy is needed; no line of torch is run.

Left out, because no hook needs it: broadcasting, dtypes and devices, indexing, double backward, legacy backward
hooks, parameters and child modules (a module here is whatever has a ``forward``). And one thing that you should not do
in torch either, since gradients share memory in ways that are not documented: a hook that changes a gradient in place.

>>> from hooklab.mini import Module, Tensor
>>> class Double(Module):
...     def forward(self, x):
...         return x * 2.0
>>> double = Double()
>>> with double.register_forward_hook(lambda module, args, output: output + 1.0):
...     double(Tensor([1.0, 2.0]))
Tensor([3.0, 5.0])
>>> double(Tensor([1.0, 2.0]))
Tensor([2.0, 4.0])
"""

from hooklab.mini.graph import no_grad
from hooklab.mini.handles import RemovableHandle
from hooklab.mini.module import (
    Module,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from hooklab.mini.tensor import Tensor

__all__ = [
    "Module",
    "RemovableHandle",
    "Tensor",
    "no_grad",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]
