"""What the library uses of torch's private side is there and listed in one place; of the course it uses nothing."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hooklab
from hooklab import leftover
from hooklab._shared import torch_private
from hooklab.course.processes import launch

LIBRARY = [path for folder in ("", "_shared/") for path in Path(hooklab.__file__).parent.glob(f"{folder}*.py")]
FILES = [*LIBRARY, *Path(hooklab.__file__).parent.glob("mini/*.py")]
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


# whose, and the names
NAMES: dict[str, list[str]] = {
    "a tensor": ["_version", "_is_view", "_backward_hooks", "_post_accumulate_grad_hooks"],
    "a module": [
        "_modules", "_parameters", "_buffers", "_call_impl", "_compiled_call_impl", "_is_full_backward_hook",
        "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_state_dict_pre_hooks",
        "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    ],
    "torch.nn.modules.module": [
        "_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks",
        "_global_is_full_backward_hook", "_WrappedHook",
    ],
    "torch._C": ["_current_graph_task_id"],
    "torch._C._autograd": ["_top_saved_tensors_default_hooks"],
    "torch._C._dynamo.eval_frame": ["_FrameAction", "_FrameExecStrategy", "set_code_exec_strategy"],
}  # fmt: skip
OWNERS: dict[str, Any] = {
    "a tensor": torch.ones(1),
    "a module": nn.Module(),
    "torch.nn.modules.module": torch_private.global_hooks,
    "torch._C": torch._C,
    "torch._C._autograd": torch._C._autograd,
    "torch._C._dynamo.eval_frame": torch._C._dynamo.eval_frame,
}
LISTED = {name for names in NAMES.values() for name in names}


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in NAMES.items() for name in names])
def test_this_torch_has_every_private_name_that_the_library_uses(owner: str, name: str) -> None:
    assert hasattr(OWNERS[owner], name)


def test_the_library_does_without_a_name_that_only_one_thing_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    monkeypatch.delattr(torch._C._dynamo.eval_frame, "_FrameAction")
    monkeypatch.delattr(torch_private.global_hooks, "_WrappedHook")
    names = runpy.run_path(torch_private.__file__)
    assert names["saves_through_hooks"]()  # then the stack is searched for a checkpoint, which takes longer
    names["skip_when_compiling"](lambda: None, "because")


def compile_something() -> None:
    """Ask for something compiled, in each of three ways, in a process where nobody has yet."""
    import sys

    from hooklab._shared import torch_private
    from hooklab._shared.torch_private import may_have_compiled

    ways = [
        lambda: torch.compile(nn.ReLU(), backend="eager"),
        lambda: nn.ReLU().compile(backend="eager"),
        lambda: torch.compile(lambda x: x, backend="eager"),
    ]
    assert not may_have_compiled()
    torch.optim.SGD([torch.ones(1, requires_grad=True)]).zero_grad()
    assert "torch._dynamo" in sys.modules and not may_have_compiled()
    for way in ways:
        torch._dynamo.eval_frame.TorchPatcher.patch.cache_clear()  # the note that torch keeps
        assert not may_have_compiled()
        way()
        assert may_have_compiled()
    torch._dynamo.reset()
    assert may_have_compiled()
    torch_private._note_of_compiling = None
    del torch._dynamo.eval_frame.TorchPatcher
    assert may_have_compiled()


def test_torch_notes_that_something_was_compiled() -> None:
    launch(compile_something, processes=1)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.name)
def test_a_private_name_of_torch_is_one_of_the_list(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} | OWN
    if path.name != "torch_private.py":
        assert used - own - LISTED == set()


def test_the_tables_of_leftover_hooks_are_on_the_list() -> None:
    tables = (leftover.MODULE_TABLES, leftover.TENSOR_TABLES, leftover.GLOBAL_TABLES)
    assert {attribute for table in tables for attribute in table.values()} <= LISTED


# private names of the library's own classes, and of other packages
OWN = {"_clone", "_session", "_DummyThread", "_make", "_record", "_getframe", "_x", "_x_was_read", "_box", "_masks"}
OWN |= {"_fields", "_replace"}  # of named tuples
# what a file imports besides torch, when the one method that needs it is called
OPTIONAL = {"health.py": {"matplotlib"}}


@each_file
def test_the_library_imports_neither_the_course_nor_its_packages(path: Path) -> None:
    if path.name == "__init__.py" and path.parent.name == "hooklab":
        return  # the lazy door: its names are imported when they are used
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    if path.name == "__main__.py":
        modules -= {name for name in modules if name.startswith("hooklab.course.launcher")}
    assert {name for name in modules if name.startswith("hooklab.course")} == set()
    assert {name for name in modules if name.startswith("torch") and "._" in name} == set()
    roots = {name.partition(".")[0] for name in modules}
    own = {"numpy"} if path.parent.name == "mini" else {"torch"}  # mini computes with numpy, and needs no torch
    assert roots <= {"hooklab", *own, *OPTIONAL.get(path.name, ()), *sys.stdlib_module_names}
