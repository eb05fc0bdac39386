"""What happened in a run: names to count, so that one can see that random programs reach the paths that matter."""

from typing import Any

from .driver import METHODS, Trace
from .programs import ACTS, CALM_RETURNS, POWERS, SHAPES, WILD_RETURNS, HookSpec, Program

# A part of one of mini's messages -> what it tells.
TOLD = {
    "OrderedDict mutated": "always_call hooks changed the table while it was looped over",
    "raised an exception that was silenced": "an always_call hook raised after another error",
    "Full backward hook is firing": "full backward hooks without input gradients",
    "Backward hook for Modules where no input": "a gradient returned where no input requires one",
    "invalid number of grad_input": "wrong number of gradients from a backward hook",
    "invalid number of grad_output": "wrong number of gradients from a backward pre-hook",
    "For backward hooks to be called": "backward hooks on a module with another output than tensors",
    "has changed the size": "a gradient of another shape",
    "expected Variable": "a gradient that is no tensor",
    "can't replace a None": "a gradient where there was none",
    "second time": "backward a second time",
    "modified by an inplace operation": "a saved tensor changed in place",
    "and is being modified inplace": "a view made for backward hooks changed in place",
    "another view of its base": "the base of a view made for backward hooks changed in place",
    "a leaf Variable that requires grad is": "a leaf changed in place",
    "only for scalar outputs": "backward from what is no scalar",
    "does not require grad": "backward from what requires no gradient",
    "cannot register a hook": "a hook on a tensor that requires no gradient",
    "can't retain_grad": "retain_grad on a tensor that requires no gradient",
    "forward pre-hook must return": "a with_kwargs pre-hook returned something else",
    "The .grad attribute of": "grad of a non-leaf",
}
OBSERVED = (
    "a pre-hook removed before its turn ran without its kwargs",
    "a forward hook removed before its turn ran without its kwargs",
    "a global with_kwargs hook ran without kwargs after an error",
    "an always_call hook ran without an output",
    "a tensor hook got None",
    "grad_input is all None",
    "grad_output has a None beside a tensor",
    "a module returned its very input",
    "a block around a hook",
    "a block that ended by an error of its own",
    "a module that was stopped by what is no Exception",
    *[f"tensors of shape {shape}" for shape in SHAPES],
    *[f"a module that raises to the power {power:g}" for power in POWERS],
)
EVERY_FEATURE = {
    *TOLD.values(),
    *OBSERVED,
    *[f"{kind} hook returned {form}" for kind in CALM_RETURNS for form in CALM_RETURNS[kind] + WILD_RETURNS[kind]],
    *[f"{kind} hook: {act}" for kind in ACTS if kind != "module" for act in ACTS[kind]],
    *[f"{what} {kind} hook" for kind in CALM_RETURNS if kind != "tensor" for what in ("global", "prepended")],
}


def features(program: Program, trace: Trace) -> set[str]:
    """The features of a run, from its log and from mini's messages."""
    found = {name for part, name in TOLD.items() if any(part in message for message in trace.messages)}
    found.add(f"tensors of shape {program.shape}")
    if any(module.kind == "power" for module in program.modules):
        found.add(f"a module that raises to the power {program.power:g}")
    for event, *rest in trace.log:
        if event == "tensor_hook":
            spec = program.tensor_hooks[rest[0]]
            found |= {f"tensor hook returned {spec.returns}", *[f"tensor hook: {act}" for act, _ in spec.acts]}
            if rest[1] is None:
                found.add("a tensor hook got None")
        elif event in METHODS:
            found |= _of_a_hook(program.hooks[rest[0]], *rest[1:])
        elif event == "output" and rest[1]:
            found.add("a module returned its very input")
        elif event == "inside":
            found.add("a block around a hook")
        elif event == "error" and rest[1] == "in the block":
            found.add("a block that ended by an error of its own")
        elif event == "error" and rest[0] == "ProgramStop":
            found.add("a module that was stopped by what is no Exception")
    return found


def _of_a_hook(spec: HookSpec, *received: Any) -> set[str]:
    found = {f"{spec.kind} hook returned {spec.returns}", *[f"{spec.kind} hook: {act}" for act, _ in spec.acts]}
    if spec.target is None:
        found.add(f"global {spec.kind} hook")
    elif spec.prepend:
        found.add(f"prepended {spec.kind} hook")
    if spec.kind == "pre" and spec.target is not None and spec.with_kwargs and len(received) == 2:
        found.add("a pre-hook removed before its turn ran without its kwargs")
    if spec.kind == "forward":
        if spec.with_kwargs and len(received) == 3:
            whose, when = ("forward", "removed before its turn ran without its kwargs")
            if spec.target is None:
                whose, when = ("global with_kwargs", "ran without kwargs after an error")
            found.add(f"a {whose} hook {when}")
        if spec.always_call and received[-1] is None:
            found.add("an always_call hook ran without an output")
    if spec.kind == "backward" and isinstance(received[1], tuple) and set(received[1][1:]) == {None}:
        found.add("grad_input is all None")
    if spec.kind.startswith("backward") and isinstance(received[-1], tuple) and {None} < set(received[-1][1:]):
        found.add("grad_output has a None beside a tensor")
    return found
