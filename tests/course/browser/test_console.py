"""Which errors on the browser's console make a test fail."""

from __future__ import annotations

import pytest

from tests.course.browser.conftest import is_ours

CORE = "http://127.0.0.1:8888/static/lab/"
IN_CORE = f"    at Poll.poll ({CORE}1234.abcd.js:1:2)\n    at Poll.tick ({CORE}jlab_core.0123.js:1:4567)"
IN_WIDGET = "    at Image.update (http://127.0.0.1:8888/lab/extensions/@jupyter-widgets/jupyterlab-manager/9.js:1:2)"


@pytest.mark.parametrize(
    "error",
    [
        "Failed to load resource: the server responded with a status of 404 (http://127.0.0.1:8888/nowhere.png)",
        f"uncaught: TypeError: no picture\n{IN_WIDGET}",
        f"uncaught: TypeError: no picture\n{IN_CORE}\n{IN_WIDGET}",
        "uncaught: nobody knows where",
        "the tab has crashed",
    ],
)
def test_an_error_that_the_course_may_have_caused_counts(error: str) -> None:
    assert is_ours(error, CORE)


@pytest.mark.parametrize(
    "error",
    [
        f"uncaught: TypeError: undefined is not a function\n{IN_CORE}",
        "Could not restore the debugger state: Canceled future for debug_request message",
    ],
)
def test_an_error_of_jupyterlabs_own_does_not(error: str) -> None:
    assert not is_ours(error, CORE)
