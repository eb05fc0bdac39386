"""``hooklab.mini`` as a package: what it imports, and what it shows."""

import subprocess
import sys

import pytest

from hooklab import mini


def test_mini_imports_no_torch() -> None:
    code = "import sys, hooklab.mini; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", mini.__all__)
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>> " in getattr(mini, name).__doc__
