"""Every private name of torch that the library uses, in one place: what a new torch may take away.

``missing()`` says which of them this torch lacks. What is used on the way of a forward (a tensor's ``_version``, a
module's ``_modules``) is used by its own name, and listed here all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.jit._script import RecursiveScriptModule as ScriptModule
from torch.nn.modules import module as global_hooks

__all__ = ["ATTRIBUTES", "ScriptModule", "WrappedHook", "backward_number", "call_code", "global_hooks", "missing"]

# whose -> attribute -> what the library uses it for
ATTRIBUTES: dict[str, dict[str, str]] = {
    "a tensor": {
        "_version": "capture: notices that a value was changed in place after it was kept",
        "_is_view": "capture: says why a view that was changed in place has no gradient",
        "_backward_hooks": "leftover_hooks",
        "_post_accumulate_grad_hooks": "leftover_hooks",
    },
    "a module": {
        "_modules": "select: names of parts, children that are None included",
        "_parameters": "leftover_hooks",
        "_buffers": "leftover_hooks",
        "_forward_pre_hooks": "a session sweeps its own hooks after an interrupt; leftover_hooks",
        "_forward_hooks": "a session sweeps its own hooks after an interrupt; leftover_hooks",
        "_backward_pre_hooks": "leftover_hooks",
        "_backward_hooks": "leftover_hooks",
        "_is_full_backward_hook": "leftover_hooks: tells the legacy backward hook from the full one",
        "_state_dict_pre_hooks": "leftover_hooks",
        "_state_dict_hooks": "leftover_hooks",
        "_load_state_dict_pre_hooks": "leftover_hooks",
        "_load_state_dict_post_hooks": "leftover_hooks",
        "_compiled_call_impl": "ManifoldMixup: whether module.compile() was called",
    },
    "torch.nn.modules.module": {
        "_global_forward_pre_hooks": "leftover_hooks",
        "_global_forward_hooks": "leftover_hooks",
        "_global_backward_pre_hooks": "leftover_hooks",
        "_global_backward_hooks": "leftover_hooks",
        "_global_is_full_backward_hook": "leftover_hooks",
        "_WrappedHook": "leftover_hooks: looks through torch's wrapper to the user's function",
    },
}

# The number of the backward that this thread is in, or -1. torch.utils.module_tracker asks in the same way; a hook
# asks at every call, so it goes straight to the C function.
backward_number: Callable[[], int] = torch._C._current_graph_task_id

# The code of nn.Module.__call__'s heart: a session reads from the stack which modules are running.
call_code = nn.Module._call_impl.__code__

WrappedHook: Any = global_hooks._WrappedHook  # around hooks for load_state_dict


def skip_when_compiling(function: Any, why: str) -> None:
    """Keep torch.compile out of a function and of all that it calls.

    This is what torch.compiler.disable is for, but that imports torch._dynamo, which takes seconds.

    Args:
        function: a Python function.
        why: what an error of the compiler says about it.
    """
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = why
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def missing() -> list[str]:
    """Return what this torch lacks, each as a sentence; an empty list if nothing."""
    owners = {"a tensor": torch.ones(1), "a module": nn.Linear(1, 1), "torch.nn.modules.module": global_hooks}
    return [
        f"torch {torch.__version__} has no {name} on {owner}, which is for {use}"
        for owner, names in ATTRIBUTES.items()
        for name, use in names.items()
        if not hasattr(owners[owner], name)
    ]
