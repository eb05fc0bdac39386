"""What the other tests rely on: which errors on the console count, and which texts are too faint to be read."""

from __future__ import annotations

import pytest

from hooklab.course.browser.lab import Lab
from tests.course.browser.conftest import is_ours
from tests.course.browser.contrast import too_faint

CORE = "http://127.0.0.1:8888/static/lab/"
IN_CORE = f"    at Poll.poll ({CORE}1234.abcd.js:1:2)\n    at Poll.tick ({CORE}jlab_core.0123.js:1:4567)"
IN_WIDGET = "    at Image.update (http://127.0.0.1:8888/lab/extensions/@jupyter-widgets/jupyterlab-manager/9.js:1:2)"
CLEAR, FAINT = "#333", "#aaa"
PAGE = """<div id="box" style="background: white"></div><script>
    setTimeout(() => document.getElementById("box").innerHTML = "<p style='color: {0}'>first</p>", 300);
    setTimeout(() => document.getElementById("box").innerHTML += "<p style='color: {1}'>second</p>", 450);
</script>"""


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        ("Failed to load resource: the server responded with a status of 404 (http://127.0.0.1:8888/no.png)", True),
        (f"uncaught: TypeError: no picture\n{IN_CORE}\n{IN_WIDGET}", True),
        ("uncaught: nobody knows where", True),
        (f"uncaught: TypeError: undefined is not a function\n{IN_CORE}", False),
        ("Could not restore the debugger state: Canceled future for debug_request message", False),
    ],
)
def test_an_error_on_the_console_counts_unless_it_is_jupyterlabs_own(error: str, counts: bool) -> None:
    assert is_ours(error, CORE) is counts


@pytest.mark.parametrize(
    ("colours", "faint"), [((CLEAR, FAINT), ["second"]), ((FAINT, CLEAR), ["first"]), ((CLEAR, CLEAR), [])]
)
def test_faint_texts_are_found_however_late_they_come(lab: Lab, colours: tuple[str, str], faint: list[str]) -> None:
    page = lab.page.context.new_page()
    page.set_content(PAGE.format(*colours))
    assert list(too_faint(page.locator("#box"))) == faint
    page.close()
