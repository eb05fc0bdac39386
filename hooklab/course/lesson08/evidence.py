"""`DIAGNOSES`, and `supports`, which compares one with what a monitor saw of a training."""

from __future__ import annotations

import math

from hooklab.course.lesson08.clinic import Training
from hooklab.health import Health
from hooklab.tallies import Row

# the name of a diagnosis -> what it means
DIAGNOSES = {
    "dead": "the module's output is zero for (nearly) every picture",
    "saturated": "an activation's outputs are at the ends of its range, where it is flat",
    "vanishing": "nothing is dead, and less than a thousandth of the gradient arrives",
    "exploding": "the outputs grow without limit",
    "nan in the backward": "outputs are finite, and the gradient that the module passes back isn't",
    "frozen": "the parameters have requires_grad=False",
    "never called": "the module doesn't run",
    "detached": "the module runs, its parameters require grad, and no gradient arrives",
    "not in the optimizer": "gradients arrive, and the optimizer doesn't have the parameters",
}


def supports(health: Health, training: Training, module: str, cause: str) -> tuple[bool, str]:
    """Whether what the monitor saw fits this diagnosis of this module, and what it saw, in words."""
    part = training.model.get_submodule(module)
    parameters = list(part.parameters())
    rows = health.rows
    ran = module not in health.silent and any(row.module == module for row in rows)
    if cause == "never called":
        return (
            not ran,
            f"{module!r} ran in {len(_values(rows, 'output', module, 'mean'))} of {len(health.steps)} steps",
        )
    if cause in ("frozen", "detached", "not in the optimizer"):
        return _of_parameters(training, module, cause)
    if not parameters and not ran:
        return False, f"{module!r} didn't run"
    if cause == "dead":
        zeros = _last(rows, "output", module, "zeros")
        return zeros >= 0.95, f"in the last step {zeros:.0%} of the outputs of {module!r} are zero"
    if cause == "saturated":
        share = _last(rows, "output", module, "saturated")
        if math.isnan(share):
            return False, f"{module!r} has no range, so it can't be saturated"
        return share >= 0.5, f"{share:.0%} of the outputs of {module!r} are at an end of its range in the last step"
    if cause == "exploding":
        largest = max(_values(rows, "output", module, "largest"), default=0.0)
        return largest > 1e6, f"the largest output of {module!r} is {largest:.3g}"
    if cause == "vanishing":
        return _vanishing(rows, module)
    return _nan_in_the_backward(health, module)


def _of_parameters(training: Training, module: str, cause: str) -> tuple[bool, str]:
    parameters = list(training.model.get_submodule(module).parameters())
    if not parameters:
        return False, f"{module!r} has no parameters"
    known = {id(one) for group in training.optimizer.param_groups for one in group["params"]}
    asks = all(one.requires_grad for one in parameters)
    came = all(one.grad is not None for one in parameters)
    has = all(id(one) in known for one in parameters)
    seen = (
        f"the parameters of {module!r}: requires_grad {asks}, a gradient {'arrived' if came else 'never arrived'}, the "
        f"optimizer has {'them' if has else 'none of them'}"
    )
    found = "frozen" if not asks else "detached" if not came else "not in the optimizer" if not has else ""
    return found == cause, seen


def _vanishing(rows: list[Row], module: str) -> tuple[bool, str]:
    if max(_values(rows, "output", module, "nonfinite"), default=0.0) > 0:
        return False, f"{module!r} has outputs that are inf or nan, so its gradients mean nothing"
    last = next(row for row in rows if row.kind == "gradient")  # the backward begins at the last layer
    here = next(iter(_values(rows, "gradient", module, "std")), None)
    if here is None:
        return False, f"no gradient arrives at the output of {module!r}"
    share = here / last.std if last.std else math.nan
    seen = f"in the first step the gradient at {module!r} is {share:.1e} of that at {last.module!r}"
    return 0 < share < 1e-3, seen


def _nan_in_the_backward(health: Health, module: str) -> tuple[bool, str]:
    findings = {finding.kind: finding for finding in health.findings}
    first = health.first_nonfinite
    if first is None:
        return False, "all outputs and gradients are finite"
    if first.kind != "gradient":
        return False, f"the first value that isn't finite is in the {first.kind} of {first.module!r}"
    names = list(health._options.hooked)
    maker = names[min(names.index(findings["gradient"].module) + 1, len(names) - 1)]
    arrives = f"in step {first.step} a nan arrives as the gradient of the output of {first.module!r}"
    return module == maker, f"{arrives}: it was made by what comes after it in the forward pass"


def _values(rows: list[Row], kind: str, module: str, statistic: str) -> list[float]:
    return [getattr(row, statistic) for row in rows if (row.kind, row.module) == (kind, module)]


def _last(rows: list[Row], kind: str, module: str, statistic: str) -> float:
    values = [value for value in _values(rows, kind, module, statistic) if value is not None]
    return values[-1] if values else math.nan
