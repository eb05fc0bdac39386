"""Every private name of torch that the library uses, in one place: what a new torch may take away.

:func:`missing` says which of them this torch lacks. Those that are looked at in every forward (a tensor's ``_version``,
a module's ``_modules``) are used by their own names, and listed here all the same. Not listed is what
:func:`may_have_compiled` asks, since only the compiler's import, which takes seconds, brings it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as global_hooks

__all__ = ["NAMES", "WrappedHook", "backward_number", "call_code", "global_hooks", "missing"]

# whose, and the names
NAMES: dict[str, list[str]] = {
    "a tensor": ["_version", "_is_view", "_backward_hooks", "_post_accumulate_grad_hooks"],
    "a module": [
        "_modules", "_parameters", "_buffers", "_call_impl", "_compiled_call_impl", "_is_full_backward_hook",
        "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_state_dict_pre_hooks",
        "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    ],
    "torch.nn.modules.module": [
        "_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks",
        "_global_is_full_backward_hook", "_WrappedHook",
    ],
    "torch._C": ["_current_graph_task_id"],
    "torch._C._autograd": ["_top_saved_tensors_default_hooks"],
    "torch._C._dynamo.eval_frame": ["_FrameAction", "_FrameExecStrategy", "set_code_exec_strategy"],
}  # fmt: skip


def _owners() -> dict[str, Any]:
    dynamo = getattr(torch._C, "_dynamo", None)
    return {
        "a tensor": torch.ones(1),
        "a module": nn.Module(),
        "torch.nn.modules.module": global_hooks,
        "torch._C": torch._C,
        "torch._C._autograd": torch._C._autograd,
        "torch._C._dynamo.eval_frame": getattr(dynamo, "eval_frame", None),
    }


def missing() -> list[str]:
    """Return what this torch lacks, each as a sentence; an empty list if nothing."""
    return [
        f"torch {torch.__version__} has no {name} in {owner}."
        for owner, thing in _owners().items()
        for name in NAMES[owner]
        if not hasattr(thing, name)
    ]


def _needed(owner: Any, name: str) -> Any:
    if not hasattr(owner, name):
        raise ImportError("hooklab cannot work with this torch. " + " ".join(missing()))
    return getattr(owner, name)


# The number of the backward pass that this thread is in, or -1. torch.utils.module_tracker asks in the same way.
backward_number: Callable[[], int] = _needed(torch._C, "_current_graph_task_id")


def saves_through_hooks() -> bool:
    """Whether saved-tensor hooks are active, as in a checkpoint; True if torch does not say."""
    return _top_hooks_of_saving(True) is not None


_top_hooks_of_saving: Callable[[bool], Any] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignores_tracing: True
)

# the function that runs a module's hooks and its forward
call_code: CodeType = _needed(nn.Module, "_call_impl").__code__

# For isinstance, where an empty tuple stands for no class at all.
WrappedHook: Any = getattr(global_hooks, "_WrappedHook", ())


_note_of_compiling: Callable[[], Any] | None = None  # of torch's compiler, once something has imported it


def may_have_compiled() -> bool:
    """Whether torch.compile was used in this process; True where this torch does not say.

    Torch imports its compiler for other reasons too, such as the first step of an optimizer. The first compilation
    applies a patch, which torch remembers.
    """
    global _note_of_compiling
    if _note_of_compiling is None:
        compiler = sys.modules.get("torch._dynamo.eval_frame")
        if compiler is None:
            return False
        try:
            _note_of_compiling = compiler.TorchPatcher.patch.cache_info
        except AttributeError:
            return True
    return bool(_note_of_compiling().currsize)


def skip_when_compiling(function: Any, why: str) -> None:
    """Keep torch.compile out of a Python function and of all that it calls; the compiler's error says ``why``.

    ``torch.compiler.disable`` does this too, but imports torch._dynamo, which takes seconds. Where torch has lost the
    names for it, the mark remains, which counts where compiled code calls the function.
    """
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = why
    frames = _owners()["torch._C._dynamo.eval_frame"]
    if all(hasattr(frames, name) for name in NAMES["torch._C._dynamo.eval_frame"]):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
