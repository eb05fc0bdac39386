"""How many processes pytest uses, tried on a project of one test that tells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = '[pytest]\ntestpaths = tests\naddopts = -p tests.course.notebooks.plugin\npythonpath = "{root}"\n'
TELLS = "import os\ndef test_tells():\n    open('told.txt', 'w').write(os.environ.get('PYTEST_XDIST_WORKER', 'none'))\n"


@pytest.mark.parametrize(
    ("arguments", "worker"),
    [
        ([], "gw"),
        (["tests/test_it.py"], "none"),
        (["-n0"], "none"),
        (["-p", "no:xdist"], "none"),
    ],
    ids=" ".join,
)
def test_a_run_of_everything_uses_several_processes_unless_told_otherwise(
    tmp_path: Path, arguments: list[str], worker: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TELLS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(SETTINGS.format(root=ROOT), encoding="utf-8")
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    plugins = [] if "no:xdist" in arguments else ["-p", "xdist"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments],
        cwd=tmp_path,
        env=plain | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "told.txt").read_text(encoding="utf-8").startswith(worker)
