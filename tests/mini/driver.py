"""Runs a program in an engine, and writes down all that a user could see.

There is one driver for both engines, and it never asks which one it drives. Its log holds every hook call with what it
received, every error, every warning in its place, and at the end all gradients.
"""

import warnings
from collections import namedtuple
from typing import Any, NamedTuple

from .programs import Act, HookSpec, ModuleSpec, Program

METHODS = {
    "pre": "register_forward_pre_hook",
    "forward": "register_forward_hook",
    "backward_pre": "register_full_backward_pre_hook",
    "backward": "register_full_backward_hook",
}
MOST_REGISTRATIONS = 25  # hooks that register hooks that register hooks

Pair = namedtuple("Pair", ["left", "right"])


class ProgramError(Exception):
    """Raised by hooks and modules of a program."""


class ProgramStop(BaseException):
    """Raised by modules of a program as an interrupt would be."""


class Trace(NamedTuple):
    log: list[Any]  # equal in both engines
    messages: list[str]  # the texts of errors and warnings, in the engine's own words


def run(engine: Any, program: Program) -> Trace:
    """What ``program`` did in ``engine``. Its global hooks are gone afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy mentions overflow, torch does not; values are compared
        running = _Run(engine, program)
        warnings.showwarning = running.warned
        try:
            running.all_steps()
        finally:
            for handle in running.global_handles:
                handle.remove()
    return Trace(running.log, running.messages)


class _Run:
    def __init__(self, engine: Any, program: Program) -> None:
        self.engine, self.program = engine, program
        self.log: list[Any] = []
        self.messages: list[str] = []
        self.handles: dict[int, list[Any]] = {}
        self.tensor_handles: dict[int, list[Any]] = {}
        self.global_handles: list[Any] = []
        self.registrations = 0
        self.kept: list[Any] = []
        self.held: list[Any] = []
        self.output: Any = None
        self.made: Any = None
        self.loss: Any = None
        self.inputs = [self.tensor(*values, requires_grad=requires_grad) for values, requires_grad in program.inputs]
        module_class = _module_class(engine.Module)
        self.modules: list[Any] = []
        for index, spec in enumerate(program.modules):
            weight = self.tensor(2.0, -1.0, requires_grad=True)
            self.modules.append(module_class(self, index, spec, weight, [self.modules[i] for i in spec.parts]))

    def tensor(self, first: float, second: float, requires_grad: bool = False) -> Any:
        """A tensor of the program's shape, with one or two elements."""
        nested = {(2,): [first, second], (1,): [first], (1, 2): [[first, second]], (2, 1): [[first], [second]]}
        return self.engine.tensor(nested[self.program.shape], requires_grad)

    def wrong_tensor(self) -> Any:
        """A tensor of a shape that goes together with the program's in no operation, except with (1,)."""
        nested = {(1, 2): [[1.0, 2.0, 3.0]], (2, 1): [[1.0], [2.0], [3.0]]}
        return self.engine.tensor(nested.get(self.program.shape, [1.0, 2.0, 3.0]))

    def note(self, *entry: Any) -> None:
        self.log.append(entry)

    def warned(self, message: Warning | str, category: type[Warning], *rest: Any) -> None:
        self.messages.append(str(message))
        self.note("warning", category.__name__)

    def show(self, value: Any, flags: bool = True) -> Any:
        """Engine-free data that is equal when the values are."""
        if isinstance(value, self.engine.Tensor):
            more = (value.requires_grad, value.is_leaf) if flags else ()
            return ("tensor", _rounded(value.detach().tolist()), *more)
        if isinstance(value, self.engine.Module):
            return ("module", value.index)
        if isinstance(value, tuple | list):
            return (type(value).__name__, *[self.show(item, flags) for item in value])
        if isinstance(value, dict):
            return ("dict", *[(key, self.show(item)) for key, item in value.items()])
        return value

    # steps

    def all_steps(self) -> None:
        for index, spec in enumerate(self.program.hooks):
            if spec.at_start:
                self.register(index)
        for step in self.program.steps:
            self.guarded(step)
        for tensor in (*self.inputs, *[module.weight for module in self.modules], *self.kept):
            self.guarded(("read", tensor))
        self.note("held", *[self.show(grad) for grad in self.held])

    def guarded(self, step: tuple[Any, ...]) -> None:
        self.note("step", step[0])
        try:
            getattr(self, "step_" + step[0])(*step[1:])
        except (Exception, ProgramStop) as error:
            self.messages.append(str(error))
            message = str(error) if isinstance(error, ProgramError | ProgramStop) else ""
            before = type(error.__context__).__name__
            self.note("error", type(error).__name__, message, before)

    def step_call(self, index: int, other: str, k: float | None, mode: str, origin: str) -> None:
        x = self.inputs[index % len(self.inputs)]
        if origin == "made":
            x = self.made = x * 3.0
        others = {"": (), "input": (self.inputs[-1],), "float": (0.5,)}[other]
        kwargs = {} if k is None else {"k": k}
        self.output = None
        if mode == "no_grad":
            with self.engine.no_grad():
                self.output = self.modules[-1](x, *others, **kwargs)
        else:
            self.output = self.modules[-1](x, *others, **kwargs)
        self.note("output", self.show(self.output), self.output is x)

    def step_backward(self, what: str, retain_graph: bool) -> None:
        if what != "again":
            found = self.tensors_in(self.output)
            if what == "first":
                found = found[:1]
            if what == "kept":
                found = self.kept
            if what == "both":
                found = found + self.kept
            if what != "direct":
                found = [tensor.sum() for tensor in found if tensor.requires_grad]
            self.loss = sum(found[1:], found[0]) if found else None
        if self.loss is not None:
            self.loss.backward(retain_graph=retain_graph)

    def step_call_backward(self, call: tuple[Any, ...], between: tuple[Any, ...], backward: tuple[Any, ...]) -> None:
        self.step_call(*call[1:])
        if between:
            self.guarded(between)
        self.step_backward(*backward[1:])

    def step_within(self, index: int, inner: tuple[Any, ...], how: str) -> None:
        handle = self.register(index)
        if handle is None:
            return
        with handle as inside:
            self.note("inside", inside is handle)
            if how == "remove":
                inside.remove()
            getattr(self, "step_" + inner[0])(*inner[1:])
            if how == "raise":
                raise ProgramError("in the block")
        self.note("after the block")

    def step_hold(self, place: str, index: int, _: int) -> None:
        tensor = self.at(place, index)
        if isinstance(tensor, self.engine.Tensor):
            self.held.append(tensor.grad)

    def step_register(self, index: int) -> None:
        self.register(index)

    def step_remove(self, index: int) -> None:
        self.remove(index)

    def step_hook(self, place: str, index: int, hook: int) -> None:
        self.hook_tensor(self.at(place, index), hook)

    def step_retain(self, place: str, index: int, _: int) -> None:
        self.retain(self.at(place, index))

    def step_inplace(self, place: str, index: int, _: int) -> None:
        tensor = self.at(place, index)
        if isinstance(tensor, self.engine.Tensor):
            tensor.mul_(2.0)

    def step_read(self, tensor: Any) -> None:
        self.note("grad", self.show(tensor.grad), self.show(tensor))

    def at(self, place: str, index: int) -> Any:
        if place == "input":
            return self.inputs[index % len(self.inputs)]
        if place == "weight":
            return self.modules[index].weight
        return self.made if place == "made" else next(iter(self.tensors_in(self.output)), None)

    def tensors_in(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, tuple | list):
            return [tensor for item in value for tensor in self.tensors_in(item)]
        return [value] if isinstance(value, self.engine.Tensor) else []

    # what steps, hooks and modules do

    def register(self, index: int) -> Any:
        self.registrations += 1
        if self.registrations > MOST_REGISTRATIONS:
            return None
        spec = self.program.hooks[index]
        flags = {name: True for name in _flags(spec) if getattr(spec, name)}
        if spec.target is None:
            name = METHODS[spec.kind].replace("register_", "register_module_")
            handle = getattr(self.engine.namespace, name)(self.module_hook(index), **flags)
            self.global_handles.append(handle)
        else:
            handle = getattr(self.modules[spec.target], METHODS[spec.kind])(self.module_hook(index), **flags)
        self.handles.setdefault(index, []).append(handle)
        return handle

    def remove(self, index: int) -> None:
        if self.handles.get(index):
            self.handles[index].pop().remove()

    def hook_tensor(self, tensor: Any, index: int) -> None:
        self.registrations += 1
        if isinstance(tensor, self.engine.Tensor) and self.registrations <= MOST_REGISTRATIONS:
            index %= len(self.program.tensor_hooks)
            handle = tensor.register_hook(self.tensor_hook(index, tensor))
            self.tensor_handles.setdefault(index, []).append(handle)

    def retain(self, tensor: Any) -> None:
        if isinstance(tensor, self.engine.Tensor):
            tensor.retain_grad()
            self.kept.append(tensor)

    def act(self, act: Act, arg: Any = None, out: Any = None) -> None:
        what, index = act
        verb, _, place = what.partition("_")
        tensor = {"arg": arg, "out": out, "kept": self.kept[-1] if self.kept else None}.get(place)
        if what == "register":
            self.register(index)
        elif what == "remove":
            self.remove(index)
        elif what == "remove_tensor_hook":
            handles = [handle for each in self.tensor_handles.values() for handle in each]
            if handles:
                handles[index % len(handles)].remove()
        elif not isinstance(tensor, self.engine.Tensor) or (verb != "inplace" and not tensor.requires_grad):
            pass
        elif verb == "hook":
            self.hook_tensor(tensor, index)
        elif verb == "retain":
            self.retain(tensor)
        elif verb == "keep":
            self.kept.append(tensor)
        elif verb == "inplace":
            tensor.mul_(2.0)
        elif verb == "rehook":
            self.hook_tensor(tensor, index)
            self.retain(tensor)
            tensor.mul_(2.0)
            self.hook_tensor(tensor, index)

    # hooks

    def module_hook(self, index: int) -> Any:
        spec = self.program.hooks[index]

        def hook(*received: Any) -> Any:
            # a sum of gradients is made in place in torch: whether it requires grad depends on what came first
            flags = not spec.kind.startswith("backward")
            self.note(spec.kind, index, *[self.show(item, flags) for item in received])
            arg = received[1][0] if isinstance(received[1], tuple) and received[1] else None
            for act in spec.acts:
                self.act(act, arg, received[-1])
            if spec.returns == "raise":
                raise ProgramError(f"hook {index}")
            if spec.kind == "pre":
                return self.new_args(spec.returns, *received[1:])
            if spec.kind == "forward":
                return self.new_output(spec.returns, received[-1])
            return self.new_grads(spec.returns, received[1])

        return hook

    def tensor_hook(self, index: int, tensor: Any) -> Any:
        spec = self.program.tensor_hooks[index]

        def hook(grad: Any) -> Any:
            self.note("tensor_hook", index, self.show(grad, flags=False))
            for act in spec.acts:
                self.act(act, tensor)
            match spec.returns:
                case "raise":
                    raise ProgramError(f"tensor hook {index}")
                case "double":
                    return grad if grad is None else grad * 2.0
                case "plus":
                    return grad if grad is None else grad + 1.0
                case "const":
                    return self.tensor(7.0, 8.0)
                case "const_grad":
                    return self.tensor(7.0, 8.0, requires_grad=True)
                case "wrong_shape":
                    return self.engine.tensor([1.0, 2.0, 3.0])
                case "tuple":
                    return (grad,)
                case "number":
                    return 1.0
                case "string":
                    return "text"

        return hook

    def new_args(self, form: str, args: Any, kwargs: Any = None) -> Any:
        first, rest = (args[0], tuple(args[1:])) if isinstance(args, tuple | list) and args else (2.0, ())
        match form:
            case "tuple_double":
                return (self.doubled(first), *(rest if kwargs is None else ()))
            case "bare_double":
                return self.doubled(first)
            case "same":
                return args if kwargs is None else (args, kwargs)
            case "pair":
                return ((self.doubled(first), *rest), {"k": 3.0})
            case "list":
                return [first]
            case "list_args":
                return ([first, 1.0], {})
            case "empty":
                return ()
            case "string":
                return "text"
            case "number":
                return 2.0
            case "detached":
                new = (first.detach() if isinstance(first, self.engine.Tensor) else first, *rest)
                return new if kwargs is None else (new, kwargs)
            case "wrong_shape":
                return (self.wrong_tensor(),) if self.program.shape != (1,) else None
            case "one":
                return (args,)
            case "triple":
                return (args, {}, None)
            case "bad_kwargs":
                return (args, 5)
            case "extra_arg":
                new = (*args, 1.0) if isinstance(args, tuple) else None
                return new if kwargs is None or new is None else (new, kwargs)

    def new_output(self, form: str, output: Any) -> Any:
        match form:
            case "double":
                return self.doubled(output)
            case "plus":
                return output + 1.0 if isinstance(output, self.engine.Tensor) else None
            case "same":
                return output
            case "fresh":
                return self.tensor(1.0, -1.0)
            case "fresh_grad":
                self.kept.append(self.tensor(1.0, -1.0, requires_grad=True))
                return self.kept[-1]
            case "string":
                return "text"
            case "number":
                return 2.0
            case "list":
                return [output]
            case "tuple":
                return (_pick(output), 1.0, _pick(output))
            case "dict":
                return {"y": output}
            case "detached":
                return output.detach()
            case "wrong_shape":
                return self.wrong_tensor() if self.program.shape != (1,) else None

    def new_grads(self, form: str, grads: Any) -> Any:
        if isinstance(grads, self.engine.Tensor):  # what the hook before returned; mini has no loop over rows
            return grads if form == "same" else None
        match form:
            case "double":
                return tuple(self.doubled(grad) for grad in grads)
            case "same":
                return grads
            case "list":
                return list(grads)
            case "nones":
                return (None,) * len(grads)
            case "first":
                return tuple(grad if i == 0 else None for i, grad in enumerate(grads))
            case "bare":
                return self.engine.tensor([1.0] * 7)
            case "itself":
                return grads[0]
            case "rows":
                return self.engine.tensor([self.tensor(5.0, 6.0).tolist()] * len(grads))
            case "short":
                return tuple(grads)[1:]
            case "long":
                return (*grads, None)
            case "floats":
                return (1.0,) * len(grads)
            case "wrong_shape":
                return (self.engine.tensor([1.0, 2.0, 3.0]),) * len(grads)
            case "string":
                return "t" * len(grads)
            case "number":
                return 1.0
            case "fill":
                return (self.tensor(5.0, 6.0),) * len(grads)

    def doubled(self, value: Any) -> Any:
        return value * 2.0 if isinstance(value, self.engine.Tensor) else value


def _flags(spec: HookSpec) -> tuple[str, ...]:
    """The options that this kind of registration has."""
    if spec.kind == "forward":
        return ("with_kwargs", "always_call") if spec.target is None else ("prepend", "with_kwargs", "always_call")
    if spec.target is None:
        return ()
    return ("prepend", "with_kwargs") if spec.kind == "pre" else ("prepend",)


def _rounded(numbers: Any) -> str:
    """Numbers as a text, without the last digits: after a power the engines may differ there."""
    if isinstance(numbers, list):
        return f"[{', '.join(_rounded(number) for number in numbers)}]"
    return f"{round(numbers, 9) + 0.0:.10g}"


def _pick(value: Any) -> Any:
    """The one value that most modules go on with."""
    while isinstance(value, tuple | list | dict) and value:
        value = value.get("y") if isinstance(value, dict) else value[0]
    return value


def _through(modules: list[Any], x: Any, *others: Any, **kwargs: Any) -> Any:
    """One module after the other; the first gets all arguments."""
    for i, module in enumerate(modules):
        x = module(x) if i else module(x, *others, **kwargs)
    return x


def _module_class(base: Any) -> Any:
    """The modules of a program, on top of the engine's Module."""

    class ProgramModule(base):  # type: ignore[misc]
        def __init__(self, run: _Run, index: int, spec: ModuleSpec, weight: Any, parts: list[Any]) -> None:
            super().__init__()
            self.run, self.index, self.spec = run, index, spec
            self.weight, self.parts = weight, parts

        def forward(self, x: Any, *others: Any, k: float = 1.0) -> Any:
            self.run.note("module", self.index, self.run.show((x, *others)), self.run.show(k))
            for act in self.spec.acts:
                self.run.act(act)
            x = _pick(x)
            if self.parts:
                return self.composed(x, *others, k=k)
            if self.spec.kind not in ("first_only", "product"):
                for other in others:
                    x = x + _pick(other)
            return self.computed(x if k == 1.0 else x * k, others)

        def composed(self, x: Any, *others: Any, k: float) -> Any:
            first, rest = self.parts[0], self.parts[1:]
            match self.spec.kind:
                case "chain":
                    return _through(rest, first(x, *others))
                case "residual":
                    return _pick(_through(self.parts, x, *others)) + x
                case "twice":
                    return _through(rest, first(first(x)))
                case "join":
                    return _through(rest, first(x), x)
                case "join_pair":
                    return first(x), _through(rest, x, *others)
                case "keyword":
                    return _through(rest, first(x, k=2.0), k=k)

        def computed(self, x: Any, others: tuple[Any, ...]) -> Any:
            match self.spec.kind:
                case "scale":
                    return x * self.weight
                case "shift":
                    return x + self.weight
                case "power":
                    return x**self.run.program.power
                case "relu":
                    return x.relu()
                case "mul_":
                    return x.mul_(3.0)
                case "identity":
                    return x
                case "detach":
                    return x.detach()
                case "raise":
                    raise ProgramError(f"module {self.index}")
                case "stop":
                    raise ProgramStop(f"module {self.index}")
                case "pair":
                    return (x * 2.0, x + self.weight)
                case "named":
                    return Pair(x * 2.0, self.weight * 1.0)
                case "dict":
                    return {"y": x * 2.0}
                case "list":
                    return [x * 2.0]
                case "number":
                    return 3.0
                case "first_only":
                    return x * 2.0
                case "product":
                    for other in others:
                        x = x * _pick(other)
                    return x * self.weight

    return ProgramModule
