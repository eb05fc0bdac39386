"""The checks of exercises 8.2 to 8.7: a diagnosis is held against what a monitor saw; the mend is run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from hooklab import leftover_hooks
from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import remembered
from hooklab.course.exercises.trial import NotYet, Trial, first_words, tensor_text
from hooklab.course.lesson08.clinic import STEPS, Training, examine, patient
from hooklab.course.lesson08.evidence import CAUSES, supports
from hooklab.health import Health
from hooklab.selecting import near_names

ON_THE_PAGE = 0  # the first weights of the patient whose picture the learner has seen
SEEDS = (3, 4)  # others, for the mend
# patient -> its cause, and the accuracy that it reaches once mended
ILLNESS = {
    "A": ("dead", 0.75),
    "B": ("vanishing", 0.75),
    "C": ("saturated", 0.85),
    "D": ("not in the optimizer", 0.8),
    "E": ("detached", 0.7),
    "F": ("nan in the backward", 0.75),
}


@remembered
def examined(name: str, seed: int = ON_THE_PAGE) -> tuple[Training, Health]:
    """A patient as it is, by default that of the page, after a training under a monitor."""
    training = patient(name, seed)
    names = [known for known, _ in training.model.named_modules() if known]  # a part with parts can be named, too
    return training, examine(training, *names)


@remembered
def _speaks(name: str, seed: int, module: str, cause: str) -> tuple[bool, str]:
    """Whether the examination speaks for this cause at this module, and what was seen."""
    training, health = examined(name, seed)
    return supports(health, training, module, cause)


def _treated(trial: Trial, name: str) -> str:
    for seed in SEEDS:
        _verify(trial, name, seed)
    cause, goal = ILLNESS[name]
    return f"{cause}: so it is; and mended, it reads at least {goal:.0%} of the digits, from two other starts as well"


def _verify(trial: Trial, name: str, seed: int) -> None:
    training = patient(name, seed)
    with _seeded(seed):
        answer = trial.call(training, may_change=True)
    module, cause = _diagnosis(answer, training)
    _judge_diagnosis(name, module, cause, seed)
    _refuse_what_is_no_training(training, may_hook=name == "E")
    with _seeded(seed):
        _judge_mend(name, training, seed)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed writes down a traceback for each kind of device
        yield


def _diagnosis(answer: Any, training: Training) -> tuple[str, str]:
    expected = 'two strings, such as ("fc1", "dead")'
    if answer is None:
        raise NotYet("your result is None", expected=expected, likely="forgotten return of the diagnosis")
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(isinstance(one, str) for one in answer):
        raise NotYet("your diagnosis is not a module and a cause", expected=expected, got=tensor_text(answer))
    module, cause = answer
    if cause not in CAUSES:
        if module in CAUSES:
            raise NotYet("the cause stands where the module belongs", expected=expected, got=tensor_text(answer))
        raise NotYet(f"{cause!r} is none of the named causes", expected=", ".join(map(repr, CAUSES)))
    return module, cause


def _judge_diagnosis(name: str, module: str, cause: str, seed: int) -> None:
    training, _ = examined(name)
    names = [known for known, _ in training.model.named_modules() if known]
    if not module:
        raise NotYet("your diagnosis names the whole model", expected=f"the part that is ill: {', '.join(names)}")
    if module not in names:
        raise NotYet(f"this training has no module {module!r}", expected=near_names(module, names))
    right, _ = ILLNESS[name]
    is_so, seen = _speaks(name, ON_THE_PAGE, module, cause)
    if cause == right and is_so:
        return
    if cause == right:
        if _speaks(name, seed, module, cause)[0]:  # by its own examination of this one, another module may be ill
            return
        raise NotYet(f"{cause!r} is the cause, but {module!r} is not where", expected=CAUSES[cause], got=seen)
    if is_so:
        why = "true, and not what keeps it from learning: it is so on purpose, or follows from something else"
        raise NotYet(f"{cause!r} at {module!r} is not the cause", expected="what comes first", got=seen, likely=why)
    raise NotYet(f"nothing speaks for {cause!r} at {module!r}", expected=CAUSES[cause], got=seen)


def _refuse_what_is_no_training(training: Training, may_hook: bool) -> None:
    if not isinstance(training.model, nn.Module) or not isinstance(training.optimizer, Optimizer):
        raise NotYet(
            "the training has lost its model or its optimizer", expected="an nn.Module, an optimizer of torch.optim"
        )
    for name, kind, function in [] if may_hook else leftover_hooks(training.model):
        hook = f"{kind.replace('_', ' ')} `{function.split('.')[-1]}`"
        raise NotYet(
            f"your code left a hook behind: {hook} on {repr(name) if name else 'the whole model'}",
            expected="a training that is healed without a hook",
        )
    if not training.model.training:
        raise NotYet("your function left the model in evaluation mode", expected="training mode: it is to be trained")
    if training.losses:
        raise NotYet(
            f"your function took {len(training.losses)} steps of training", expected="it mends; the check trains"
        )
    held = {id(one) for group in training.optimizer.param_groups for one in group["params"]}
    if not any(id(one) in held for one in training.model.parameters()):
        raise NotYet(
            "the optimizer has no parameter of the model",
            expected="an optimizer made after the model",
            likely="you have put in a new model: its parameters are new, too",
        )


def _judge_mend(name: str, training: Training, seed: int) -> None:
    _, goal = ILLNESS[name]
    before = [one.detach().clone() for one in training.model.parameters()]
    try:
        if Training.accuracy(training) >= goal:
            raise NotYet(
                "the model reads the digits before its first step: it was trained elsewhere",
                expected="a model that learns; the check trains it",
            )
        Training.train(training, STEPS, seed)
        right = Training.accuracy(training)
    except NotYet:
        raise
    except Exception as error:
        raise NotYet(f"the mended training raises {type(error).__name__}: {first_words(error)}") from error
    broken = next((step for step, loss in enumerate(training.losses) if not math.isfinite(loss)), None)
    if broken is not None:
        raise NotYet(
            f"the diagnosis is right; mended, the loss is not finite from step {broken} on",
            expected="a number",
            likely=_why_unchanged(name, training, seed),
        )
    if name == "D":
        _expect_only_the_head_to_learn(training, seed)
    if right >= goal:
        return
    said = f"the diagnosis is right; mended, it reads {right:.0%} of the digits after {STEPS} steps"
    still = all(torch.equal(one, old) for one, old in zip(training.model.parameters(), before, strict=True))
    likely = "no parameter of the model has moved" if still else _why_not_enough(name, training, seed)
    raise NotYet(said, expected=f"{goal:.0%} or more", likely=likely)


def _why_not_enough(name: str, training: Training, seed: int) -> str | None:
    """Say so if four times the steps are enough, as they are for no patient that nobody has mended."""
    goal = ILLNESS[name][1]
    if name == "E" and any(one.grad is None for one in training.model.parameters()):
        return "a part still gets no gradient: a hook is there whose return value takes the output's place"
    if likely := _why_unchanged(name, training, seed):
        return likely
    try:
        right = Training.accuracy(Training.train(training, 3 * STEPS, seed + 1))
    except Exception:
        return None
    if right < goal:
        return None
    return f"it is on its way, too slowly for {STEPS} steps: after {4 * STEPS} it reads {right:.0%}"


def _why_unchanged(name: str, training: Training, seed: int) -> str | None:
    if repr(training.losses) != _losses_as_it_was(name, seed):
        return None
    return "no effect: step for step, its losses are those of the patient as it was"


@remembered
def _losses_as_it_was(name: str, seed: int) -> str:
    return repr(patient(name, seed).train(STEPS, seed).losses)  # nan is like nan in words


def _expect_only_the_head_to_learn(training: Training, seed: int) -> None:
    now, old = training.model.state_dict(), patient("D", seed).model.state_dict()
    body = [name for name in old if name.startswith("body.")]
    expected = "a frozen body, by intention: only the head is to learn"
    if not all(name in now for name in body):
        raise NotYet("mended, the body is gone", expected=expected)
    if not all(torch.equal(now[name], old[name]) for name in body):
        raise NotYet("mended, the body has moved", expected=expected)
    held = {id(one) for group in training.optimizer.param_groups for one in group["params"]}
    for name, one in training.model.named_parameters():
        if not name.startswith("body.") and one.requires_grad and id(one) not in held:
            raise NotYet(
                f"the optimizer does not have {name!r}", expected="all parameters of the head: they are to learn"
            )


@exercise("8.2", "Patient A")
def patient_a(trial: Trial) -> str:
    return _treated(trial, "A")


@exercise("8.3", "Patient B")
def patient_b(trial: Trial) -> str:
    return _treated(trial, "B")


@exercise("8.4", "Patient C")
def patient_c(trial: Trial) -> str:
    return _treated(trial, "C")


@exercise("8.5", "Patient D")
def patient_d(trial: Trial) -> str:
    return _treated(trial, "D")


@exercise("8.6", "Patient E: mend this hook")
def patient_e(trial: Trial) -> str:
    return _treated(trial, "E")


@exercise("8.7", "Patient F")
def patient_f(trial: Trial) -> str:
    return _treated(trial, "F")
