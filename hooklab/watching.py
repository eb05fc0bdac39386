"""The hooks of :func:`hooklab.monitor`: on outputs, on their gradients, and around an optimizer's step.

Nothing that they compute may raise into the user's forward pass, backward pass or optimizer step: modules whose values
cannot be read are noted in ``unreadable``. The only exception is what the user asks for, ``on_nonfinite="raise"``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hooklab._shared.sessions import PassSession, is_being_traced, is_dead, remove_all
from hooklab._shared.trees import tensors
from hooklab.tallies import GRADIENT, OUTPUT, UPDATE, Range, Sample, measure, numbers_of, read, sample_now

if TYPE_CHECKING:
    from hooklab.monitoring import Monitor

Key = tuple[int, str, str]  # step, kind, module
Held = tuple[str, str, nn.Parameter]  # a watched module, a parameter's name in it, and the parameter
Waiting = tuple[Key, int, Tensor, Tensor]  # still on a device: whose, of how many values, and what `measure` gave
WEIGHTS = "weights"  # the parameters before an update: what the ratio needs, and no kind of row
_LIBRARIES = tuple(os.path.dirname(file) + os.sep for file in (torch.__file__, __file__))


class Finding(NamedTuple):
    """The first non-finite value of its kind: its step, its module, and a ``text`` that says what is known about it."""

    step: int
    kind: str
    module: str
    text: str


class MonitorSession(PassSession):
    def __init__(self, options: Monitor) -> None:
        super().__init__(options.model)
        self.options = options
        self.step = 0
        self.recording = True
        self.has_begun = False
        self.steps: list[int] = []  # the recorded ones
        self.samples: defaultdict[Key, Sample] = defaultdict(Sample)
        self.calls: Counter[Key] = Counter()
        self.findings: list[Finding] = []
        self.last_finite: dict[str, str] = {}  # in this step: for each kind, the module that was read last
        self.alive: dict[str, Tensor] = {}  # by module: which of its units gave something else than 0
        self.had_gradient: dict[str, bool] = {}  # by the name of a parameter
        self.awaited: set[str] = set()  # modules whose outputs have a hook for their gradient
        self.unreadable: set[str] = set()
        self.gradient_handles: list[Any] = []
        self.waiting: list[Waiting] = []

    def attach_inside(self) -> None:
        for name, module in self.options.hooked.items():
            self.after(module, partial(self.on_output, name), with_kwargs=True)
        for optimizer, parameters in self.options.updated:
            steps = _OptimizerSteps(self, parameters)
            self.handles.append(optimizer.register_step_pre_hook(steps.before))
            self.handles.append(optimizer.register_step_post_hook(steps.after))

    def close(self) -> None:
        try:
            super().close()
        finally:
            remove_all(self.gradient_handles)
            self.fetch()

    def new_pass(self) -> None:
        self.fetch()
        # hooks in a graph that is still alive stay: a loss may be made of two passes
        self.gradient_handles = [handle for handle in self.gradient_handles if not is_dead(handle)]
        self.step += self.has_begun
        self.has_begun = True
        self.recording = self.step % self.options.every == 0
        self.last_finite = {}

    @property
    def last_recorded(self) -> int:
        """The last recorded step, -1 before the first."""
        return self.steps[-1] if self.steps else -1

    @contextmanager
    def leaving_out(self, module: str) -> Iterator[None]:
        """Note the module if its values cannot be read: under vmap, on the meta device, in an odd subclass."""
        try:
            yield
        except Exception:
            self.unreadable.add(module)

    def on_output(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self.in_pass and not self.recording:
            return
        if not self.is_elsewhere():
            if not self.in_pass:
                self.note_outside_call()
            if self.recording:
                self.record_output(module, name, (args, kwargs), output)
        elif self.is_foreign():
            return
        # in a backward pass as well: the graph of a reentrant checkpoint is that of its second run
        if self.recording and self.options.grads:
            self.watch(name, output)

    def record_output(self, module: nn.Module, name: str, inputs: Any, output: Any) -> None:
        self.has_begun = True
        if self.last_recorded != self.step:
            self.steps.append(self.step)
        key = self.step, OUTPUT, name
        self.calls[key] += 1
        detail = f" in call {self.calls[key]}" if self.calls[key] > 1 else ""
        # the usual case first, since this runs at every call
        for tensor in (output,) if type(output) is Tensor else tensors(output):
            self.record(key, tensor, partial(self.where_it_was_made, tensor, module, inputs), detail)

    def watch(self, name: str, output: Any) -> None:
        """Record the gradients of an output when they arrive."""
        hook = partial(self.record_gradient, (self.step, GRADIENT, name))
        for tensor in tensors(output):
            with self.leaving_out(name):  # a tensor may refuse hooks
                if tensor.requires_grad:
                    _ = tensor.grad_fn  # brings a view's history up to date; see hook_gradient
                    self.gradient_handles.append(tensor.register_hook(hook))
                    self.awaited.add(name)

    def record_gradient(self, key: Key, grad: Tensor | None) -> None:
        if grad is not None:  # autograd passes None for an output that the loss does not use
            self.calls[key] += 1
            self.record(key, grad, partial(self.where_it_came_from, key))

    def record_update(self, module: str, own_name: str, parameter: nn.Parameter, old: Tensor) -> None:
        name = f"{module}.{own_name}" if module else own_name
        key = self.last_recorded, UPDATE, module
        change = None
        with self.leaving_out(module):
            self.had_gradient[name] = self.had_gradient.get(name, False) or parameter.grad is not None
            before, now = numbers_of(old), numbers_of(parameter)
            if before is not None and now is not None:
                change = now - before
                self.add((key[0], WEIGHTS, module), before)
        if change is not None:
            self.calls[key] += 1
            self.record(key, change, partial(before_the_step, old), f" to its {own_name}")

    def record(self, key: Key, tensor: Tensor, explain: Callable[[], str], detail: str = "") -> None:
        """Add a tensor's statistics, and report values that are not finite."""
        sample = self.add(key, tensor)
        if sample is not None and sample.nonfinite:
            self.found(key, sample, explain, detail)
        elif sample is not None:
            self.last_finite[key[1]] = key[2]

    def add(self, key: Key, tensor: Tensor) -> Sample | None:
        """Add a tensor's statistics to those of its step, kind and module; return them if they can be read now."""
        with self.leaving_out(key[2]):
            values = None if is_being_traced() else numbers_of(tensor)
            if values is None:
                return None
            if must_wait(values.device) and self.options.on_nonfinite != "raise":
                self.waiting.append((key, values.numel(), *measure(values, self.bounds(key))))
                self.note_alive(key, values)
                return None
            sample = sample_now(values, self.bounds(key))
            self.samples[key] = self.samples[key].merged(sample)
            self.note_alive(key, values)
            return sample
        return None

    def note_alive(self, key: Key, values: Tensor) -> None:
        known = self.alive.get(key[2])
        if key[1] != OUTPUT or values.ndim < 2:
            return
        if known is not None and not must_wait(known.device) and known.all():
            return
        alive = (values != 0).movedim(1 if values.ndim in (4, 5) else -1, 0).flatten(1).any(1)
        if known is None or known.shape == alive.shape:
            self.alive[key[2]] = alive if known is None else alive | known

    def fetch(self) -> None:
        """Read the numbers that wait on a device, all at once."""
        waiting, self.waiting = self.waiting, []
        alike: defaultdict[Any, list[Waiting]] = defaultdict(list)
        for one in waiting:
            alike[one[3].device, one[3].dtype].append(one)
        for group in alike.values():
            self.read_together(group)

    def read_together(self, group: list[Waiting]) -> None:
        try:
            counts = torch.stack([one[2] for one in group]).tolist()
            numbers = torch.stack([one[3] for one in group]).tolist()
        except Exception:  # not all of them can be read, such as those of a vmap that is over
            if len(group) == 1:
                self.unreadable.add(group[0][0][2])
            for one in group if len(group) > 1 else ():
                self.read_together([one])
            return
        for (key, values, *_), its_counts, its_numbers in zip(group, counts, numbers, strict=True):
            sample = read(its_counts, its_numbers, values, self.bounds(key))
            self.samples[key] = self.samples[key].merged(sample)
            if sample.nonfinite and key[1] != WEIGHTS:
                self.found(key, sample, str)

    def bounds(self, key: Key) -> Range | None:
        return self.options.ranges[key[2]] if key[1] == OUTPUT else None

    def found(self, key: Key, sample: Sample, explain: Callable[[], str], detail: str = "") -> None:
        """Report the first of each kind. It is explained only then, since a broken training is broken often."""
        is_first = all(finding.kind != key[1] for finding in self.findings)
        if not is_first and self.options.on_nonfinite != "raise":
            return
        step, kind, module = key
        what = {OUTPUT: "the output", GRADIENT: "the gradient of the output", UPDATE: "the update"}[kind]
        text = f"step {step}: {what} of {module!r}{detail} has {sample.nonfinite} of {sample.values} values inf or nan."
        with self.leaving_out(module):
            text = f"{text} {explain()}".rstrip()
        if is_first:
            self.findings.append(Finding(*key, text))
        if self.options.on_nonfinite == "raise":
            raise FloatingPointError(text)
        if self.options.on_nonfinite == "warn":
            warn_caller(text)

    def where_it_was_made(self, output: Tensor, module: nn.Module, inputs: Any) -> str:
        """What is known about a non-finite output, from the module's inputs, parameters and buffers."""
        came_in = [sample_now(values) for tensor in tensors(inputs) if (values := numbers_of(tensor)) is not None]
        if any(one.nonfinite for one in came_in):
            last = self.last_finite.get(OUTPUT)
            if last is None:
                return "Its input has some too, and no output was read before it: look at the data."
            return (
                f"Its input has some too. The last output read before it, of {last!r}, was finite: look at what runs "
                "between the two, and at the data."
            )
        held = {name: is_finite(one) for name, one in [*module.named_parameters(), *module.named_buffers()]}
        broken = [name for name, known in held.items() if known is False]
        unread = [name for name, known in held.items() if known is None]
        if broken:
            return (
                f"Its inputs are finite, but not its {' and '.join(broken)}: look at how the model was loaded or "
                "initialised, and at earlier steps."
            )
        if unread:
            return f"Its inputs are finite; its {' and '.join(unread)} cannot be read."
        largest = max((one.largest for one in came_in), default=0.0)
        limit = ""
        if output.dtype == torch.float16 and torch.isinf(output).any():
            limit = f" float16 holds no more than {torch.finfo(output.dtype).max:.0f}."
        return (
            f"Its inputs (largest magnitude {largest:.3g}), parameters and buffers are finite: the values were made "
            f"in this module.{limit}"
        )

    def where_it_came_from(self, key: Key) -> str:
        """What is known about a non-finite gradient, which comes from what uses the output."""
        outputs = [sample for (step, kind, _), sample in self.samples.items() if (step, kind) == (key[0], OUTPUT)]
        forward = "" if any(one.nonfinite for one in outputs) else "The outputs of this step are finite. "
        last = self.last_finite.get(GRADIENT)
        finite = "" if last is None else f" The last gradient before it, of {last!r}, was finite."
        return f"{forward}It was made in the backward pass of what comes after {key[2]!r} in the forward pass.{finite}"


def is_finite(tensor: Tensor) -> bool | None:
    """Whether all values are finite; None if they cannot be read."""
    try:
        values = numbers_of(tensor)
        return values is None or bool(values.isfinite().all())
    except Exception:
        return None


def before_the_step(old: Tensor) -> str:
    was = {True: "was finite", False: "was not finite", None: "cannot be read"}[is_finite(old)]
    return f"Before this optimizer step the parameter {was}."


def was_skipped(optimizer: Optimizer) -> bool:
    """Whether a GradScaler has the fused optimizer skip this step: its ``step()`` and the hooks run all the same."""
    found = getattr(optimizer, "found_inf", None)
    return type(found) is Tensor and bool(found.any())


def must_wait(device: torch.device) -> bool:
    """Whether reading a number there makes Python wait for the device."""
    return device.type not in ("cpu", "meta")


def warn_caller(text: str) -> None:
    """Warn at the line outside torch and this package; every time, even if the same text was shown before."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    file, line = ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(text, RuntimeWarning, file, line, registry={})


class _OptimizerSteps:
    """Copies the parameters before an optimizer's step, and measures afterwards how much they changed."""

    def __init__(self, session: MonitorSession, parameters: list[Held]) -> None:
        self.session = session
        self.parameters = parameters
        self.last_update = -1
        self.copies: list[tuple[Held, Tensor]] = []

    def is_due(self) -> bool:
        """Whether an update now belongs to a recorded step: to the current one, or to one without an update."""
        last = self.session.last_recorded
        return last > self.last_update or last == self.session.step

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.copies = []
        # a closure runs the passes that the update belongs to
        has_closure = any(callable(one) for one in (*args[1:], *kwargs.values()))
        if self.session.is_foreign() or not (has_closure or self.is_due()):
            return
        for held in self.parameters:
            with self.session.leaving_out(held[0]):
                self.copies.append((held, held[2].detach().clone()))

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        copies, self.copies = self.copies, []
        if copies and not was_skipped(optimizer) and self.is_due() and not self.session.is_foreign():
            self.last_update = self.session.last_recorded
            for held, old in copies:
                self.session.record_update(*held, old)
