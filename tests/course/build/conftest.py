import shutil
from pathlib import Path

import pytest

from hooklab.course.build import main
from tests.course.build.made_up import make_course


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("course")
    make_course(root)
    assert main([], root) == 0
    return root


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A course of one tiny lesson, built; a copy of its own for each test."""
    return shutil.copytree(built_once, tmp_path / "course")
