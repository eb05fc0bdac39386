"""The figures of lesson 10. What they show is counted or recorded, by `memory` and by the functions here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hooklab.course.explorers import canvas
from hooklab.course.lesson10.bits import Cost
from hooklab.course.lesson10.bits import fewer_bits as fewer_bits
from hooklab.course.lesson10.memory import DEPTH, ONE_LAYER, Meter, Run, training_steps
from hooklab.course.plots import BACKWARD, CAPTURED, FORWARD, INK, REST, arrow, bare, box, style


def down_the_graph(loss: Tensor) -> list[tuple[str, Tensor]]:
    """Run the backward pass; return the name of each node on the way to the first leaf, and the first gradient that it
    returns, in the order in which they run."""
    found: list[tuple[str, Tensor]] = []
    node: Any = loss.grad_fn
    while node.next_functions:
        name = node.name().removesuffix("Backward0")
        node.register_hook(lambda ins, outs, name=name: found.append((name, ins[0])))
        node = node.next_functions[0][0]
    loss.backward()
    return found


def made_a_nan(flow: Sequence[tuple[str, Tensor]]) -> Figure:
    """Draw the nodes of `down_the_graph` from right to left, and what each returns: infinities vermilion, NaN black."""
    with style():
        figure, axes = bare(9.6, 1.4, (-1.7, 2 * len(flow) + 1.6), (0.4, 1.5))
        ends = [("loss", torch.tensor(1.0)), *flow, ("a.grad", torch.tensor(0.0))]
        for place, (name, made) in enumerate(ends):
            x = 2.0 * (len(flow) - place) + 1
            words = name if name in ("loss", "a.grad") else f"{name}\nBackward0"
            look: Any = {"boxstyle": "round", "fc": "white", "ec": INK, "lw": 1.5}
            axes.text(x, 1.1, words, ha="center", va="center", fontsize=10, color=INK, bbox=look)
            if name == "a.grad":
                break
            has_nan, colour = bool(made.isnan().any()), BACKWARD if made.isinf().any() else CAPTURED
            value = str(made.tolist()).replace("-inf", "−∞").replace("nan", "NaN")
            arrow(axes, (x - 0.6, 1.1), (x - 1.4, 1.1), INK if has_nan else colour)
            axes.text(x - 1, 0.62, value, ha="center", va="center", color=INK if has_nan else colour, weight="bold")
        return figure


class Step(NamedTuple):
    """A hook that ran: at which node, of which kind, and what it found in `.grad`."""

    place: str
    what: str
    finds: str


def order_at_two_nodes() -> list[Step]:
    """Run y = 3x, z = 5y, backward, with a hook of every kind on y, x and their nodes; return what ran, in order."""
    x = torch.tensor(2.0, requires_grad=True)
    y = 3 * x
    y.retain_grad()
    steps: list[Step] = []
    leaf, inner = get_gradient_edge(x).node, y.grad_fn
    assert inner is not None

    def note(place: str, what: str, tensor: Tensor) -> None:
        found = "None" if tensor.grad is None else f"{tensor.grad.item():g}"
        steps.append(Step(place, what, f"{place[0]}.grad is {found}"))

    for place, tensor, node in (("y, MulBackward0", y, inner), ("x, AccumulateGrad", x, leaf)):
        node.register_hook(lambda ins, outs, place=place, of=tensor: note(place, "node hook", of))
        node.register_prehook(lambda outs, place=place, of=tensor: note(place, "node pre-hook", of))
        tensor.register_hook(lambda grad, place=place, of=tensor: note(place, "tensor hook", of))
    x.register_post_accumulate_grad_hook(lambda of: note("x, AccumulateGrad", "post-accumulate", of))
    (5 * y).backward()
    return steps


def order(steps: Sequence[Step]) -> Figure:
    """Draw the hooks of `order_at_two_nodes` as stations, from right to left, with each node's work between them."""
    with style():
        figure, axes = bare(9.6, 2.4, (0, 12), (0.9, 3.5))
        for left, title in (
            (6.0, "the node of y = 3 · x: MulBackward0"),
            (0.3, "the node of the leaf x: AccumulateGrad"),
        ):
            axes.add_patch(Rectangle((left, 1.05), 3.6, 1.95, fc="#F4F4F4", ec=REST, zorder=0))
            axes.text(left + 1.8, 3.15, title, ha="center", color=INK)
        arrow(axes, (11.9, 2.0), (0.15, 2.0), BACKWARD)
        for x, value in ((11.85, "5"), (5.75, "15")):
            axes.text(x, 2.12, value, color=BACKWARD, ha="center", weight="bold")
        for x, work in ((7.85, "works:\n5 · 3"), (2.75, "works:\n+ 15")):
            axes.text(x, 1.72, work, ha="center", va="top", fontsize=9, weight="bold", color=INK)
        stations = {1: 11.2, 2: 9.0, 3: 6.7, 4: 4.9, 5: 3.5, 6: 1.9, 7: 0.8}
        for number, step in enumerate(steps, start=1):
            _station(axes, stations[number], number, step)
        axes.plot([10.2, 10.2], [1.75, 2.25], color=CAPTURED, lw=3)
        axes.text(10.2, 2.42, "retain_grad()", ha="center", va="bottom", fontsize=9, color=CAPTURED)
        axes.text(10.2, 1.6, "keeps 5", ha="center", va="top", fontsize=9, color=CAPTURED)
        return figure


def _station(axes: Axes, x: float, number: int, step: Step) -> None:
    axes.text(
        x,
        2.0,
        str(number),
        ha="center",
        va="center",
        color="white",
        weight="bold",
        bbox={"boxstyle": "circle", "fc": BACKWARD, "ec": BACKWARD},
        zorder=3,
    )
    name = step.what.replace(" ", "\n").replace("-acc", "-\nacc")
    axes.text(x, 2.42, name, ha="center", va="bottom", fontsize=9, color=INK)
    found = step.finds.replace(" is ", "\nis ")
    axes.text(x, 1.6, found, ha="center", va="top", fontsize=9, color=INK)


def who_keeps_the_node() -> Figure:
    """Draw, for three moments, what keeps the AccumulateGrad node of a leaf alive: an arrow means "keeps"."""
    moments = {
        "nothing keeps it: freed": (),
        "a graph keeps a new one": ("3 · w",),
        "a variable keeps it": ("kept", "3 · w"),
    }
    with style():
        figure, row = plt.subplots(1, 3, figsize=(9.6, 2.3))
        for axes, (title, keepers) in zip(row, moments.items(), strict=True):
            axes.set(xlim=(0, 3.6), ylim=(0, 2), title=title)
            axes.axis("off")
            box(axes, 2.6, 1.0, "w", FORWARD)
            axes.text(2.6, 0.55, "tensor hook", ha="center", fontsize=9, color=FORWARD)
            box(axes, 1.5, 1.0, "node", BACKWARD if keepers else REST)
            hook = "your node hook" if keepers != ("3 · w",) else "no hook"
            axes.text(1.5, 0.55, hook, ha="center", fontsize=9, color=BACKWARD if keepers else REST)
            for height, name in zip((1.45, 0.55) if len(keepers) > 1 else (1.0,), keepers, strict=False):
                box(axes, 0.4, height, name, INK)
                arrow(axes, (0.72, height), (1.18, 1.0), INK)
            if keepers:
                arrow(axes, (1.82, 1.0), (2.28, 1.0), INK)
        return figure


def over_time(plain: Run, run: Run | None, title: str) -> Figure:
    """Draw memory after each operation, in layers' outputs; without a checkpoint as a line, with one as an area."""
    with style():
        figure, _ = canvas(7.6, 3.1)
        figure.clear()
        axes = figure.add_axes((0.09, 0.17, 0.89, 0.71))
        _mountain(axes, plain, run)
        axes.set_title(title)
        return figure


def valley(plain: Run, runs: Mapping[int, Run]) -> Figure:
    """Draw, left, memory over time without a checkpoint and with four parts, and right the peaks for each number.

    Args:
        plain: the run without a checkpoint.
        runs: number of parts -> the run.
    """
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), width_ratios=(1.7, 1))
        _mountain(left, plain, runs[4])
        left.plot(_outputs(runs[1].curve), color=REST, lw=1.4)
        left.text(170, DEPTH + 1.1, "one part", color=REST)
        left.text(380, 3.5, "four\nparts", color=CAPTURED)
        parts = list(runs)
        right.axhline(plain.peak / ONE_LAYER, color=FORWARD, lw=1.5)
        right.text(1, plain.peak / ONE_LAYER + 0.4, "no checkpoint", color=FORWARD, fontsize=9)
        right.plot(range(len(parts)), [run.peak / ONE_LAYER for run in runs.values()], "o-", color=CAPTURED)
        right.set(xticks=range(len(parts)), xticklabels=parts, ylim=(0, DEPTH + 3.5))
        right.set(xlabel="parts, one checkpoint each", ylabel="peak, in layers' outputs")
        return figure


def _outputs(curve: Sequence[int]) -> list[float]:
    return [size / ONE_LAYER for size in curve]


def _mountain(axes: Axes, plain: Run, run: Run | None) -> None:
    axes.plot(_outputs(plain.curve), color=FORWARD)
    axes.text(70, DEPTH + 1.3, "no checkpoint", color=FORWARD)
    if run is not None:
        axes.fill_between(range(len(run.curve)), _outputs(run.curve), color=CAPTURED, alpha=0.45, lw=0)
        axes.axvline(run.turn, color=CAPTURED, lw=1, ls=":")
    axes.axvline(plain.turn, color=FORWARD, lw=1, ls=":")
    axes.set(xlim=(0, 425), ylim=(0, DEPTH + 3.5), xlabel="operations (dotted: the backward pass begins)")
    axes.set_ylabel("memory, in layers' outputs")


def gradient_memory() -> dict[str, Meter]:
    """Measure a training step of sixteen layers in two ways: "after" the backward pass, or "inside" it, by hooks."""

    def network() -> nn.Sequential:
        return nn.Sequential(*[nn.Linear(64, 64) for _ in range(DEPTH)])

    def step(parameter: Tensor) -> None:
        with torch.no_grad():
            parameter.add_(parameter.grad, alpha=-0.1)  # type: ignore[arg-type]
        parameter.grad = None

    x, ordinary, hooked = torch.ones(2, 64), network(), network()
    for parameter in hooked.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    optimizer = torch.optim.SGD(ordinary.parameters(), 0.1)
    return {"after": training_steps(ordinary, x, optimizer), "inside": training_steps(hooked, x, None)}


def two_ways_to_step(curves: Mapping[str, Meter]) -> Figure:
    """Draw the memory of `gradient_memory` over the operations of one step, in kB."""
    with style():
        figure, axes = plt.subplots(figsize=(7.6, 2.8))
        for name, colour in (("after", BACKWARD), ("inside", CAPTURED)):
            values = [size / 1000 for size in curves[name].curve]
            axes.fill_between(range(len(values)), values, color=colour, alpha=0.5, lw=0)
            axes.plot(values, color=colour)
        after = curves["after"]
        label: Any = {"color": BACKWARD, "ha": "right"}
        axes.text(len(after.curve) * 0.6, after.peak / 1000 * 0.95, "step after backward()", **label)
        axes.text(len(after.curve) * 0.55, curves["inside"].peak / 1000 * 1.35, "step in the hook", color=CAPTURED)
        axes.set(
            xlabel="operations of one training step", ylabel="kB in use: gradients\nand saved inputs", ylim=(0, None)
        )
        return figure


def bits(costs: Sequence[Cost]) -> Figure:
    """Draw the relative error of the gradient against the memory of the saved values; both axes are logarithmic."""
    with style():
        figure, axes = plt.subplots(figsize=(6.6, 3.2))
        axes.loglog([cost.share for cost in costs], [cost.error for cost in costs], "o-", color=BACKWARD)
        for cost in costs:
            look: Any = {"xytext": (7, 4), "textcoords": "offset points", "fontsize": 9, "color": INK}
            axes.annotate(f"{cost.bits} bits", (cost.share, cost.error), **look)
        axes.margins(x=0.12)
        ticks = [cost.share for cost in costs]
        axes.set(xlabel="memory of the saved values, compared with 32 bits", ylabel="error of the gradient")
        axes.set_xticks(ticks, [f"{share:.0%}" for share in ticks])
        axes.yaxis.set_major_formatter(lambda error, place: f"{100 * error:g} %")
        axes.minorticks_off()
        return figure
