"""What ``pip install`` of the library brings: the library, and not the course."""

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
    library = [path.relative_to(ROOT) for path in ROOT.glob("hooklab/**/*.py") if "course" not in path.parts]
    library.append(Path("hooklab/py.typed"))
    files = [path.relative_to(installed) for path in installed.glob("hooklab/**/*.*")]
    assert sorted(files) == sorted(library)


def test_every_name_that_the_library_lists_can_be_used(installed: Path) -> None:
    used = python(installed, "-c", "import hooklab; from hooklab import *; print(hooklab.__file__, hooklab.capture)")
    assert used.stdout.startswith(f"{installed}{os.sep}hooklab"), used.stderr


@pytest.mark.parametrize(
    "arguments",
    [["-m", "hooklab", "lab"], ["-c", "import hooklab; hooklab.check"], ["-c", "from hooklab import check"]],
)
def test_the_course_is_said_to_stand_in_the_repository(arguments: list[str], installed: Path) -> None:
    asked = python(installed, *arguments)
    assert asked.returncode != 0
    assert asked.stderr.endswith(
        "this is the library alone; the course stands in its repository: work in a copy of that\n"
    )
    assert "ModuleNotFoundError" not in asked.stderr


def test_torch_alone_is_needed(installed: Path) -> None:
    metadata = next(installed.glob("hooklab-*.dist-info/METADATA")).read_text(encoding="utf-8")
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert [re.split("[<>=]", line.split()[1])[0] for line in needed] == ["torch"]
    blocked = (
        "import sys; sys.modules['numpy'] = None; import hooklab; [getattr(hooklab, name) for name in hooklab.__all__]"
    )
    done = python(installed, "-c", blocked)
    assert done.returncode == 0, done.stderr
