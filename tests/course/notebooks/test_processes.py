"""How many processes pytest uses, tried on a project of tests that tell where they run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = '[pytest]\ntestpaths = tests\naddopts = -p tests.course.notebooks.plugin\npythonpath = "{root}"\n'
TELLS = """
import os, pathlib
def test_tells():
    worker = os.environ.get("PYTEST_XDIST_WORKER", "none")
    pathlib.Path(__file__).with_suffix("." + os.environ["RUN"]).write_text(worker)
"""
FILES = ["lesson03/test_one.py", "lesson03/test_other.py", "test_it.py"]
RUNS = ["-p xdist", "-p xdist tests/test_it.py", "-p xdist -n0", "-p no:xdist"]
# Pytest's import takes most of the time of such a run: once is enough.
PROGRAM = f"""
import os, pytest
for number, run in enumerate({RUNS}):
    os.environ["RUN"] = str(number)
    assert pytest.main(run.split()) == 0
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which pytest was run."""
    project = tmp_path_factory.mktemp("project")
    for file in FILES:
        (project / "tests" / file).parent.mkdir(parents=True, exist_ok=True)
        (project / "tests" / file).write_text(TELLS, encoding="utf-8")
    (project / "pytest.ini").write_text(SETTINGS.format(root=ROOT), encoding="utf-8")
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=project,
        env=plain | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def workers(project: Path, run: str) -> list[str]:
    """Return which process ran each of the files that were run."""
    told = [(project / "tests" / file).with_suffix(f".{RUNS.index(run)}") for file in FILES]
    return [file.read_text(encoding="utf-8") for file in told if file.exists()]


@pytest.mark.parametrize("run", RUNS[1:])
def test_pytest_uses_one_process_when_told_what_to_run_or_how(project: Path, run: str) -> None:
    assert set(workers(project, run)) == {"none"}


def test_a_run_of_everything_uses_several_processes_and_one_for_the_files_of_a_lesson(project: Path) -> None:
    one, other, of_none = workers(project, RUNS[0])

    assert one == other
    assert {one, of_none} == ({"gw0"} if os.cpu_count() == 1 else {"gw0", "gw1"})
