"""Ten wrong changes of mini that are easy to make: the surprises notice each, and so do the random programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("by", [["--programs", "0"], ["--no-pytest"]], ids=["surprises", "random programs"])
def test_each_of_ten_wrong_changes_is_noticed(by: list[str]) -> None:
    command = [sys.executable, "-m", "tests.mutants", "named", *by]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "named: 10 of 10 killed (0 of them by the clock)" in done.stdout, done.stdout
