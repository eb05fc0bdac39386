"""What a call raises, as text."""

import warnings

from hooklab.course.errors import error_of


def raises(text):
    raise ValueError(text)


def test_an_error_is_told_by_its_type_and_first_line():
    assert error_of(raises, "this\nmore") == "ValueError: this"


def test_an_error_without_words_is_told_by_its_type():
    assert error_of(raises, "") == "ValueError: "


def test_a_call_that_raises_nothing_is_told_as_such_and_its_warnings_are_not():
    assert error_of(warnings.warn, "what does not matter here") == "no error"
