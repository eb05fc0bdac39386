"""The private names of torch that the library uses, but for attributes of tensors and modules, which are looked at by
their own names. tests/test_torch_private.py lists all of them: what a new torch may take away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as global_hooks

__all__ = ["WrappedHook", "backward_number", "call_code", "global_hooks"]

# The number of the backward pass that this thread is in, or -1. torch.utils.module_tracker asks in the same way.
backward_number: Callable[[], int] = torch._C._current_graph_task_id


def saves_through_hooks() -> bool:
    """Whether saved-tensor hooks are active, as in a checkpoint; True if torch does not say."""
    return _top_hooks_of_saving(True) is not None


_top_hooks_of_saving: Callable[[bool], Any] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignores_tracing: True
)

# the function that runs a module's hooks and its forward
call_code: CodeType = nn.Module._call_impl.__code__

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
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if all(hasattr(frames, name) for name in ("_FrameAction", "_FrameExecStrategy", "set_code_exec_strategy")):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
