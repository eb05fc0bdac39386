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
    from hooklab.explore.comparing import compare as compare
    from hooklab.explore.comparing import describe_comparison as describe_comparison
    from hooklab.explore.comparing import draw_comparison as draw_comparison
    from hooklab.explore.comparing import what_comes_back as what_comes_back
    from hooklab.explore.features import describe_maps as describe_maps
    from hooklab.explore.features import draw_maps as draw_maps
    from hooklab.explore.features import feature_maps as feature_maps
    from hooklab.explore.features import kept_maps as kept_maps
    from hooklab.explore.mixtures import describe_mixture as describe_mixture
    from hooklab.explore.mixtures import draw_mixture as draw_mixture
    from hooklab.explore.mixtures import mix as mix
    from hooklab.explore.mixtures import mixing as mixing
    from hooklab.explore.order import call_order as call_order
    from hooklab.explore.order import describe_order as describe_order
    from hooklab.explore.order import draw_order as draw_order
    from hooklab.explore.order import record_order as record_order

_HOME = {
    "backward_steps": "hooklab.explore.backward",
    "describe_step": "hooklab.explore.backward",
    "draw_step": "hooklab.explore.backward",
    "record_backward": "hooklab.explore.backward",
    "compare": "hooklab.explore.comparing",
    "describe_comparison": "hooklab.explore.comparing",
    "draw_comparison": "hooklab.explore.comparing",
    "what_comes_back": "hooklab.explore.comparing",
    "describe_maps": "hooklab.explore.features",
    "draw_maps": "hooklab.explore.features",
    "feature_maps": "hooklab.explore.features",
    "kept_maps": "hooklab.explore.features",
    "describe_mixture": "hooklab.explore.mixtures",
    "draw_mixture": "hooklab.explore.mixtures",
    "mix": "hooklab.explore.mixtures",
    "mixing": "hooklab.explore.mixtures",
    "call_order": "hooklab.explore.order",
    "describe_order": "hooklab.explore.order",
    "draw_order": "hooklab.explore.order",
    "record_order": "hooklab.explore.order",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hooklab.explore' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
