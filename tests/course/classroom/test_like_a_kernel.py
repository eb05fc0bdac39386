"""The grader says what a real kernel says: the same verdict with the same words, for notebooks of many odd kinds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from hooklab.course.classroom.running import steady
from tests.course.classroom.conftest import Grade
from tests.course.classroom.made_up import CHECK, RIGHT, SETUP, STUB, code, notebook, write

WRONG, IN_PLACE = "def twice_as_large(x):\n    return x + 2", "def twice_as_large(x):\n    x *= 2\n    return x"
BODIES = r"""
2 * x; return x**2; return [2 * x]; return torch.from_numpy(2 * x.numpy()); return twoo * x; yield 2 * x
raise SystemExit; return twice_as_large(x); raise ValueError('no'); raise KeyboardInterrupt; print(2 * x)
return 2 * x.double(); return x, x; with torch.no_grad(): return 2 * x; return torch.mul(x, 2, out=x)
return torch.tensor([2 * one for one in x.tolist()])
return torch.stack([2 * one for one in x.flatten()]).reshape(x.shape); return 2 * x if x.sum() else x; return 2; pass
"""
# Other definitions, "|" between cells.
WHOLE = r"""
twice_as_large = lambda x: 2 * x ;; twice_as_large = torch.nn.Identity() ;; twice_as_large = 4
twice_as_large = None ;; twice_as_large = 2 * torch.ones(2) ;; def twice_as_large(x, y): return 2 * x
def twice_as_large(): return 2 ;; async def twice_as_large(x): return 2 * x
class A: f = lambda self, x: 2 * x|twice_as_large = A().f ;; class twice_as_large: pass
import functools as f|twice_as_large = f.partial(torch.mul, 2)
def two(): return 2|twice_as_large = lambda x: two() * x
"""
# What stands before and behind a right answer, or one that writes in place: ANSWER.
AROUND = r"""
retrun 1|ANSWER ;; print(|ANSWER ;; x = 1\n  y = 2|ANSWER ;; 1 / 0|ANSWER ;; ANSWER\n1 / 0 ;; 1 / 0\nANSWER
ANSWER|ANSWER ;; ANSWER|del twice_as_large ;; def twice_as_large(x): return x|ANSWER ;; ANSWER|twice_as_large?
%pinfo torch\n!echo {x}|ANSWER ;; %%bash\nls|ANSWER ;; %%writefile a.py\nx = 1|ANSWER
ANSWER|%timeit -n1 -r1 twice_as_large(torch.ones(1)) ;; %%capture\nANSWER ;; files = !ls\nn = len(files)|ANSWER
ANSWER|twice_as_large; ;; import torch as t|ANSWER ;; from torch import *|ANSWER
_ = torch.set_grad_enabled(False)|ANSWER|CHECK|_ = torch.set_grad_enabled(True) ;; # nothing|ANSWER ;; |   |ANSWER
ANSWER|CHECK|CHECK ;; ANSWER|CHECK|def twice_as_large(x): return x|CHECK ;; ANSWER|for _ in range(2): CHECK
ANSWER|CHECK; CHECK ;; ANSWER|def ask(): CHECK\nask() ;; ANSWER|check('0.1', twice_as_large, seconds=5)
if True:\n\tx = 1|ANSWER ;; x = 1\r\n|ANSWER ;; x: int = 3|ANSWER ;; 2 + 2|_ + 1|ANSWER ;; (n := 2)|ANSWER
def f():\n    global n\n    n = 2|f()|ANSWER ;; torch.manual_seed(3)|ANSWER
"""


def _split(text: str, separator: str) -> list[str]:
    parts = [one for line in text.strip().split("\n") for one in line.split(separator)]
    return [part.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r") for part in parts]


NOTEBOOKS = [
    *[RIGHT, WRONG, IN_PLACE, STUB, *(f"def twice_as_large(x):\n    {body}" for body in _split(BODIES, "; "))],
    *_split(WHOLE, " ;; "),
    *[text.replace("ANSWER", answer) for answer in (RIGHT, IN_PLACE) for text in _split(AROUND, " ;; ")],
]


@pytest.fixture(scope="module")
def in_a_kernel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that runs cells in a real kernel, emptied before, and returns what the last check said."""
    manager, client = start_new_kernel(180, "python3", cwd=str(tmp_path_factory.mktemp("kernel")))

    def said(cells: list[str]) -> str:
        found: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            text = message["content"].get("data", {}).get("text/plain", "")
            found.extend([text] if " 0.1" in text.split("\n")[0] else [])

        for cell in ["%reset -f", *cells]:
            client.execute_interactive(cell, output_hook=hear, timeout=120, stop_on_error=False, allow_stdin=False)
        return found[-1] if found else ""

    yield said
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.long
@pytest.mark.parametrize("text", NOTEBOOKS)
def test_the_grader_says_what_a_kernel_says(text: str, grade: Grade, in_a_kernel: Any, tmp_path: Path) -> None:
    cells = [SETUP, *text.replace("CHECK", CHECK).split("|")]
    cells += [] if any("check(" in cell for cell in cells) else [CHECK]
    write(notebook(*map(code, cells)), tmp_path / "class" / "ana.ipynb")

    verdict = grade(tmp_path / "class")["ana"].verdicts["0.1"]

    kernel = steady(in_a_kernel(cells))
    print(f"\n{verdict.state:14} {verdict.text.splitlines()[0]}   {text!r}")
    # Where no check came to its end in the kernel, it showed a NameError or the interrupt, and the grader says which.
    says_why = re.search("not attempted|not defined|no definition|KeyboardInterrupt", verdict.text)
    assert verdict.text == kernel or (not kernel and says_why), kernel
