"""The table of hook kinds: every kind of torch is in it, and each leads to a cell that runs it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import graph
from torch.utils._debug_mode import DebugMode

from hooklab.course.lesson00.figures import HOOKS
from hooklab.course.lesson00.kinds import KINDS, NEWER, table
from hooklab.course.lesson00.symptoms import Tagged

START = Path(__file__).parents[3] / "lessons" / "00_start_here.ipynb"
# Names with "hook" that register no hook of the user's kind.
NO_KIND = {"disable_saved_tensors_hooks", "register_hook_for_optimizer"}


def cells() -> list[Tagged]:
    """A cell for each kind, as if one lesson had them all."""
    return [Tagged(key, "10_graph_hooks", "Two hooks", "a1", f"x.{kind.name}(look)") for key, kind in KINDS.items()]


# Functions of torch's public modules that the table leaves out; the start page says so.
LEFT_OUT = {
    "register_ddp_comm_hook": "register_comm_hook with a hook of torch's own",
    "register_extern_hook": "torch.package: what goes along into a file",
    "register_intern_hook": "torch.package",
    "register_mock_hook": "torch.package",
    "set_getstate_hook": "data pipes: pickling",
    "set_reduce_ex_hook": "data pipes",
}
CUDA_GRAPHS = Path("cuda") / "graphs.py"  # from torch 2.15 on, with one row for all


def test_every_function_of_torch_that_registers_a_hook_is_a_kind_or_left_out_on_purpose():
    root, found = Path(torch.__file__).parent, set[str]()
    for file in root.rglob("*.py"):
        place = file.relative_to(root)
        if any(part.startswith("_") for part in place.parts[:-1]) or place.parts[0] in ("testing", "test"):
            continue
        if place != CUDA_GRAPHS and (not file.name.startswith("_") or file.name in ("__init__.py", "_tensor.py")):
            found |= set(re.findall(r"^ *def ((?:register|set)_\w*hooks?)\(", file.read_text(encoding="utf-8"), re.M))
    assert len(found) > 30
    assert found - {kind.name for kind in KINDS.values()} == set(LEFT_OUT)


OWNERS = {
    "torch.autograd.graph": graph,
    "torch.distributed": torch.distributed,
    "ProcessGroup": getattr(torch.distributed, "ProcessGroup", None),
    "CUDAGraph": torch.cuda.CUDAGraph,
    "torch.utils.checkpoint.checkpoint": inspect.signature(torch.utils.checkpoint.checkpoint).parameters,
    "DebugMode": DebugMode,
}
# Contexts of DebugMode, which is a dispatch mode, for reading and writing its own log.
OF_DEBUG_MODE = {"DebugMode.dispatch_hooks"}


def test_every_context_and_callback_of_torch_with_hook_in_its_name_is_a_kind_or_newer():
    names = {
        f"{owner}.{name}"
        for owner, where in OWNERS.items()
        for name in (where if isinstance(where, Mapping) else dir(where))
        if not name.startswith("_") and re.search(r"hooks?$|queue_callback$", name)
    }
    assert len(names) > 3
    known = {kind.name for kind in KINDS.values()} | NO_KIND
    newer = " ".join(NEWER).replace("(", ".")
    unknown = {
        name
        for name in names - OF_DEBUG_MODE
        if name.split(".")[-1] not in known
        and name not in newer
        and name.split(".")[0] not in ("ProcessGroup", "CUDAGraph")
    }
    assert unknown == set()


def test_what_is_newer_has_a_row_with_its_version():
    rows = [line for line in table(cells()).split("\n") if "from torch 2.1" in line]
    assert len(rows) == len(NEWER) and rows[0].startswith("| **Newer than torch 2.13** | `torch.autograd.graph.")
    assert all(f"| from torch {version} on |" in row for row, (version, _) in zip(rows, NEWER.values(), strict=True))


def test_the_kinds_of_the_drawn_map_are_kinds_of_the_table():
    assert {method for method, _ in HOOKS.values()} <= {kind.register for kind in KINDS.values()}


def test_the_lessons_on_the_drawn_map_have_a_cell_that_runs_the_hook():
    cells = nbformat.read(START, as_version=4).cells
    rows = [line for cell in cells for line in cell.source.split("\n") if line.startswith("|")]
    for method, lesson in HOOKS.values():
        (row,) = [row for row in rows if f"`{method}`" in row]
        assert f"[lesson {lesson}, " in row, method


def test_a_kind_is_listed_with_the_first_cell_of_each_lesson_that_runs_it():
    earlier = Tagged("node", "05_backward_hooks", "Doors", "b4", "node.register_hook(look)")
    again = Tagged("node", "10_graph_hooks", "Order", "c9", "node.register_hook(look)")
    row = next(line for line in table([earlier, *cells(), again]).split("\n") if "`Node.register_hook`" in line)
    assert row.endswith(
        "[lesson 5, Doors](05_backward_hooks.ipynb#cell-id=b4), "
        "[lesson 10, Two hooks](10_graph_hooks.ipynb#cell-id=a1) |"
    )


def test_every_kind_has_a_row_and_every_group_a_head():
    text = table(cells())
    assert all(f"| `{kind.register}` |" in text for kind in KINDS.values())
    assert all(text.count(f"**{about}**") == 1 for about in {kind.about for kind in KINDS.values()})


def test_a_kind_without_a_cell_is_refused_by_name():
    with pytest.raises(LookupError, match=r"no cell runs these kinds of hooks: hook-node-prehook$"):
        table(cell for cell in cells() if cell.key != "node-prehook")


def test_a_tag_that_is_no_kind_is_refused():
    with pytest.raises(LookupError, match="hook-nod in 10_graph_hooks has no row"):
        table([*cells(), Tagged("nod", "10_graph_hooks", "Two hooks", "a1")])


def test_a_cell_that_does_not_call_what_its_tag_says_is_refused():
    with pytest.raises(LookupError, match="the cell with hook-node in 10_graph_hooks does not call register_hook"):
        table([Tagged("node", "10_graph_hooks", "Two hooks", "a1", "node.register_prehook(look)"), *cells()])
