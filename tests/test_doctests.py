"""The examples in the docstrings of hooklab run, and show what the code does."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import hooklab

PACKAGE = Path(hooklab.__file__).parent
# only modules that have examples: the others need not be imported, and some want a kernel or a browser
MODULES = [
    ".".join(("hooklab", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_show_what_it_does(name: str) -> None:
    torch.manual_seed(0)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", ["select", "capture", "edit", "run_until", "timeline", "monitor", "leftover_hooks"])
def test_a_public_function_has_an_example(name: str) -> None:
    examples = doctest.DocTestFinder(recurse=False).find(getattr(hooklab, name), name)
    assert examples
    assert examples[0].examples
