"""Checks of lesson 9, each in its own file: maps, heads, patches, and what is lost when something is switched off."""

from __future__ import annotations

from hooklab.course.lesson09.check_ablation import what_each_channel_is_worth
from hooklab.course.lesson09.check_cam import a_map_by_hand
from hooklab.course.lesson09.check_guided import guided_backprop_mended
from hooklab.course.lesson09.check_heads import induction_score_of_every_head
from hooklab.course.lesson09.check_patching import patch_it

__all__ = [
    "a_map_by_hand",
    "guided_backprop_mended",
    "induction_score_of_every_head",
    "patch_it",
    "what_each_channel_is_worth",
]
