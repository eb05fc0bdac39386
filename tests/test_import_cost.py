"""`import hooklab` is free: nothing else is loaded until a name is used."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def _python(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_importing_hooklab_loads_neither_torch_nor_a_module_of_its_own() -> None:
    program = """
        import sys
        before = set(sys.modules)
        import hooklab
        dir(hooklab), hooklab.__version__, hooklab.__all__
        print(*sorted(set(sys.modules) - before - {"importlib", "importlib._bootstrap", "_frozen_importlib"}))
    """
    loaded = _python(program).split()
    assert "hooklab" in loaded
    assert [name for name in loaded if name.startswith(("torch", "numpy", "hooklab."))] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    program = """
        import hooklab
        try:
            hooklab.captur
        except AttributeError as error:
            print(error)
    """
    assert _python(program) == "module 'hooklab' has no attribute 'captur'"
