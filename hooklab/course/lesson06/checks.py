"""Checks of lesson 6: what happens between `module(x)` and `module.forward(x)`, built by the reader."""

from hooklab.course.lesson06.check_calls import around_forward, both_ends, whatever_happens
from hooklab.course.lesson06.check_handle import a_handle
from hooklab.course.lesson06.check_trace import a_trace_of_all_calls

__all__ = ["a_handle", "a_trace_of_all_calls", "around_forward", "both_ends", "whatever_happens"]
