"""Checks of lesson 5, each in its own file: what a module's backward hooks are given, and what they can change."""

from __future__ import annotations

from hooklab.course.lesson05.check_both_sides import on_both_sides_of_a_layer
from hooklab.course.lesson05.check_brake import a_brake
from hooklab.course.lesson05.check_fuse import a_fuse
from hooklab.course.lesson05.check_outputs import gradients_at_any_output
from hooklab.course.lesson05.check_parameters import the_documents_hook_mended

__all__ = [
    "a_brake",
    "a_fuse",
    "gradients_at_any_output",
    "on_both_sides_of_a_layer",
    "the_documents_hook_mended",
]
