"""Keeping ``torch.compile`` and hooks apart.

A compiled graph runs no hook that was registered after it was traced, and hooks like ours cannot be traced. So compiled
functions run eagerly while a block is open, and afterwards compiled again, as they were.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from hooklab._shared.torch_private import may_have_compiled

# torch.compile's stance belongs to the process, not to a session: two sessions in two threads may end in either
# order. So the stance is set when the first session opens and restored when the last one closes.
_stance_lock = threading.Lock()
_open_sessions = 0
_stance: Any = None


def run_eagerly() -> bool:
    """Let compiled functions run eagerly, for one session more; True if :func:`stop_running_eagerly` is to end that.

    Does nothing as long as nothing has been compiled.
    """
    if not may_have_compiled():
        return False
    global _stance, _open_sessions
    with _stance_lock:
        if _stance is None:
            try:
                _stance = torch.compiler.set_stance("force_eager")
            except RuntimeError as error:
                raise RuntimeError(
                    "this block stands inside a function that torch.compile compiles, where no hook can come or go: "
                    "compile the model or its stages, and leave the function with the block uncompiled"
                ) from error
        _open_sessions += 1
    return True


def stop_running_eagerly() -> None:
    """End what :func:`run_eagerly` began."""
    global _stance, _open_sessions
    with _stance_lock:
        _open_sessions -= 1
        if _open_sessions == 0 and _stance is not None:
            _stance.__exit__(None, None, None)
            _stance = None
