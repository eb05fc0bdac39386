"""Which copy of the course a command works on."""

from pathlib import Path

import pytest

import hooklab
from hooklab.course.root import find_root

OWN = Path(hooklab.__file__).resolve().parents[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ["hooklab/course", "lessons/deep"]:
        (tmp_path / "copy" / folder).mkdir(parents=True)
    return tmp_path / "copy"


@pytest.mark.parametrize("folder", [".", "lessons", "lessons/deep"])
def test_it_is_the_one_that_the_current_folder_lies_in(
    folder: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy / folder)
    assert find_root() == copy


def test_elsewhere_it_is_the_one_that_hooklab_lies_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_root() == OWN


@pytest.mark.parametrize("missing", ["lessons/deep", "hooklab/course"])
def test_a_folder_that_lacks_one_of_the_two_is_no_copy(
    missing: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / missing).rmdir()
    (copy / missing).parent.rename(copy / "elsewhere")
    monkeypatch.chdir(copy)
    assert find_root() == OWN
