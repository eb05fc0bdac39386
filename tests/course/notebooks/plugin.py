"""What pytest needs beyond nbval to test the course's notebooks; pyproject.toml loads it, wherever pytest is started.

- Kernels get the environment that the builder gives them; where there are many, they are forked, see `forked`.
- Each notebook gets two more tests: nbval passes over a code cell that was never run, and looks at cells only, so that
  a hook left behind for the whole process would go unseen.
- Plain `pytest` uses two processes. Each takes one lesson at a time, its tests and both notebooks, and then one file at
  a time. A path, `-n`, `--pdb` or `-p no:xdist` turns it off.
- What a notebook or a test has trained is kept for the others of the same run, see `hooklab.course.kept`.
- HOOKLAB_ELSEWHERE imitates another processor, see `elsewhere`.
- Where Python may not write its compiled modules beside the sources, they lie in the course's cache.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hooklab.course import kept
from hooklab.course.kernels import LEFT_BEHIND, environment, prepare_fonts, skip_url_grammars
from hooklab.course.launcher.programs import keep_bytecode

ROOT = Path(__file__).parents[3]

skip_url_grammars()
if sys.dont_write_bytecode:
    keep_bytecode(ROOT, os.environ)
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = sys.pycache_prefix is None

# Of the kernels: no history, and figures drawn once, not a first time to find out where their margins are.
SETTINGS = """\
c.HistoryManager.enabled = False
c.InlineBackend.print_figure_kwargs = {"bbox_inches": None}
"""
ELSEWHERE = "HOOKLAB_ELSEWHERE"  # what `elsewhere` looks for in the kernels, which import it with torch
SECONDS_FOR_AN_ANSWER = 60
LESSON = re.compile(r"(?:lesson|lessons/|solutions/)(\d\d)")  # in the path of a notebook, of a test, of a module
NOTEBOOKS_TO_FORK = 4


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Use two processes for a run of everything; in a wrapper, so that xdist sees the options afterwards."""
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    distributable = config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput")
    if everything and distributable and config.option.numprocesses is None and not config.option.usepdb:
        config.option.numprocesses = min(2, os.cpu_count() or 1)
        config.option.dist = "loadfile"
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files by lesson: two processes that are at one lesson at once would both train what the other trains.

    xdist hands out first what has most tests. That is the lessons, which take longest, so none of them comes last.
    """
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # not above: a learner has no xdist

    class ByLesson(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            lesson = LESSON.search(file)
            return lesson[1] if lesson else file

    return ByLesson(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Say what kernels and other processes have from the beginning; make the folder of what this run trains."""
    if not (os.environ.get(ELSEWHERE) or "1").isdecimal():
        raise pytest.UsageError(f"{ELSEWHERE} is the number of a processor to imitate, such as 1")
    multiprocessing.set_forkserver_preload(["tests.course.notebooks.preloaded"])
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="hooklab-kept-")
        config.add_cleanup(folder.cleanup)
        os.environ[kept.FOLDER] = folder.name


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say so where another processor was imitated: a run that passes looks like any other."""
    if number := os.environ.get(ELSEWHERE):
        what = (
            f"The notebooks ran as on another processor, number {number}: printed text and asserts were held against it"
        )
        terminalreporter.write_line(f"{what}, pictures are never compared.")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take away what was compiled of the modules that tests have written for themselves."""
    if sys.pycache_prefix and not hasattr(config, "workerinput"):
        temporary = Path(sys.pycache_prefix, *Path(tempfile.gettempdir()).resolve().parts[1:])
        for folder in temporary.glob("pytest-of-*"):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    """Add a notebook's own tests to those of its cells."""
    report = yield
    if _is_notebook(collector) and report.passed:
        report.result = [
            EveryCellRan.from_parent(collector, name="every code cell was run"),
            *report.result,
            NoHookLeft.from_parent(collector, name="no global hook is left behind"),
        ]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Start a notebook's kernel, which the set-up of its first test does, in the course's environment."""
    if not _is_notebook(item.parent):
        return (yield)
    prepare_fonts()
    with mock.patch.dict(os.environ, environment(ROOT, _scratch(item.config)), clear=True), launching(item.session):
        return (yield)


class EveryCellRan(pytest.Item):
    """Fails for a notebook with a code cell that was not run in its turn: nothing would be compared there."""

    def runtest(self) -> None:
        from hooklab.course.build.running import unrun  # not above: it takes time, and most runs need no notebook

        found = [f"cell {index}: {what}" for index, what in unrun(self.parent.nb.cells)]
        assert not found, "; ".join(found)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        return str(excinfo.value)


class NoHookLeft(EveryCellRan):
    """Fails when, after the last cell, torch's process-wide hook tables are not empty."""

    def runtest(self) -> None:
        client = self.parent.kernel.kc
        asked = client.execute("", silent=True, user_expressions={"left": LEFT_BEHIND})
        answer: dict[str, Any] = {"parent_header": {}}
        while answer["parent_header"].get("msg_id") != asked:
            answer = client.get_shell_msg(timeout=SECONDS_FOR_AN_ANSWER)
        left = ast.literal_eval(answer["content"]["user_expressions"]["left"]["data"]["text/plain"])
        assert not left, f"the notebook leaves global hooks behind: {', '.join(left)}"


def _is_notebook(node: pytest.Collector | pytest.Item | None) -> bool:
    from nbval.plugin import IPyNbFile  # not above: pytest wants to import its plugins itself

    return isinstance(node, IPyNbFile)


def launching(session: pytest.Session) -> AbstractContextManager[object]:
    """Return a context in which kernels are forked, if there are enough notebooks to make up for loading torch once."""
    from tests.course.notebooks.forked import forking

    notebooks = sum(isinstance(item, NoHookLeft) for item in session.items)
    enough = notebooks >= NOTEBOOKS_TO_FORK or bool(os.environ.get(ELSEWHERE))  # which forked kernels look at
    return forking() if enough else nullcontext()


_SCRATCH = pytest.StashKey[Path]()


def _scratch(config: pytest.Config) -> Path:
    """Return this process's folder for the files that kernels write; it goes at the end of the run."""
    if _SCRATCH not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="hooklab-test-")
        config.add_cleanup(folder.cleanup)
        config.stash[_SCRATCH] = Path(folder.name)
        settings = Path(folder.name) / "ipython" / "profile_default" / "ipython_config.py"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS, encoding="utf-8")
    return config.stash[_SCRATCH]
