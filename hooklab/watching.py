"""The hooks of :func:`hooklab.monitor`: on outputs, on their gradients, and around an optimizer's step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hooklab._shared.sessions import Hook, Session, remove_all
from hooklab._shared.trees import tensors
from hooklab.findings import Finding, Key, describe_gradient, describe_output, describe_update, warn_caller
from hooklab.tallies import GRADIENT, OUTPUT, UPDATE, Sample, Tally, numbers_of, read, sample_later, sample_now

if TYPE_CHECKING:
    from hooklab.monitoring import Monitor


class MonitorSession(Session):
    def __init__(self, options: Monitor) -> None:
        super().__init__(options.model)
        self.options = options
        self.step = 0
        self.recording = True
        self.has_begun = False
        self.steps: list[int] = []  # that were recorded
        self.tallies: defaultdict[Key, Tally] = defaultdict(Tally)
        self.findings: list[Finding] = []
        self.had_gradient: dict[str, bool] = {}  # by the name of a parameter
        self.unreadable: set[str] = set()
        self.gradient_handles: list[Any] = []
        # numbers that still are on a device: with step, kind and module, and of how many values
        self.waiting: list[tuple[Key, int, Tensor]] = []

    def attach(self) -> None:
        for module in self.options.hooked.values():
            _OnOutput(self, module).register(self.handles, with_kwargs=True)
        for optimizer, parameters in self.options.updated:
            before = _BeforeUpdate(self, parameters)
            self.handles.append(optimizer.register_step_pre_hook(before))
            self.handles.append(optimizer.register_step_post_hook(_AfterUpdate(self, before)))

    def close(self) -> None:
        try:
            super().close()
        finally:
            remove_all(self.gradient_handles)
            self.fetch()

    def new_pass(self) -> None:
        self.fetch()
        # those of a graph that is still there stay: a loss may be made of two passes
        self.gradient_handles = [handle for handle in self.gradient_handles if handle.hooks_dict_ref() is not None]
        self.step += self.has_begun
        self.has_begun = True
        self.recording = self.step % self.options.every == 0

    @property
    def last_recorded(self) -> int:
        """The last step that was recorded, -1 before the first."""
        return self.steps[-1] if self.steps else -1

    def record_output(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.has_begun = True
        if self.last_recorded != self.step:
            self.steps.append(self.step)
        key = self.step, OUTPUT, self.options.names[id(module)]
        self.tallies[key].calls += 1
        # the usual case first, since this runs at every call
        for tensor in (output,) if type(output) is Tensor else tensors(output):
            sample = self.add(key, tensor)
            if sample is not None and sample.nonfinite:
                call = self.tallies[key].calls
                self.found(key, lambda: describe_output(key, call, sample, tensor, module, inputs))  # noqa: B023

    def watch(self, module: nn.Module, output: Any) -> None:
        """Record the gradients of an output, when they come."""
        hook = _OnGradient(self, (self.step, GRADIENT, self.options.names[id(module)]))
        for tensor in tensors(output):
            if tensor.requires_grad:
                _ = tensor.grad_fn  # brings a view's history up to date; see capturing.py
                self.gradient_handles.append(tensor.register_hook(hook))

    def add(self, key: Key, tensor: Tensor) -> Sample | None:
        """Add a tensor's statistics to those of its step, kind and module; return them if they can be read now."""
        _, kind, name = key
        bounds = self.options.ranges[name] if kind == OUTPUT else None
        try:
            values = None if is_being_traced() else numbers_of(tensor)
            if values is None:
                return None
            if must_wait(values.device) and self.options.on_nonfinite != "raise":
                self.waiting.append((key, values.numel(), sample_later(values, bounds)))
                return None
            sample = sample_now(values, bounds)
        except Exception:  # as under vmap, where a tensor has no numbers that can be read, or of an odd subclass
            self.unreadable.add(name)
            return None
        self.tallies[key].add(sample)
        return sample

    def fetch(self) -> None:
        """Read the numbers that wait on a device, all at once."""
        waiting, self.waiting = self.waiting, []
        by_device: defaultdict[Any, list[tuple[Key, int, Tensor]]] = defaultdict(list)
        for one in waiting:
            by_device[one[2].device, one[2].dtype].append(one)
        for group in by_device.values():
            lists = torch.stack([numbers for *_, numbers in group]).tolist()
            for (key, count, _), numbers in zip(group, lists, strict=True):
                _, kind, name = key
                sample = read(numbers, count, self.options.ranges[name] if kind == OUTPUT else None)
                self.tallies[key].add(sample)
                if sample.nonfinite:
                    self.found(key, lambda: describe_output(key, 0, sample))  # noqa: B023

    def found(self, key: Key, describe: Callable[[], str]) -> None:
        """Tell the first of each kind; what to say is found out only then, since a broken training is broken often."""
        is_first = all(finding.kind != key[1] for finding in self.findings)
        if not is_first and self.options.on_nonfinite != "raise":
            return
        text = describe()
        if is_first:
            self.findings.append(Finding(*key, text))
        if self.options.on_nonfinite == "raise":
            raise FloatingPointError(text)
        if self.options.on_nonfinite == "warn":
            warn_caller(text)

    def is_finite_forward(self, step: int) -> bool:
        """Whether all outputs of that step were finite, as far as they are known."""
        return not any(
            tally.total.nonfinite for (at, kind, _), tally in self.tallies.items() if (at, kind) == (step, OUTPUT)
        )


def is_being_traced() -> bool:
    """Whether torch.jit.trace or torch.export writes down what is computed: statistics must not get into that."""
    return bool(torch.jit.is_tracing()) or torch.compiler.is_compiling()  # type: ignore[attr-defined,no-untyped-call]


def must_wait(device: torch.device) -> bool:
    """Whether reading a number there makes Python wait for the device."""
    return device.type not in ("cpu", "meta")


class _OnOutput(Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, *rest: Any) -> None:
        session: MonitorSession = self.session
        if (session.in_pass and not session.recording) or len(rest) != 2 or module is not self.module:
            return  # the last: a shallow copy of a module shares its hooks
        if not session.is_elsewhere():
            if not session.in_pass:
                session.note_outside_call()
            if session.recording:
                session.record_output(module, (args, rest[0]), rest[1])
        elif session.is_foreign():
            return
        # in a backward as well: the graph of a reentrant checkpoint is that of its second run
        if session.recording and session.options.grads:
            session.watch(module, rest[1])


class _OnGradient(Hook):
    __slots__ = ("key",)

    def __init__(self, session: MonitorSession, key: Key) -> None:
        super().__init__(session)
        self.key = key

    def __call__(self, grad: Tensor | None) -> None:
        session: MonitorSession = self.session
        if grad is None:  # autograd passes None for an output that the loss does not use
            return
        session.tallies[self.key].calls += 1
        sample = session.add(self.key, grad)
        if sample is not None and sample.nonfinite:
            session.found(self.key, lambda: describe_gradient(self.key, sample, session.is_finite_forward(self.key[0])))


class _BeforeUpdate(Hook):
    """Keeps a copy of the parameters until the step is done."""

    __slots__ = ("copies", "last_update", "parameters")

    def __init__(self, session: MonitorSession, parameters: list[tuple[str, str, nn.Parameter]]) -> None:
        super().__init__(session)
        self.parameters = parameters
        self.last_update = -1
        self.copies: list[Tensor] = []

    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        session: MonitorSession = self.session
        if session.last_recorded > self.last_update and not session.is_foreign():
            self.copies = [parameter.detach().clone() for _, _, parameter in self.parameters]


class _AfterUpdate(Hook):
    __slots__ = ("before",)

    def __init__(self, session: MonitorSession, before: _BeforeUpdate) -> None:
        super().__init__(session)
        self.before = before

    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        session: MonitorSession = self.session
        before, copies = self.before, self.before.copies
        if not copies or session.is_foreign():
            return
        before.last_update, before.copies = session.last_recorded, []
        changes = [now.detach() - old for (*_, now), old in zip(before.parameters, copies, strict=True)]
        norms = [torch.linalg.vector_norm(one) for one in (*changes, *copies)]
        # read together: on an accelerator each reading waits for the device
        lengths = torch.stack([one.to(norms[0]) for one in norms]).tolist()
        sizes = zip(lengths[: len(changes)], lengths[len(changes) :], strict=True)
        for (module, own_name, parameter), change, (moved, size) in zip(before.parameters, changes, sizes, strict=True):
            name = f"{module}.{own_name}" if module else own_name
            session.had_gradient[name] = session.had_gradient.get(name, False) or parameter.grad is not None
            key = session.last_recorded, UPDATE, module
            tally = session.tallies[key]
            tally.calls += 1
            tally.change += moved * moved
            tally.size += size * size
            sample = session.add(key, change)
            if sample is not None and sample.nonfinite:
                session.found(key, lambda: describe_update(key, own_name, sample))  # noqa: B023
