"""What pytest needs beyond nbval to test the course's notebooks; pyproject.toml loads it, wherever pytest is started.

- Kernels get the environment that the builder gives them.
- A notebook gets one more test: nbval looks at cells only, so that a hook left behind for the whole process would go
  unseen. (That every cell was run is seen without running it, see `test_structure`.)
- `pytest -n 2` gives a process whole files: a notebook is a file, and its cells share one kernel.
"""

import ast
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from hooklab.course.kernels import LEFT_BEHIND, environment, prepare_fonts

ROOT = Path(__file__).parents[3]
SECONDS_FOR_AN_ANSWER = 60


def pytest_configure(config: pytest.Config) -> None:
    prepare_fonts()
    scratch = tempfile.TemporaryDirectory(prefix="hooklab-test-")
    config.add_cleanup(scratch.cleanup)
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    wanted = environment(ROOT, Path(scratch.name))
    for name in set(os.environ) - set(wanted):
        patch.delenv(name)
    for name, value in wanted.items():
        patch.setenv(name, value)


@pytest.hookimpl(optionalhook=True)  # a learner has no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    report = yield
    if collector.path.suffix == ".ipynb" and isinstance(collector, pytest.File) and report.passed:
        report.result.append(NoHookLeft.from_parent(collector, name="no global hook is left behind"))
    return report


class NoHookLeft(pytest.Item):
    """Fails when, after the last cell, torch's process-wide hook tables are not empty."""

    def runtest(self) -> None:
        client = self.parent.kernel.kc
        asked = client.execute("", silent=True, user_expressions={"left": LEFT_BEHIND})
        answer: dict[str, Any] = {"parent_header": {}}
        while answer["parent_header"].get("msg_id") != asked:
            answer = client.get_shell_msg(timeout=SECONDS_FOR_AN_ANSWER)
        left = ast.literal_eval(answer["content"]["user_expressions"]["left"]["data"]["text/plain"])
        assert not left, f"the notebook leaves global hooks behind: {', '.join(left)}"

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        return str(excinfo.value)
