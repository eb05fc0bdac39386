"""The table of all hook kinds on the start page: what registers each, when it runs, and the cell that runs it.

A cell that runs a kind has its tag (`hook-node`). Where those cells stand is read from the lessons' sources, as for the
index of symptoms. A new kind needs an entry in KINDS and a cell with its tag.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hooklab.course.lesson00.symptoms import Tagged, link


class Kind(NamedTuple):
    """A heading of the table, what registers the hook, and when it runs."""

    about: str
    register: str
    when: str

    @property
    def name(self) -> str:
        """The name that a cell must call to run it, such as "register_prehook"."""
        return self.register.rpartition(".")[2]


TENSOR, MODULE, PROCESS, GRAPH, SYSTEM = (
    "On a tensor",
    "On a module",
    "On every module of the process",
    "On the graph, and below it",
    "On files, optimizers, processes",
)

KINDS: dict[str, Kind] = {
    "tensor": Kind(TENSOR, "Tensor.register_hook", "its gradient arrives"),
    "post-accumulate": Kind(TENSOR, "Tensor.register_post_accumulate_grad_hook", "a leaf's `.grad` is complete"),
    "forward-pre": Kind(MODULE, "Module.register_forward_pre_hook", "it is called, before `forward`"),
    "forward": Kind(MODULE, "Module.register_forward_hook", "`forward` has run"),
    "full-backward-pre": Kind(MODULE, "Module.register_full_backward_pre_hook", "the gradient of its output arrives"),
    "full-backward": Kind(MODULE, "Module.register_full_backward_hook", "the gradient of its input leaves"),
    "legacy-backward": Kind(MODULE, "Module.register_backward_hook", "the last node inside has run (superseded)"),
    "global-forward-pre": Kind(PROCESS, "register_module_forward_pre_hook", "any module is called"),
    "global-forward": Kind(PROCESS, "register_module_forward_hook", "any module's `forward` has run"),
    "global-full-backward-pre": Kind(
        PROCESS, "register_module_full_backward_pre_hook", "the gradient of any module's output arrives"
    ),
    "global-full-backward": Kind(
        PROCESS, "register_module_full_backward_hook", "the gradient of any module's input leaves"
    ),
    "global-legacy-backward": Kind(
        PROCESS, "register_module_backward_hook", "the last node inside any module has run (superseded)"
    ),
    "module-registration": Kind(
        PROCESS, "register_module_module_registration_hook", "a module becomes part of another"
    ),
    "parameter-registration": Kind(PROCESS, "register_module_parameter_registration_hook", "a module gets a parameter"),
    "buffer-registration": Kind(PROCESS, "register_module_buffer_registration_hook", "a module gets a buffer"),
    "node-prehook": Kind(GRAPH, "Node.register_prehook", "a node is about to run"),
    "node": Kind(GRAPH, "Node.register_hook", "a node has run"),
    "multi-grad": Kind(GRAPH, "register_multi_grad_hook", "the gradients of several tensors are there"),
    "saved-tensors": Kind(GRAPH, "saved_tensors_hooks", "autograd saves a value, and when it reads it again"),
    "dispatch-mode": Kind(GRAPH, "TorchDispatchMode", "any operation runs: not called a hook, but it sees everything"),
    "state-dict-pre": Kind(SYSTEM, "Module.register_state_dict_pre_hook", "a module's state dict is about to be made"),
    "state-dict": Kind(SYSTEM, "Module.register_state_dict_post_hook", "a module's state dict is made"),
    "load-state-dict-pre": Kind(
        SYSTEM, "Module.register_load_state_dict_pre_hook", "a module is about to load: may change what is loaded"
    ),
    "load-state-dict-post": Kind(SYSTEM, "Module.register_load_state_dict_post_hook", "a module has loaded"),
    "optimizer-step-pre": Kind(SYSTEM, "Optimizer.register_step_pre_hook", "before an optimizer's step"),
    "optimizer-step-post": Kind(SYSTEM, "Optimizer.register_step_post_hook", "after an optimizer's step"),
    "global-optimizer-step-pre": Kind(SYSTEM, "register_optimizer_step_pre_hook", "before any optimizer's step"),
    "global-optimizer-step-post": Kind(SYSTEM, "register_optimizer_step_post_hook", "after any optimizer's step"),
    "optimizer-state-dict-pre": Kind(
        SYSTEM, "Optimizer.register_state_dict_pre_hook", "an optimizer's state dict is about to be made"
    ),
    "optimizer-state-dict-post": Kind(
        SYSTEM, "Optimizer.register_state_dict_post_hook", "an optimizer's state dict is made"
    ),
    "optimizer-load-state-dict-pre": Kind(
        SYSTEM, "Optimizer.register_load_state_dict_pre_hook", "an optimizer is about to load"
    ),
    "optimizer-load-state-dict-post": Kind(
        SYSTEM, "Optimizer.register_load_state_dict_post_hook", "an optimizer has loaded"
    ),
    "ddp-comm": Kind(
        SYSTEM,
        "DistributedDataParallel.register_comm_hook",
        "a bucket of gradients is complete: it decides what is sent",
    ),
    "fsdp-comm": Kind(
        SYSTEM,
        "FullyShardedDataParallel.register_comm_hook",
        "a unit's gradient is complete: it fills this process's piece (the older FSDP)",
    ),
    "fully-shard-all-reduce": Kind(
        SYSTEM,
        "FSDPModule.set_all_reduce_hook",
        "a unit's gradient is averaged: it may change this process's piece in place",
    ),
}

# Kinds that no cell can run yet: what registers the hook -> the first torch release with it, and when it runs.
NEWER: dict[str, tuple[str, str]] = {
    "torch.autograd.graph.node_creation_hook": (
        "2.14",
        "autograd has created a node: in this block, it gets each of them, complete",
    ),
    "torch.utils.checkpoint.checkpoint(respect_saved_tensors_hooks=…)": (
        "2.14",
        "selective checkpointing keeps a value: True sends it through your saved-tensors hooks",
    ),
    "torch.autograd.graph.queue_callback": ("2.15", "the backward pass in which it was called has finished"),
    "ProcessGroup: pre and post hooks": ("2.15", "a collective operation begins, and when it has been issued"),
    "CUDAGraph.register_…_hook": ("2.15", "the capture or the replay of a CUDA graph begins or ends"),
}


def table(cells: Iterable[Tagged]) -> str:
    """Return the table as Markdown: each kind with the first cell of each lesson that runs it.

    Args:
        cells: the tagged cells, in the order of the lessons.

    Raises:
        LookupError: for a tag without a kind, a kind without a cell, and a cell that does not call what its tag names.
    """
    places: dict[str, dict[str, Tagged]] = {key: {} for key in KINDS}
    for cell in cells:
        if cell.key not in KINDS:
            raise LookupError(
                f"hook-{cell.key} in {cell.lesson} has no row: add it to hooklab/course/lesson00/kinds.py"
            )
        if KINDS[cell.key].name not in cell.text:
            raise LookupError(f"the cell with hook-{cell.key} in {cell.lesson} does not call {KINDS[cell.key].name}")
        places[cell.key].setdefault(cell.lesson, cell)
    if lacking := [f"hook-{key}" for key, found in places.items() if not found]:
        raise LookupError(f"no cell runs these kinds of hooks: {', '.join(lacking)}")
    lines = ["| | register with | it runs when | try it in |", "|---|---|---|---|"]
    about = ""
    for key, kind in KINDS.items():
        links = ", ".join(link(cell) for cell in places[key].values())
        head = "" if kind.about == about else f"**{kind.about}**"
        about = kind.about
        lines.append(f"| {head} | `{kind.register}` | {kind.when} | {links} |")
    newer = [f"| | `{what}` | {when} | from torch {version} on |" for what, (version, when) in NEWER.items()]
    return "\n".join([*lines, newer[0].replace("| |", "| **Newer than torch 2.13** |"), *newer[1:]])
