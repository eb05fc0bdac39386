"""The exercises of lesson 11: hooks in models that are copied, loaded, compiled, or trained in several processes."""

from __future__ import annotations

import copy
import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import Future as AnyFuture  # what then() of torch's Future returns
from torch.futures import Future
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.faults import NotYet, StillTheStub
from hooklab.course.exercises.frames import kind_of
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import expect_handle, expect_unused
from hooklab.course.exercises.trial import Trial
from hooklab.course.processes import ProcessesFailed, launch

# --- 11.1


class Labelled(torch.Tensor):
    """A tensor of a class of its own, as images and masks have in some libraries."""


def deep() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.BatchNorm1d(3))


def carrying(model: nn.Module, at: str, **attributes: Any) -> nn.Module:
    """Put attributes on a module of a model, and return the model."""
    for name, value in attributes.items():
        setattr(model.get_submodule(at), name, value)
    return model


def with_a_buffer_that_is_not_saved() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3))
    model[0].register_buffer("table", torch.zeros(6), persistent=False)
    return carrying(model, "0", seen=torch.zeros(2))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a model that carries nothing": deep,
    "a model with a tensor on a layer": lambda: carrying(deep(), "1", seen=torch.zeros(10, 3), note="not a tensor"),
    "a model with a tensor on a layer deep inside": lambda: carrying(deep(), "0.0", seen=torch.zeros(7)),
    "a model with a tensor on the model itself": lambda: carrying(deep(), "", seen=torch.zeros(5)),
    "a model with a row of a large tensor": lambda: carrying(deep(), "0", row=torch.zeros(100, 4)[:1]),
    "a model with a float64 tensor": lambda: carrying(deep(), "0", seen=torch.zeros(3, dtype=torch.float64)),
    "a model with an output that has a graph": lambda: carrying(
        deep(), "0", last=torch.ones(4, requires_grad=True) * 2
    ),
    "a model with a buffer that isn't saved": with_a_buffer_that_is_not_saved,
    "a model with a tensor whose name begins with _": lambda: carrying(deep(), "0", _cache=torch.zeros(4)),
    "a model with a tensor of another class": lambda: carrying(deep(), "0", kept=torch.zeros(7).as_subclass(Labelled)),
    "a copied model with a row of a large tensor": lambda: copy.deepcopy(
        carrying(deep(), "0", row=torch.zeros(9, 4)[0])
    ),
    "a model with two rows of one tensor": lambda: carrying(
        deep(), "0", **dict(zip("ab", torch.zeros(2, 3), strict=True))
    ),
}


@exercise(
    "11.1",
    "What does this model carry?",
    worlds=tuple(MODELS),
    verified="every tensor on twelve models is found, at any depth, with all the memory that it keeps alive",
)
def what_a_model_carries(trial: Trial, world: str) -> Pairs:
    model = MODELS[world]()
    before = [list(vars(module)) for module in model.modules()]
    found = trial.call(model)
    same = before == [list(vars(module)) for module in model.modules()]
    yield "are all attributes still on the modules?", Claim(same, "yes: only look", "no"), "removes-them"
    yield "the kind of your result", kind_of(found)
    why = "lists-what-has-a-table" if world == "a model that carries nothing" else "other-names"
    yield f"the names, for {world}", sorted(found, key=str), why
    yield f"the bytes, for {world}", found, "other-bytes"


# --- 11.2


class Attention(nn.Module):
    """The layer of the new kind: q is of the given height, k of the second one."""

    def __init__(self, q: int = 2, k: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.qk = nn.Linear(2, q + k, bias=bias)


def old(prefix: str = "", q: int = 2, k: int = 2, without: str = "") -> dict[str, Tensor]:
    """Return a checkpoint of the old kind, without the names that end in `without`."""
    shapes = {"q.weight": (q, 2), "k.weight": (k, 2), "q.bias": (q,), "k.bias": (k,)}
    return {
        prefix + name: 10.0 * number + torch.arange(torch.Size(shape).numel()).reshape(shape)
        for number, (name, shape) in enumerate(shapes.items())
        if not without or not name.endswith(without)
    }


def with_a_part() -> nn.Module:
    model = Attention()
    model.part = nn.ModuleDict({"q": nn.Linear(2, 2), "k": nn.Linear(2, 2)})
    return model


def one_of_each() -> dict[str, Tensor]:
    new = {"qk.weight": torch.arange(8.0).reshape(4, 2), "qk.bias": torch.arange(4.0)}
    return old("0.") | {f"1.{name}": value for name, value in new.items()}


CHECKPOINTS: dict[str, tuple[Callable[[], nn.Module], str, Mapping[str, Tensor]]] = {
    "an old checkpoint": (Attention, "", old()),
    "a new checkpoint": (Attention, "", {"qk.weight": torch.ones(4, 2), "qk.bias": torch.ones(4)}),
    "an old checkpoint of a larger model": (lambda: nn.Sequential(nn.ReLU(), Attention()), "1", old("1.")),
    "a checkpoint of a layer with a part that has a q and a k": (with_a_part, "", old() | old("part.")),
    "a checkpoint of a layer without bias": (lambda: Attention(bias=False), "", old(without="bias")),
    "a checkpoint in which the layer is called seq": (lambda: nn.ModuleDict({"seq": Attention()}), "seq", old("seq.")),
    "a checkpoint in which q is higher than k": (lambda: Attention(3, 1), "", old(q=3, k=1)),
    "a checkpoint with an old and a new layer": (lambda: nn.Sequential(Attention(), Attention()), "0", one_of_each()),
    **{
        f"a checkpoint without {name}": (Attention, "", old(without=name))
        for name in ("k.weight", "q.weight", "k.bias", "q.bias")
    },
}


@exercise(
    "11.2",
    "Two layers become one",
    worlds=tuple(CHECKPOINTS),
    verified="old and new checkpoints load, alone and inside a model, and the error names what a checkpoint lacks",
)
def two_layers_become_one(trial: Trial, world: str) -> Pairs:
    make, at, state = CHECKPOINTS[world]
    model = make()
    handle = trial.call(model.get_submodule(at), may_hook=True, may_change=True)
    expect_handle(handle, "register_load_state_dict_pre_hook")
    for parameter in model.parameters():
        parameter.data.zero_()
    is_whole = "without q" not in world and "without k" not in world
    names = names_in_the_error(trial, model, state)
    yield f"the names in the error, for {world}", names, "fails-to-load" if is_whole else "other-error"
    yield f"what is loaded from {world}", model.state_dict(), "other-numbers" if is_whole else "loads-without-a-half"
    yield f"the names in the error in a second loading, for {world}", names_in_the_error(trial, model, state), "once"
    trial.run(handle.remove)
    trial.expect_none_left()
    without = names_in_the_error(trial, model, state)
    yield f"the names in the error after handle.remove(), for {world}", without, "stays"


def names_in_the_error(trial: Trial, model: nn.Module, state: Mapping[str, Tensor]) -> list[str]:
    """Load a checkpoint; return the names with which the strict loading is not content."""
    try:
        trial.run(partial(model.load_state_dict, {name: value.clone() for name, value in state.items()}))
    except NotYet as fault:
        words = str(fault.__cause__)
        if not words.startswith("Error(s) in loading state_dict"):
            raise
        return sorted(re.findall(r'"([\w.]+)"', words) + re.findall(r"size mismatch for [\w.]+", words))
    return []


# --- 11.3


def add_hundred(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output + 100


def model_to_compile() -> nn.Module:
    """A model with whole numbers; 1.0 is also the end of another layer's name, which comes before it."""
    before = nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(2, 2)))
    model = nn.Sequential(before, nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1)), nn.Linear(1, 1))
    for parameter in model.parameters():
        parameter.data = torch.arange(2.0, parameter.numel() + 2).reshape(parameter.shape)
    return model.requires_grad_(False)


@exercise(
    "11.3",
    "A hook that the compiler sees",
    worlds=(("the layer 1.0", "1.0"), ("the whole model", "")),
    verified="the hook runs in compiled calls, on a layer and on the whole model, until it is removed",
)
def a_hook_that_the_compiler_sees(trial: Trial, world: tuple[str, str]) -> Pairs:
    where, name = world
    runs: list[int] = []
    torch.compiler.reset()
    compiled: Any = torch.compile(model_to_compile(), backend=partial(counting_runs, runs))
    x = torch.ones(1, 2)
    try:
        compiled(x)
        handle = trial.call(compiled, name, add_hundred, may_hook=True, may_change=True)
        expect_handle(handle, "register_forward_hook")
        expect_unused(handle)
        kind = kind_of_hook(handle, compiled)
        why = {"forward pre-hook of this model": "pre-hook", "hook of another object": "another-model"}.get(kind)
        yield "the kind of hook that your handle removes", kind, why
        with torch.compiler.set_stance("force_eager"):  # what is registered, whatever is recorded
            yield f"~run eagerly, with the hook on {where}", compiled(x).item()
        runs.clear()
        yield f"the result of the next compiled call, with the hook on {where}", compiled(x).item()
        yield f"the result of a second compiled call, with the hook on {where}", compiled(x).item()
        trial.run(handle.remove)
        yield f"the result after handle.remove(), with the hook on {where}", compiled(x).item(), "hook-stays"
        if not runs:  # the hook may be one that no graph can hold
            torch.compiler.reset()
            compiled(x)
        yield "is the model still compiled?", Claim(bool(runs), "yes: it records a new graph", "no"), "always-eager"
    finally:
        torch.compiler.reset()


def counting_runs(runs: list[int], graph: Any, inputs: Any) -> Callable[..., Any]:
    """A backend for torch.compile that notes each run of a graph."""

    def run(*values: Any) -> Any:
        runs.append(1)
        return graph.forward(*values)

    return run


def kind_of_hook(handle: Any, compiled: nn.Module) -> str:
    if not isinstance(handle, RemovableHandle):
        return "forward hook of this model"  # something of the learner's that can remove it
    table = handle.hooks_dict_ref()
    kinds = ("forward hook", "forward pre-hook")
    for kind, attribute in zip(kinds, ("_forward_hooks", "_forward_pre_hooks"), strict=True):
        if any(table is vars(module)[attribute] for module in compiled.modules()):
            return f"{kind} of this model"
    own = [table is one for module in compiled.modules() for one in vars(module).values()]
    return "another hook of this model" if any(own) else "hook of another object"


# --- 11.4

SECONDS = 20.0
WAITED = ("closed by peer", "reset by peer", "Timed out", "Connection refused")
# words of what a process printed last -> the label of the reason
LAST_WORDS = {
    "NameError": "unknown-name",
    "Default process group": "no-process-group",
    "'NoneType' object has no attribute 'tolist'": "no-gradient",
}


def ten_times_the_loss(main: Callable[[], Any]) -> Callable[[], Any]:
    """Let every backward pass in `main` begin with ten times the loss, which no formula can know."""

    def run() -> Any:
        autograd: Any = torch.autograd  # Tensor.backward looks its function up there
        usual = {name: getattr(autograd, name) for name in ("backward", "grad")}
        for name, function in usual.items():
            setattr(autograd, name, lambda loss, *args, of=function, **options: of(10 * loss, *args, **options))
        try:
            return main()
        finally:
            vars(autograd).update(usual)

    return run


@exercise(
    "11.4",
    "Fix it: the gradient of everybody",
    worlds=(3,),  # it is written for two; a third process takes seconds to start
    verified="with three processes, each returns the average over all of them, and it follows the loss",
)
def the_gradient_of_everybody(trial: Trial, processes: int) -> Pairs:
    answer = trial.answer
    is_function = inspect.isfunction(answer) and answer.__name__ != "<lambda>"
    defined = Claim(is_function, "yes: each process runs its source", "no")
    yield "is your answer a function defined with `def`?", defined, "not-a-function"
    if not is_function:
        return
    arguments = list(inspect.signature(answer).parameters)
    yield "the names of your function's arguments", arguments, "takes-arguments"
    if arguments:
        return
    end = "does every process come to its end?"
    try:
        results = launch(answer, processes=processes, seconds=SECONDS, show=False, around=ten_times_the_loss)
    except FileNotFoundError:
        yield end, Claim(False, "yes, with a result", "one ends before your function returns"), "exits"
    except OSError as error:
        raise NotYet("the source of your function cannot be found", expected="a function defined in a cell") from error
    except ProcessesFailed as failed:
        lasts = [last_words(text) for text in failed.outputs]
        if any(last.startswith("NotImplementedError") for last in lasts):
            raise StillTheStub from failed
        told = "; ".join(f"process {rank}: {last[:120] or 'ended without a word'}" for rank, last in enumerate(lasts))
        yield end, Claim(False, "yes, with a result", told), why_failed(lasts, failed)
    else:
        are_lists = all(isinstance(one, list) for one in results)
        yield "~what the processes return, as lists", [listed(one) for one in results]
        what = "what the three processes return, with ten times the loss"
        yield what, results, "not-the-average" if are_lists else why_no_lists(results)


def listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def why_no_lists(results: Sequence[Any]) -> str | None:
    missing = [one is None for one in results]
    return "forgotten-return" if all(missing) else "not-in-every-process" if any(missing) else "no-list"


def why_failed(lasts: Sequence[str], failed: ProcessesFailed) -> str | None:
    spoken = [last for last in lasts if last]  # the first error ends the others, some before they say anything
    for words, label in LAST_WORDS.items():
        if spoken and all(words in last for last in spoken):
            return label
    waited = [any(words in last for words in WAITED) for last in lasts]
    is_late = all(isinstance(end, str) for end in failed.ends)
    return "waits-for-others" if (any(waited) and not all(waited)) or is_late else None


def last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any(line.startswith("Timeout (") for line in lines):
        at = next((line for line in lines if line.startswith("File") and "site-packages" not in line), "")
        return f"stood still {at}"
    return re.sub(r"\[/\S+:\d+\] ", "", lines[-1]) if lines else ""  # without the place in gloo's source


# --- 11.5: one process has the learner's hook; the messages of the others are made up

SHAPES = ((2, 2), (3,), (2,), (3,))
STEPS: tuple[tuple[str, list[list[int]]], ...] = (
    ("the first step", [[0, 1, 2, 3]]),
    ("the second step, in which DDP has changed the order", [[3, 2, 0, 1]]),
    ("the third step, with two buckets", [[3, 2], [1, 0]]),
    ("the fourth step", [[3, 2], [1, 0]]),
)  # what is special, and for each bucket the numbers of its parameters


class Bucket:
    """What a comm hook asks of DDP's bucket."""

    def __init__(self, index: int, parameters: list[Tensor], gradients: list[Tensor], is_last: bool) -> None:
        self.index, self.parameters, self.is_last = (lambda: index), (lambda: parameters), (lambda: is_last)
        self.row = torch.cat([one.flatten() for one in gradients])
        self.shapes = [one.shape for one in gradients]

    def buffer(self) -> Tensor:
        return self.row

    def set_buffer(self, buffer: Tensor) -> None:
        self.row = buffer

    def gradients(self) -> list[Tensor]:
        parts = torch.split(self.row, [shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def coarse(values: Tensor) -> Tensor:
    """Pack values: their number, then each as a multiple of 4, rounded toward zero, with its sign in the last bit.

    So a part's message is not a slice of the whole's message, and a mean of messages means nothing.
    """
    fours = (values / 4).trunc()
    return torch.cat([torch.tensor([len(values)]), 2 * fours.abs() + (fours < 0)]).to(torch.int16)


def from_coarse(message: Tensor, size: int) -> Tensor:
    if message[0] != size:
        raise ValueError(f"unpack got a message of {message[0]} numbers, and is asked for {size}")
    return 4.0 * (message[1:] // 2) * (1 - 2 * (message[1:] % 2))


class Arrived(Future[list[Tensor]]):
    """The messages of all. As where they take time, its value is there after wait(), or in a function for then()."""

    is_here = False

    def wait(self) -> list[Tensor]:
        self.is_here = True
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        def run(done: Any) -> Any:
            self.is_here = True
            return callback(self)

        return super().then(run)

    def value(self) -> list[Tensor]:
        if not self.is_here:
            raise RuntimeError("the messages are still on their way")
        return super().value()


class Process:
    """One process of several: it gives the answer its functions, and notes what the hook does with a bucket."""

    def __init__(self, trial: Trial, others: int, rank: int) -> None:
        self.others, self.rank = others, rank
        self.packed: list[Tensor] = []
        self.sent: list[Tensor] = []
        self.random = torch.Generator().manual_seed(rank)
        self.hook = trial.call(self.pack, from_coarse, self.gather)

    def pack(self, values: Tensor) -> Tensor:
        self.packed.append(values.detach().clone())
        return coarse(values)

    def gather(self, message: Tensor) -> Future[list[Tensor]]:
        self.sent.append(message)
        size = self.packed[-1].numel() if self.packed else 0
        messages = [coarse(4 * self.numbers(size)) for _ in range(self.others)]
        messages.insert(self.rank, message.clone())
        arrived = Arrived()
        arrived.set_result(messages)
        return arrived

    def numbers(self, *shape: int) -> Tensor:
        return torch.randint(-36, 37, shape, generator=self.random).float()

    def step(self, trial: Trial, parameters: list[Tensor], layout: Sequence[Sequence[int]]) -> Iterator[Any]:
        """Call the hook with the buckets of a step, which have new gradients, and yield what it returns."""
        gradients = [self.numbers(*one.shape) / 4 for one in parameters]
        for index, numbers in enumerate(layout):
            self.packed.clear()
            self.sent.clear()
            of_bucket = [parameters[n] for n in numbers], [gradients[n] for n in numbers]
            yield trial.run(self.hook, None, Bucket(index, *of_bucket, index == len(layout) - 1))


@exercise(
    "11.5",
    "A memory for any compression",
    worlds=((2, 1, False), (1, 0, False), (3, 3, True)),  # how many others, its own rank, is there a second hook
    verified="over changing buckets, and with two, three and four processes, the mean is right and nothing is lost",
)
def a_memory_for_any_compression(trial: Trial, world: tuple[int, int, bool]) -> Pairs:
    others, rank, is_second = world
    parameters: list[Tensor] = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    first, process = Process(trial, others, 0), Process(trial, others, rank)
    kind = "function" if callable(process.hook) else kind_of(process.hook)
    yield "the kind of what your function returns", kind, "no-hook"
    if not callable(process.hook):
        return
    names = list(inspect.signature(process.hook).parameters)
    takes = Claim("bucket" in names, "yes: DDP asks for the name", "no")
    yield "has your hook an argument called `bucket`?", takes, "other-name"
    for when, layout in STEPS:
        if is_second:
            when = f"{when}, with a second hook for the same parameters"
            with torch.no_grad():
                list(first.step(trial, parameters, layout))
        for future in process.step(trial, parameters, layout):
            calls = [len(process.packed), len(process.sent)]
            yield "how many messages your hook packs and sends for one bucket", calls, "messages"
            yield f"the row that your hook packs in {when}", process.packed[0], "other-row"
            yield "what your hook returns", "Future" if isinstance(future, AnyFuture) else kind_of(future), "no-future"
            filled = is_filled(future)
            yield "is the Future filled?", Claim(filled, "yes", "not within a second"), "never-filled"
            if not filled:
                return
            value = trial.run(future.wait)
            row = value.flatten() if isinstance(value, Tensor) else value
            yield f"the value of the Future in {when}", row, "other-value"


def is_filled(future: Any) -> bool:
    """Whether a Future has its value, or gets it from another thread of the learner's within a second."""
    until = time.monotonic() + 1
    while not future.done() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(future.done())
