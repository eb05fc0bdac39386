"""How many processes pytest uses, tried on a project of one test that tells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = '[pytest]\ntestpaths = tests\naddopts = -p tests.course.notebooks.plugin\npythonpath = "{root}"\n'
TELLS = "import os, pathlib\ndef test_tells():\n    pathlib.Path(__file__).with_suffix('.told').write_text({worker})\n"
TELLS = TELLS.format(worker="os.environ.get('PYTEST_XDIST_WORKER', 'none')")


def told(project: Path, arguments: list[str], files: list[str]) -> list[str]:
    """Make a project of these files and run pytest in it; return which process ran each of them."""
    for file in files:
        (project / "tests" / file).parent.mkdir(parents=True, exist_ok=True)
        (project / "tests" / file).write_text(TELLS, encoding="utf-8")
    (project / "pytest.ini").write_text(SETTINGS.format(root=ROOT), encoding="utf-8")
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    plugins = [] if "no:xdist" in arguments else ["-p", "xdist"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments],
        cwd=project,
        env=plain | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    return [(project / "tests" / file).with_suffix(".told").read_text(encoding="utf-8") for file in files]


@pytest.mark.parametrize("arguments", [["tests/test_it.py"], ["-n0"], ["-p", "no:xdist"]], ids=" ".join)
def test_pytest_uses_one_process_when_told_what_to_run_or_how(tmp_path: Path, arguments: list[str]) -> None:
    assert told(tmp_path, arguments, ["test_it.py"]) == ["none"]


def test_a_run_of_everything_uses_several_processes_and_one_for_the_files_of_a_lesson(tmp_path: Path) -> None:
    one, other, of_none = told(tmp_path, [], ["lesson03/test_one.py", "lesson03/test_other.py", "test_of_none.py"])

    assert one == other
    assert {one, of_none} == ({"gw0"} if os.cpu_count() == 1 else {"gw0", "gw1"})
