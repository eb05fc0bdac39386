"""The exercises of lesson 8: the first value that is not finite, and six trainings that do not learn."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hooklab import leftover_hooks
from hooklab.course.exercises.exercise import Pairs, exercise
from hooklab.course.exercises.records import Claim
from hooklab.course.exercises.scenes import runs_counted
from hooklab.course.exercises.trial import Trial
from hooklab.course.exercises.values import tensor_text
from hooklab.course.lesson08.clinic import STEPS, Training, examine, patient
from hooklab.course.lesson08.evidence import DIAGNOSES, supports
from hooklab.health import Health

# --- 8.1: where the first inf or nan was made


class Part(nn.Module):
    """A module whose forward is a function of itself and its inputs."""

    def __init__(self, function: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(self, *args)


def part(function: Callable[..., Tensor]) -> Part:
    return Part(lambda self, *args: function(*args))


def row(**parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts))


def twice(inner: nn.Module) -> Part:
    return Part(lambda self, x: self.rest(self.part(self.part(x))), part=inner, rest=nn.ReLU())


NAN = math.nan
MODELS: list[tuple[str, Callable[[], nn.Module], Any]] = [
    ("everything is finite", lambda: row(a=nn.ReLU(), b=nn.Tanh()), [[1.0, -2.0]]),
    ("exp overflows to inf", lambda: row(a=nn.ReLU(), b=part(torch.exp), c=nn.Tanh()), [[1.0, 90.0]]),
    ("log of a negative number gives nan", lambda: row(a=nn.Identity(), b=part(torch.log)), [[1.0, -7.0, 2.0]]),
    ("log of 0 gives -inf", lambda: row(a=nn.ReLU(), b=part(torch.log)), [[4.0, -7.0]]),
    ("a submodule of a submodule", lambda: row(a=row(x=nn.ReLU(), y=part(torch.exp)), b=nn.ReLU()), [[100.0]]),
    ("inf twice, and a finite output", lambda: row(a=part(torch.exp), b=part(torch.log), c=nn.Tanh()), [[200.0, 1.0]]),
    ("the input already contains nan", lambda: row(a=nn.ReLU(), b=nn.Tanh()), [[1.0, NAN]]),
    ("a module is used twice and its second use overflows", lambda: twice(part(torch.exp)), [[5.0, 1.0]]),
    ("a module is used twice and its first use overflows", lambda: twice(part(torch.exp)), [[95.0, 1.0]]),
    ("the model's own forward takes a log", lambda: Part(lambda self, x: self.a(x).log(), a=nn.ReLU()), [[-3.0, 2.0]]),
    ("only the sum of the output is inf", lambda: row(a=part(lambda x: x * 1.5e38), b=nn.Tanh()), [[2.0] * 3]),
    (
        "a module with two inputs, the second larger",
        lambda: Part(lambda self, x: self.join(x, self.a(x)), a=part(lambda x: x * 1e20), join=part(torch.div)),
        [[0.0, 3.0]],
    ),
    (
        "a module with two inputs, the first larger",
        lambda: Part(lambda self, x: self.join(self.a(x), x), a=part(lambda x: x * 1e20), join=part(torch.div)),
        [[0.0, 3.0]],
    ),
    (
        "a module receives one finite input and one nan",
        lambda: Part(lambda self, x: self.join(self.a(x.log()), x), a=nn.Identity(), join=part(torch.add)),
        [[-1.0, 2.0]],
    ),
    ("only the second sample breaks", lambda: row(a=nn.Identity(), b=part(torch.exp)), [[1.0, 2.0], [3.0, 99.0]]),
]


# the reason for a difference in these models, if no misconception fits
WHY = {
    "exp overflows to inf": "inf-counts",
    "log of 0 gives -inf": "inf-counts",
    "a submodule of a submodule": "inside",
    "the input already contains nan": "given-nan",
}


@exercise(
    "8.1",
    "Where the first nan was made",
    worlds=range(len(MODELS)),
    verified="the module that made the first inf or nan, and the range of its inputs, in 15 models",
)
def the_first_nonfinite(trial: Trial, number: int) -> Pairs:
    text, make, numbers = MODELS[number]
    model = make()
    with runs_counted(model) as runs:
        got = trial.call(model, torch.tensor(numbers))
    yield "calls of `model.forward(…)` that bypass the model's hooks", runs.forwards - runs.calls, "forward-alone"
    yield "how many times the model ran", runs.calls, "runs-twice"
    pair = isinstance(got, tuple | list) and len(got) == 2
    why = WHY.get(text) if pair or got is None else None
    yield f"your result, if {text}", "a pair" if pair else tensor_text(got), why
    if pair:
        name, largest = got
        label = "module-for-name" if isinstance(name, nn.Module) else why
        yield f"the name, if {text}", name, label
        yield f"the largest magnitude, if {text}", largest.item() if isinstance(largest, Tensor) else largest


# --- 8.2 to 8.7: the patients

ON_THE_PAGE = 0  # the first weights of the patient whose picture the learner has seen
SEEDS = (3, 4)  # others, for the mended training
# patient -> its diagnosis, and the accuracy that it reaches once fixed
ILLNESS = {
    "A": ("dead", 0.75),
    "B": ("vanishing", 0.75),
    "C": ("saturated", 0.85),
    "D": ("not in the optimizer", 0.8),
    "E": ("detached", 0.7),
    "F": ("nan in the backward", 0.75),
}


@functools.cache
def examined(name: str, seed: int = ON_THE_PAGE) -> tuple[Training, Health]:
    """A patient after a training under a monitor, unmended."""
    training = patient(name, seed)
    return training, examine(training, *[known for known, _ in training.model.named_modules() if known])


def treated(name: str, trial: Trial, seed: int) -> Pairs:
    """The diagnosis, compared with what a monitor saw; then the mended training, which is run."""
    examined(name)  # before the answer runs, which may change what the examination uses
    training = patient(name, seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed records a traceback for each kind of device
        answer = trial.call(training, may_change=True)
        is_pair = isinstance(answer, tuple | list) and [type(one) for one in answer] == [str, str]
        kind = "a module's name and a diagnosis, two strings"
        label = "forgotten-return" if answer is None else "not-a-pair"
        yield "your diagnosis", Claim(is_pair, kind, tensor_text(answer)), label
        yield "~your diagnosis", answer
        if is_pair:
            yield from diagnosed(name, seed, *answer)
        yield from still_a_training(training, may_hook=name == "E")
        yield from mended(name, training, seed)


def diagnosed(name: str, seed: int, module: str, cause: str) -> Pairs:
    on_the_page, health = examined(name)
    names = [known for known, _ in on_the_page.model.named_modules() if known]
    label = "cause-before-module" if module in DIAGNOSES else "unknown-cause"
    yield "the diagnosis that you give", Claim(cause in DIAGNOSES, ", ".join(map(repr, DIAGNOSES)), repr(cause)), label
    yield "the module that you name", Claim(module in names, ", ".join(names), repr(module)), "unknown-module"
    speaks, seen = supports(health, on_the_page, module, cause)
    right = cause == ILLNESS[name][0]
    if right and not speaks:  # in the learner's own copy another module may be the one
        speaks = supports(examined(name, seed)[1], examined(name, seed)[0], module, cause)[0]
    label = "wrong-module" if right else "wrong-cause"
    yield "your diagnosis, compared with what the monitor saw", Claim(speaks, DIAGNOSES[cause], seen), label
    stops_it = Claim(right, "what keeps this training from learning", f"{cause!r}: {seen}")
    yield "what stops this training", stops_it, "not-what-stops-it"


def still_a_training(training: Training, may_hook: bool) -> Pairs:
    parts = (training.model, training.optimizer)
    whole = isinstance(parts[0], nn.Module) and isinstance(parts[1], Optimizer)
    yield "training.model and training.optimizer", Claim(whole, "an nn.Module, an Optimizer", tensor_text(parts))
    left = [] if may_hook else [f"{kind} on {name!r}" for name, kind, _ in leftover_hooks(training.model)]
    yield "hooks that your function leaves on the model", left[:3], "mended-by-hook"
    yield "training.model.training", training.model.training, "left-in-evaluation"
    yield "training steps that your function took", len(training.losses), "trains-itself"
    known = held(training)
    found = sum(id(one) in known for one in training.model.parameters())
    parameters = Claim(found > 0, "at least one", f"{found}")
    yield "parameters of training.model that the optimizer has", parameters, "old-optimizer"


def mended(name: str, training: Training, seed: int) -> Pairs:
    goal, before = ILLNESS[name][1], [one.detach().clone() for one in training.model.parameters()]
    first = Training.accuracy(training)
    untrained = Claim(first < goal, f"less than {goal:.0%}", f"{first:.0%}")
    yield "accuracy before the first step", untrained, "trained-elsewhere"
    Training.train(training, STEPS, seed)
    unchanged = repr(training.losses) == _losses_unmended(name, seed)
    moved = any(not torch.equal(one, old) for one, old in zip(training.model.parameters(), before, strict=True))
    yield "~no effect, no parameter moved", [unchanged, not moved]
    why = "no-effect" if unchanged else "nothing-moves" if not moved else None
    broken = next((step for step, loss in enumerate(training.losses) if not math.isfinite(loss)), None)
    got = f"nan or inf from step {broken} on"
    yield "the loss of the fixed training", Claim(broken is None, "a finite number in every step", got), why
    if name == "C":
        yield "~a pixel of 1.0, prepared", training.prepare(torch.ones(1, 64)).max()
        share = share_of_outputs(training, nn.Tanh, lambda output: output.abs() > 0.99)
        fewer = Claim(share < 0.5, "less than half", f"{share:.0%}")
        yield "outputs of Tanh at an end of their range", fewer, why or "still-large"
    if name == "D":
        yield from only_the_head(training, seed)
    if name == "E":
        lost = [key for key, one in training.model.named_parameters() if one.grad is None]
        yield "parameters that get no gradient", lost, why or "still-detached"
    right = Training.accuracy(training)
    if (
        right < goal
        and why is None
        and seed == SEEDS[0]
        and Training.accuracy(Training.train(training, STEPS, seed + 1)) >= goal
    ):
        why = "too-slow"
    yield "~it is only slow", why == "too-slow"
    if name == "A":
        dies_again = right < goal and share_of_outputs(training, nn.ReLU, lambda output: output == 0) > 0.9
        yield "~the ReLUs die again", dies_again
        why = "dies-again" if why is None and dies_again else why
    enough = Claim(right >= goal, f"{goal:.0%} or more", f"{right:.0%}")
    yield f"accuracy after {STEPS} steps", enough, why or "not-enough"


def only_the_head(training: Training, seed: int) -> Pairs:
    now, old = training.model.state_dict(), patient("D", seed).model.state_dict()
    body = [key for key in old if key.startswith("body.")]
    yield "parameters of the body that are gone", [key for key in body if key not in now], "new-body"
    moved = [key for key in body if not torch.equal(now[key], old[key])]
    yield "parameters of the body that moved", moved, "body-moved"
    known = held(training)
    forgotten = [
        key
        for key, one in training.model.named_parameters()
        if not key.startswith("body.") and one.requires_grad and id(one) not in known
    ]
    yield "parameters of the head that the optimizer doesn't have", forgotten, "part-of-the-head"


def held(training: Training) -> set[int]:
    return {id(one) for group in training.optimizer.param_groups for one in group["params"]}


def share_of_outputs(training: Training, kind: type[nn.Module], test: Callable[[Tensor], Tensor]) -> float:
    """The share of a kind of module's outputs that pass a test, over some test digits; 0 without such a module."""
    flat: list[Tensor] = []
    handles = [
        module.register_forward_hook(lambda module, args, output: flat.append(test(output).float().flatten()))
        for module in training.model.modules()
        if isinstance(module, kind)
    ]
    Training.accuracy(training)
    for handle in handles:
        handle.remove()
    return torch.cat(flat).mean().item() if flat else 0.0


@functools.cache
def _losses_unmended(name: str, seed: int) -> str:
    return repr(patient(name, seed).train(STEPS, seed).losses)  # in words, nan equals nan


def verified(name: str) -> str:
    cause, goal = ILLNESS[name]
    return f"{cause}: right. Once fixed, it reads at least {goal:.0%} of the digits, from two other starts too"


patient_a = exercise("8.2", "Patient A", worlds=SEEDS, verified=verified("A"))(partial(treated, "A"))
patient_b = exercise("8.3", "Patient B", worlds=SEEDS, verified=verified("B"))(partial(treated, "B"))
patient_c = exercise("8.4", "Patient C", worlds=SEEDS, verified=verified("C"))(partial(treated, "C"))
patient_d = exercise("8.5", "Patient D", worlds=SEEDS, verified=verified("D"))(partial(treated, "D"))
patient_e = exercise("8.6", "Patient E", worlds=SEEDS, verified=verified("E"))(partial(treated, "E"))
patient_f = exercise("8.7", "Patient F", worlds=SEEDS, verified=verified("F"))(partial(treated, "F"))
