"""One JupyterLab and one browser for the tests of this folder, and a picture of the tab when one of them fails.

The browser belongs to the package and not to the session: Playwright keeps an event loop running for as long as it
lives, and other tests of the same process, the notebooks' among them, want one of their own.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.browser.chrome import NOT_FOUND, chromium, find_browser
from hooklab.course.browser.jupyter import Server, jupyterlab
from hooklab.course.browser.lab import LIGHT, Lab

ROOT = Path(__file__).parents[3]
FAILURES = Path(__file__).parent / "failures"  # git ignores it
PICTURES = "HOOKLAB_PICTURES"  # a folder for pictures of what the tests look at, whether they pass or not

# JupyterLab logs this as an error when a kernel ends before it has answered a request; nothing is wrong then.
NOT_OURS = "Canceled future for"

_LAB = pytest.StashKey[Lab]()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab on a copy of lessons/ and solutions/."""
    if find_browser() is None:
        pytest.skip(NOT_FOUND)
    folder = tmp_path_factory.mktemp("course")
    for name in ("lessons", "solutions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("source", ".ipynb_checkpoints"))
    with jupyterlab(folder, tmp_path_factory.mktemp("jupyter"), ROOT) as server:
        yield server


@pytest.fixture(scope="package")
def lab(server: Server, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A browser tab with that JupyterLab, the file browser folded away."""
    with chromium() as browser:
        lab = Lab.start(browser, server)
        lab.hide_sidebar()
        request.config.stash[_LAB] = lab
        yield lab
        del request.config.stash[_LAB]


@pytest.fixture(autouse=True)
def quiet_console(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test that uses the tab also fails for an error in the browser's console."""
    yield
    lab = request.config.stash.get(_LAB, None)
    if lab is not None:
        errors = [error for error in lab.errors if is_ours(error, f"{lab.server.url}static/lab/")]
        lab.errors.clear()
        assert not errors, f"the browser's console has errors: {errors}"


def is_ours(error: str, core: str) -> bool:
    """Return whether an error on the console may come from what the course shows.

    An exception that never left the files of JupyterLab's core does not; widgets have files of their own.
    """
    if NOT_OURS in error:
        return False
    files = re.findall(r"https?://[^\s)]+", error)
    return not error.startswith("uncaught") or not files or any(not file.startswith(core) for file in files)


@pytest.fixture
def theme(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """JupyterLab in the theme that the test is parametrised with (indirectly); afterwards in the light one again."""
    lab.set_theme(request.param)
    yield request.param
    lab.set_theme(LIGHT)


@pytest.fixture(scope="session")
def keep_picture() -> Callable[[Any, str], None]:
    """Save what a page or locator shows as `name`.png, if somebody asked for pictures with HOOKLAB_PICTURES=folder."""

    def keep(shown: Any, name: str) -> None:
        if folder := os.environ.get(PICTURES):
            shown.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")

    return keep


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Photograph the tab when a test fails, and say where the picture is."""
    report = yield
    lab = item.config.stash.get(_LAB, None)
    if report.failed and lab is not None and not lab.page.is_closed():
        path = FAILURES / (re.sub(r"\W+", "-", item.name).strip("-") + f"-{report.when}.png")
        lab.page.screenshot(path=path, animations="disabled")
        report.sections.append(("picture of the browser", str(path)))
    return report
