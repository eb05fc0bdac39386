"""The check of exercise 11.5: a comm hook that keeps what it has not sent, tried with three processes that are threads.

The buckets are made up, and so is what the processes say to each other: the answer is given a `gather` that waits for
all, as the real one does. As DDP does, the second step has the parameters in another order, and later ones have two
buckets.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import Future as AnyFuture  # what then() of torch's Future returns
from torch.futures import Future

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import alike, fitting, remembered
from hooklab.course.exercises.trial import NotYet, StillTheStub, Trial, learners_error, tensor_text

RANKS = 3
SECONDS = 10.0
SHAPES = ((2, 2), (3,), (2,), (3,))
LAYOUTS = [
    [[0, 1, 2, 3]],
    [[3, 2, 0, 1]],
    [[3, 2], [1, 0]],
    [[3, 2], [1, 0]],
]  # step -> buckets -> numbers of parameters
WHEN = (
    "",
    "in the second step, where DDP has changed the order, ",
    "in the third step, with two buckets, ",
    "in the fourth step, ",
)


class Bucket:
    """What a comm hook asks of DDP's bucket."""

    def __init__(self, index: int, parameters: list[Tensor], gradients: list[Tensor], is_last: bool) -> None:
        self._index, self._parameters, self._is_last = index, parameters, is_last
        self._shapes, self._buffer = [one.shape for one in gradients], torch.cat([one.flatten() for one in gradients])

    def index(self) -> int:
        """Its number."""
        return self._index

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of the buffer."""
        return self._parameters

    def buffer(self) -> Tensor:
        """All gradients in a row."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Take another buffer."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the buffer."""
        parts = self._buffer.split([shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def is_last(self) -> bool:
        """Whether it is the last one of this step."""
        return self._is_last


def coarse(values: Tensor) -> Tensor:
    """Pack: how many, and of each the multiple of 4 next to zero, with its sign in the last bit.

    So a message of a part is no part of a message, and a mean of messages means nothing.
    """
    fours = (values / 4).trunc()
    return torch.cat([torch.tensor([len(values)]), 2 * fours.abs() + (fours < 0)]).to(torch.int16)


def from_coarse(message: Tensor, size: int) -> Tensor:
    """Unpack what `coarse` has packed; the sizes must fit."""
    if message[0] != size:
        raise ValueError(f"unpack got a message of {message[0]} numbers, and is asked for {size}")
    return 4.0 * (message[1:] // 2) * (1 - 2 * (message[1:] % 2))


class Meeting:
    """Where the processes exchange messages: each call waits for the other ones'."""

    def __init__(self) -> None:
        self.barrier, self.messages = threading.Barrier(RANKS), dict[int, Any]()

    def gather(self, rank: int) -> Callable[[Tensor], Future[list[Tensor]]]:
        """Return the function of one process."""

        def gather(message: Tensor) -> Future[list[Tensor]]:
            self.messages[rank] = message
            self.barrier.wait(SECONDS)
            everybodys = [self.messages[one].clone() for one in range(RANKS)]
            self.barrier.wait(SECONDS)
            future: Future[list[Tensor]] = Future()
            future.set_result(everybodys)
            return future

        return gather


Make = Callable[[Callable[..., Any], Callable[..., Any], Callable[..., Any]], Callable[..., Any]]


def observe(
    make: Make,
    told: Callable[[BaseException], Exception] | None = None,
    layouts: Sequence[Sequence[Sequence[int]]] = LAYOUTS,
) -> Iterator[Tensor]:
    """Yield, step by step and process by process, the gradients of all parameters that the hooks' futures hold."""
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    meeting = Meeting()
    hooks = [make(coarse, from_coarse, meeting.gather(rank)) for rank in range(RANKS)]
    generator = torch.Generator().manual_seed(0)
    for layout in layouts:
        grads = [
            [torch.randint(-36, 37, one.shape, generator=generator) / 4 for one in parameters] for _ in range(RANKS)
        ]
        results: dict[tuple[int, int], Any] = {}

        def work(rank: int, layout: Any = layout, grads: Any = grads, results: Any = results) -> None:
            try:
                with torch.no_grad():
                    for index, numbers in enumerate(layout):
                        bucket = Bucket(
                            index,
                            [parameters[n] for n in numbers],
                            [grads[rank][n] for n in numbers],
                            index == len(layout) - 1,
                        )
                        future = hooks[rank](None, bucket)
                        results[rank, index] = future.wait() if isinstance(future, AnyFuture) else _NoFuture(future)
            except BaseException as error:
                results[rank, -1] = error
                meeting.barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        errors = [results[rank, -1] for rank in range(RANKS) if (rank, -1) in results]
        errors.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
        if errors or any(thread.is_alive() for thread in threads):
            raise told(errors[0]) if told and errors else (errors or [TimeoutError("a process does not end")])[0]
        for rank in range(RANKS):
            yield _in_order(layout, [results[rank, index] for index in range(len(layout))], parameters)


class _NoFuture(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _in_order(layout: Sequence[Sequence[int]], buffers: list[Any], parameters: list[nn.Parameter]) -> Any:
    """Return the buffers' numbers in the order of the parameters; or what is no buffer of the right size, as it is."""
    parts: dict[int, Tensor] = {}
    for numbers, buffer in zip(layout, buffers, strict=True):
        sizes = [parameters[n].numel() for n in numbers]
        if not isinstance(buffer, Tensor) or buffer.numel() != sum(sizes):
            return buffer
        parts.update(zip(numbers, buffer.flatten().split(sizes), strict=True))
    return torch.cat([parts[number] for number in sorted(parts)])


def _program(
    remember: bool = True,
    by: str = "parameter",
    of_gradient_only: bool = False,
    scale: float = 1 / RANKS,
    sign: float = 1.0,
    own: bool = False,
    of_mean: bool = False,
    adds_up: bool = False,
) -> Make:
    """Return a right answer, or one with a misconception."""

    def make(pack: Any, unpack: Any, gather: Any) -> Any:
        kept: dict[Any, Tensor] = {}

        def hook(state: Any, bucket: Any) -> Any:
            parameters, gradient = bucket.parameters(), bucket.buffer().clone()
            sizes = [one.numel() for one in parameters]
            keys = [one.shape if by == "shape" else one for one in parameters]
            if by == "bucket":
                old = kept.get(bucket.index(), torch.zeros(len(gradient)))
                old = old if len(old) == len(gradient) else torch.zeros(len(gradient))
            else:
                old = torch.cat([kept.get(key, torch.zeros(size)) for key, size in zip(keys, sizes, strict=True)])
            wanted = gradient + sign * old if remember else gradient
            message = pack(wanted)
            messages = gather(message).wait()
            mean = scale * torch.stack([unpack(one, len(wanted)) for one in messages]).sum(0)
            sent = mean if of_mean else unpack(message, len(wanted))
            left = (gradient if of_gradient_only else wanted) - sent + adds_up * old
            kept.update({bucket.index(): left} if by == "bucket" else zip(keys, left.split(sizes), strict=True))
            future: Future[Tensor] = Future()
            future.set_result(sent if own else mean)
            return future

        return hook

    return make


PROGRAMS: dict[str, Make] = {
    "what was not sent is lost: it is not remembered, or not added to the next gradient": _program(remember=False),
    "one memory for a bucket: parameters move from bucket to bucket, so remember each one's error": _program(
        by="bucket"
    ),
    "one memory for all parameters of a shape: each parameter has its own error": _program(by="shape"),
    "the old memory counts twice: it is in what was to be sent already": _program(adds_up=True),
    "what is remembered is the gradient minus what was sent: the old memory is in neither": _program(
        of_gradient_only=True
    ),
    "the sum of the messages, not their mean": _program(scale=1.0),
    "half the sum: here are three processes, and there may be any number": _program(scale=1 / 2),
    "the memory is subtracted: what was not sent is still owed": _program(sign=-1.0),
    "its own message, and not everybody's": _program(own=True),
    "remembered is what all have not sent: each process owes what *it* has not sent": _program(of_mean=True),
}


@exercise("11.5", "A memory for any compression")
def a_memory_for_any_compression(trial: Trial) -> str:
    def make(pack: Any, unpack: Any, gather: Any) -> Any:
        calls: list[str] = []

        def noted(function: Any, name: str) -> Any:
            @wraps(function)
            def call(*args: Any, **named: Any) -> Any:
                calls.append(name)
                return function(*args, **named)

            return call

        hook = trial.call(noted(pack, "pack"), unpack, noted(gather, "gather"))
        if not callable(hook):
            likely = "forgotten return" if hook is None else None
            raise NotYet("your function returns no hook", expected="hook(state, bucket)", got=repr(hook), likely=likely)
        if "bucket" not in inspect.signature(hook).parameters:
            raise NotYet(
                "your hook has no argument called `bucket`", expected="hook(state, bucket): DDP asks for the name"
            )

        def counted(state: Any, bucket: Any) -> Any:
            calls.clear()
            future = hook(state, bucket)
            for name in ("pack", "gather"):
                if calls.count(name) > 1:
                    raise NotYet(
                        f"your hook calls {name} {calls.count(name)} times for one bucket",
                        expected="one message for a bucket: packing may be slow or random, and sending costs",
                    )
            return future

        return counted

    seen: list[Any] = []
    wanted = list(observe(_program()))
    for place, got in enumerate(observe(make, lambda error: _raised(error, trial, make))):
        seen.append(got)
        where = WHEN[place // RANKS]
        if isinstance(got, _NoFuture):
            likely = "forgotten return" if got.value is None else "a future: return what `.then(…)` gives"
            raise NotYet(
                "your hook returns no Future",
                expected="a torch.futures.Future",
                got=repr(got.value)[:80],
                likely=likely,
            )
        if not isinstance(got, Tensor) or got.shape != wanted[0].shape:
            raise NotYet(
                f"{where}the future's value is no buffer of this bucket",
                expected="a tensor as long as it",
                got=tensor_text(got),
                likely="a `return` is missing in the function that makes the value" if got is None else None,
            )
    for place, (got, right) in enumerate(zip(seen, wanted, strict=True)):
        if not alike(got, right):
            raise NotYet(
                f"{WHEN[place // RANKS]}process {place % RANKS} gets another gradient",
                expected=tensor_text(right),
                got=tensor_text(got),
                likely=fitting([seen], {words: partial(_observe_program, words) for words in PROGRAMS}, [None]),
            )
    return "in four steps, over changing buckets, each process gets the mean of what was sent, and nothing is lost"


@remembered
def _observe_program(words: str, _: None) -> list[Tensor]:
    return list(observe(PROGRAMS[words]))


def _raised(error: BaseException, trial: Trial, make: Make) -> Exception:
    if isinstance(error, NotImplementedError):
        return StillTheStub()
    if isinstance(error, NotYet):
        return error
    fault = learners_error(error, "your hook")
    return NotYet(fault.missing, expected="no exception", likely=_likely(str(error), make))


def _likely(words: str, make: Make) -> str | None:
    if "'torch._C.Future' object" in words or "'Future' object" in words:
        return "the future itself: its `.value()` is the list of messages"
    if "Default process group has not been initialized" in words:
        return "no process group is here: the number of processes is the length of the list of messages"
    if any(one in words for one in ("must match the size", "split_with_sizes", "numbers, and is asked for")):
        try:
            list(observe(make, layouts=LAYOUTS[:1] * len(LAYOUTS)))
        except Exception:
            return None  # it has another reason
        return "another bucket than before: parameters move from bucket to bucket, so remember each one's error"
    return None
