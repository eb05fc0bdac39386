"""`import hooklab` is free: nothing else is loaded until a name is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hooklab

PROGRAM = """
import sys
before = set(sys.modules)
import hooklab
dir(hooklab), hooklab.__version__, hooklab.__all__
print(*set(sys.modules) - before)
"""


def test_importing_hooklab_loads_neither_torch_nor_a_module_of_its_own() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    loaded = run.stdout.split()
    assert "hooklab" in loaded
    assert [name for name in loaded if name.startswith(("torch", "numpy", "hooklab."))] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hooklab' has no attribute 'captur'"):
        hooklab.captur
