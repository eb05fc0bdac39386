"""What plain pytest notices in a notebook: run over notebooks made here, with the repository's own settings."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output, writes

ROOT = Path(__file__).parents[3]


def printing(source: str, text: str, count: int = 1) -> Any:
    return new_code_cell(source, execution_count=count, outputs=[new_output("stream", name="stdout", text=text)])


# Stands for torch, which takes seconds to import.
LEAVES_A_HOOK = (
    "import sys, types\n"
    "sys.modules['torch.nn.modules.module'] = types.SimpleNamespace(_global_forward_hooks={1: print})"
)
NOTEBOOKS = {
    "good": [
        printing("print(1 + 1)", "2\n"),
        printing("import os; print(os.environ.get('NBGRADER_EXECUTION'))", "None\n", count=2),
        printing("print('hooklab-test-' in os.environ['IPYTHONDIR'])", "True\n", count=3),
    ],
    "faulty": [
        printing("print(1 + 1)", "3\n"),
        new_code_cell(LEAVES_A_HOOK, execution_count=2),
    ],
}
# Only who builds the course has these.
PROGRAM = "import sys; sys.modules.update(playwright=None); import pytest; sys.exit(pytest.main())"
Outcomes = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run pytest over the notebooks, and return a function that gives a notebook's tests with their outcomes."""
    folder = tmp_path_factory.mktemp("notebooks")
    for name, cells in NOTEBOOKS.items():
        (folder / f"{name}.ipynb").write_text(writes(new_notebook(cells=cells)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBGRADER_EXECUTION", "autograde")
        command = [sys.executable, "-c", PROGRAM, "-c", str(ROOT / "pyproject.toml"), "-rA", "--tb=no", "--color=no"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", str(folder)], capture_output=True, text=True, cwd=folder
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))]
    assert lines, done.stdout + done.stderr

    def of(name: str) -> dict[str, str]:
        tests = {}
        for line in lines:
            outcome, _, rest = line.partition(" ")
            path, _, test = rest.partition("::")
            if Path(path).stem == name:
                tests[test.split(" - ")[0]] = outcome
        return tests

    return of


def test_a_notebook_as_it_was_stored_passes_with_the_packages_of_a_learner(outcomes: Outcomes) -> None:
    assert outcomes("good") == {
        "Cell 0": "PASSED",
        "Cell 1": "PASSED",  # the kernel sees no grader
        "Cell 2": "PASSED",  # and nothing personal
        "no global hook is left behind": "PASSED",
    }


def test_a_changed_output_fails(outcomes: Outcomes) -> None:
    assert outcomes("faulty")["Cell 0"] == "FAILED"


def test_a_global_hook_left_behind_fails(outcomes: Outcomes) -> None:
    assert outcomes("faulty")["Cell 1"] == "PASSED"
    assert outcomes("faulty")["no global hook is left behind"] == "FAILED"
