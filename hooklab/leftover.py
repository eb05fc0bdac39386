"""What is still registered on a model: :func:`leftover_hooks`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import nn

from hooklab._shared.torch_private import WrappedHook, global_hooks
from hooklab.selecting import all_modules, plain_name, require_module

# kind, in the words of the method that registers it -> the module's attribute that holds it
MODULE_TABLES = {
    "forward_pre_hook": "_forward_pre_hooks",
    "forward_hook": "_forward_hooks",
    "full_backward_pre_hook": "_backward_pre_hooks",
    "full_backward_hook": "_backward_hooks",
    "state_dict_pre_hook": "_state_dict_pre_hooks",
    "state_dict_hook": "_state_dict_hooks",
    "load_state_dict_pre_hook": "_load_state_dict_pre_hooks",
    "load_state_dict_post_hook": "_load_state_dict_post_hooks",
}
TENSOR_TABLES = {"tensor_hook": "_backward_hooks", "post_accumulate_grad_hook": "_post_accumulate_grad_hooks"}
GLOBAL_TABLES = {
    "forward_pre_hook": "_global_forward_pre_hooks",
    "forward_hook": "_global_forward_hooks",
    "full_backward_pre_hook": "_global_backward_pre_hooks",
    "full_backward_hook": "_global_backward_hooks",
}


class Leftover(NamedTuple):
    """One registered hook: its owner, its kind and its function."""

    name: str
    kind: str
    function: str


def leftover_hooks(model: nn.Module) -> list[Leftover]:
    """List every hook that is registered on a model: on its modules, its parameters and its buffers.

    Args:
        model: any module.

    Returns:
        One ``(name, kind, function)`` per hook. ``name`` is the module's (``""`` for the model itself), or the
        parameter's. ``kind`` is what the method that registered it calls it, such as ``forward_pre_hook``;
        ``backward_hook`` is the old kind; for parameters and buffers ``tensor_hook`` or ``post_accumulate_grad_hook``.
        ``function`` is its qualified name, or the type of a callable object. Hooks for all modules of the process come
        last, under the name ``"(every module)"``. Hooks on outputs belong to those tensors and are not seen.

    Raises:
        TypeError: if ``model`` is not a module.

    Example:
        >>> from torch import nn
        >>> def show_shape(module, args, output): print(output.shape)
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> handle = model[1].register_forward_hook(show_shape)
        >>> leftover_hooks(model)
        [Leftover(name='1', kind='forward_hook', function='show_shape')]
        >>> handle.remove()
        >>> leftover_hooks(model)
        []
    """
    require_module(model)
    found: list[Leftover] = []
    seen: set[int] = set()  # a tied parameter has two names but one set of hooks
    for raw_name, module in all_modules(model):
        name = plain_name(model, raw_name)
        found += _registered(name, module, MODULE_TABLES, module._is_full_backward_hook)
        for own, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found += _registered(f"{name}.{own}" if name else own, tensor, TENSOR_TABLES)
    found += _registered("(every module)", global_hooks, GLOBAL_TABLES, global_hooks._global_is_full_backward_hook)
    return found


def _registered(name: str, owner: Any, tables: Mapping[str, str], is_full: bool | None = None) -> Iterator[Leftover]:
    for kind, attribute in tables.items():
        try:
            hooks = getattr(owner, attribute, None) or {}  # the tables of a tensor are None until there is a hook
        except Exception:  # a tensor of an odd subclass
            continue
        is_old = kind == "full_backward_hook" and is_full is False
        for hook in hooks.values():
            yield Leftover(name, "backward_hook" if is_old else kind, _function_name(hook))


def _function_name(hook: Any) -> str:
    if isinstance(hook, functools.partial):
        return _function_name(hook.func)
    if isinstance(hook, WrappedHook):
        return _function_name(hook.hook)
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))
