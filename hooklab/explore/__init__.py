"""Explorers: small interactive figures for the lessons. Each is a thin layer over a function that returns data.

    from hooklab import explore
    explore.backward_steps()

The functions behind them (`record_backward` and the like) are in the modules of this package and need no widgets.
"""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hooklab.explore.backward import backward_steps as backward_steps
    from hooklab.explore.backward import describe_step as describe_step
    from hooklab.explore.backward import draw_step as draw_step
    from hooklab.explore.backward import record_backward as record_backward
    from hooklab.explore.order import call_order as call_order
    from hooklab.explore.order import describe_order as describe_order
    from hooklab.explore.order import draw_order as draw_order
    from hooklab.explore.order import record_order as record_order

_HOME = {
    "backward_steps": "hooklab.explore.backward",
    "describe_step": "hooklab.explore.backward",
    "draw_step": "hooklab.explore.backward",
    "record_backward": "hooklab.explore.backward",
    "describe_order": "hooklab.explore.order",
    "draw_order": "hooklab.explore.order",
    "call_order": "hooklab.explore.order",
    "record_order": "hooklab.explore.order",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hooklab.explore' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
