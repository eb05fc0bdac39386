"""What ``pip install`` of the library brings: the library, and not the course."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import setuptools.build_meta as backend; backend.build_wheel('out')"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the files of the wheel, and nothing else."""
    copy, files = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "hooklab", copy / "hooklab", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ["pyproject.toml", "README.md"]:
        shutil.copy(ROOT / name, copy)
    subprocess.run([sys.executable, "-c", BUILD], cwd=copy, check=True, capture_output=True)
    (wheel,) = (copy / "out").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(files)
    return files


def python(installed: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=installed, env=environment, capture_output=True, encoding="utf-8"
    )


def test_the_wheel_holds_every_module_of_the_library_and_none_of_the_course(installed: Path) -> None:
    modules = [path.relative_to(ROOT) for path in ROOT.glob("hooklab/**/*.py")]
    library = [path for path in modules if not path.is_relative_to("hooklab/course")] + [Path("hooklab/py.typed")]
    files = [path.relative_to(installed) for path in installed.glob("hooklab/**/*.*")]
    assert sorted(files) == sorted(library)


USE = """
import json, sys, torch, hooklab
from hooklab import *
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
with capture(model, grads=True) as seen, monitor(model) as health:
    model(torch.ones(1, 2)).sum().backward()
print(json.dumps([hooklab.__file__, len(seen), len(health.rows), len(leftover_hooks(model)), Without.asked]))
"""
# Nobody can import what the library does without, and who tries is found out; torch tries numpy, and gets along.
WITHOUT = """
import sys
class Without:
    asked = []
    def find_spec(self, name, *_):
        if name in {"numpy", "matplotlib", "pandas", "IPython"}:
            self.asked.append(name)
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
"""


def test_every_name_can_be_used_where_torch_alone_is_installed(installed: Path) -> None:
    used = python(installed, "-W", "ignore", "-c", WITHOUT + USE)
    assert used.returncode == 0, used.stderr
    file, outputs, rows, left, asked = json.loads(used.stdout)
    assert file.startswith(f"{installed}{os.sep}hooklab")
    assert (outputs, rows, left) == (2, 2, 0)
    assert set(asked) <= {"numpy"}  # so no import of ours asks for matplotlib or pandas where they are installed


@pytest.mark.parametrize(
    "arguments",
    [["-m", "hooklab", "lab"], ["-c", "import hooklab; hooklab.check"], ["-c", "from hooklab import check"]],
)
def test_the_message_says_that_the_course_is_in_the_repository(arguments: list[str], installed: Path) -> None:
    asked = python(installed, *arguments)
    assert asked.returncode != 0
    assert asked.stderr.endswith("this is the library alone; to use the course, work in a copy of its repository\n")
    assert "ModuleNotFoundError" not in asked.stderr


def test_torch_alone_is_asked_for(installed: Path) -> None:
    metadata = next(installed.glob("hooklab-*.dist-info/METADATA")).read_text(encoding="utf-8")
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert [re.split("[<>=]", line.split()[1])[0] for line in needed] == ["torch"]
