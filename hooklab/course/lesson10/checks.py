"""The checks of lesson 10: hooks on the graph, each in a file of its own."""

from hooklab.course.lesson10.check_bits import eight_bits
from hooklab.course.lesson10.check_checkpoint import a_checkpoint_from_two_functions
from hooklab.course.lesson10.check_nan import who_made_the_first_nan
from hooklab.course.lesson10.check_norm import the_norm_of_all_gradients
from hooklab.course.lesson10.check_step import a_step_inside_the_backward

__all__ = [
    "a_checkpoint_from_two_functions",
    "a_step_inside_the_backward",
    "eight_bits",
    "the_norm_of_all_gradients",
    "who_made_the_first_nan",
]
