"""Checks of lesson 11, each in its own file."""

from __future__ import annotations

from hooklab.course.lesson11.check_carried import what_a_model_carries
from hooklab.course.lesson11.check_compiled import a_hook_that_the_compiler_sees
from hooklab.course.lesson11.check_everybody import the_gradient_of_everybody
from hooklab.course.lesson11.check_layout import two_layers_become_one
from hooklab.course.lesson11.check_memory import a_memory_for_any_compression

__all__ = [
    "a_hook_that_the_compiler_sees",
    "a_memory_for_any_compression",
    "the_gradient_of_everybody",
    "two_layers_become_one",
    "what_a_model_carries",
]
