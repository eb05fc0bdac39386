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

# whose -> name -> what the library uses it for
NAMES: dict[str, dict[str, str]] = {
    "a tensor": {
        "_version": "capture, which notices that a value was changed in place after it was kept",
        "_is_view": "capture, which says why a view that was changed in place has no gradient",
        "_backward_hooks": "leftover_hooks",
        "_post_accumulate_grad_hooks": "leftover_hooks",
    },
    "a module": {
        "_modules": "select: names of parts, children that are None included",
        "_parameters": "leftover_hooks",
        "_buffers": "leftover_hooks",
        "_forward_pre_hooks": "leftover_hooks",
        "_forward_hooks": "leftover_hooks",
        "_backward_pre_hooks": "leftover_hooks",
        "_backward_hooks": "leftover_hooks",
        "_is_full_backward_hook": "leftover_hooks, which tells the old kind of backward hook from the full one",
        "_state_dict_pre_hooks": "leftover_hooks",
        "_state_dict_hooks": "leftover_hooks",
        "_load_state_dict_pre_hooks": "leftover_hooks",
        "_load_state_dict_post_hooks": "leftover_hooks",
        "_compiled_call_impl": "ManifoldMixup, which asks whether module.compile() was called",
        "_call_impl": "every block: it reads from the stack which modules are running",
    },
    "torch.nn.modules.module": {
        "_global_forward_pre_hooks": "leftover_hooks",
        "_global_forward_hooks": "leftover_hooks",
        "_global_backward_pre_hooks": "leftover_hooks",
        "_global_backward_hooks": "leftover_hooks",
        "_global_is_full_backward_hook": "leftover_hooks",
        "_WrappedHook": "leftover_hooks, which looks through torch's wrapper to the user's function",
    },
    "torch._C": {"_current_graph_task_id": "every hook: it asks whether a checkpoint computes its part again"},
    "torch._C._autograd": {
        "_top_saved_tensors_default_hooks": "ManifoldMixup and edit, which ask whether they are in a checkpoint"
    },
    "torch._C._dynamo.eval_frame": dict.fromkeys(
        ("_FrameAction", "_FrameExecStrategy", "set_code_exec_strategy"),
        "keeping torch.compile out of hooks when it runs for the first time inside a block",
    ),
}


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
        f"torch {torch.__version__} has no {name} in {owner}: that is for {use}."
        for owner, thing in _owners().items()
        for name, use in NAMES[owner].items()
        if not hasattr(thing, name)
    ]


def _needed(owner: Any, name: str) -> Any:
    if not hasattr(owner, name):
        raise ImportError("hooklab cannot work with this torch. " + " ".join(missing()))
    return getattr(owner, name)


# The number of the backward that this thread is in, or -1. torch.utils.module_tracker asks in the same way; a hook
# asks at every call, so it goes straight to the C function.
backward_number: Callable[[], int] = _needed(torch._C, "_current_graph_task_id")


def saves_through_hooks() -> bool:
    """Whether autograd keeps values through somebody's hooks now, as in a checkpoint; True if torch does not tell."""
    return _top_hooks_of_saving(True) is not None


_top_hooks_of_saving: Callable[[bool], Any] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignores_tracing: True
)

# The code of nn.Module.__call__'s heart.
call_code: CodeType = _needed(nn.Module, "_call_impl").__code__

# For isinstance, where an empty tuple stands for no class at all.
WrappedHook: Any = getattr(global_hooks, "_WrappedHook", ())


_note_of_compiling: Callable[[], Any] | None = None  # of torch's compiler, once something has imported it


def may_have_compiled() -> bool:
    """Whether torch.compile has been asked for anything in this process; True where this torch does not tell.

    Torch imports its compiler for other reasons, too, such as the first step of an optimizer. What torch.compile
    makes begins with a patch that is made once in a process, and torch keeps a note of it.
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
    """Keep torch.compile out of a function and of all that it calls.

    This is what torch.compiler.disable is for, but that imports torch._dynamo, which takes seconds. Where torch has
    lost the names for it, the mark remains, which counts where compiled code calls the function.

    Args:
        function: a Python function.
        why: what an error of the compiler says about it.
    """
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = why
    frames = _owners()["torch._C._dynamo.eval_frame"]
    if all(hasattr(frames, name) for name in NAMES["torch._C._dynamo.eval_frame"]):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
