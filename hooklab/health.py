"""Reading what :func:`hooklab.monitor` recorded: :class:`Health`, and the figure of :meth:`Health.plot`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hooklab.selecting import MissingName, near_names, plain_name
from hooklab.tallies import OUTPUT, UPDATE, Row, Sample
from hooklab.watching import WEIGHTS, Finding

if TYPE_CHECKING:
    from hooklab.monitoring import Monitor
    from hooklab.watching import MonitorSession


class Health:
    """What ``with monitor(...) as health`` gives, to be read inside the block and after it. ``print`` shows the last
    recorded step as a table, and below it the modules that need a look."""

    def __init__(self, session: MonitorSession) -> None:
        self._session = session

    @property
    def rows(self) -> list[Row]:
        """One :class:`hooklab.tallies.Row` for each step, kind and module, in the order of their first values."""
        self._session.fetch()
        samples, calls = self._session.samples, self._session.calls
        return [
            sample.row(step, kind, module, calls[step, kind, module], samples.get((step, WEIGHTS, module), Sample()))
            for (step, kind, module), sample in samples.items()
            if kind != WEIGHTS
        ]

    @property
    def steps(self) -> list[int]:
        """The recorded steps."""
        return list(self._session.steps)

    @property
    def silent(self) -> list[str]:
        """The selected modules that did not run in any recorded step."""
        ran = {module for _, kind, module in self._session.calls if kind == OUTPUT}
        return [name for name in self._options.hooked if name not in ran]

    @property
    def dead_units(self) -> dict[str, list[int]]:
        """By module, the units whose output was 0 for every example in every recorded step; modules without any are
        left out. A unit is a channel (dimension 1) of images and volumes, otherwise a place in the last dimension."""
        alive = {name: one.tolist() for name, one in self._session.alive.items()}
        dead = {name: [unit for unit, lives in enumerate(each) if not lives] for name, each in alive.items()}
        return {name: units for name, units in dead.items() if units}

    @property
    def without_gradient(self) -> list[str]:
        """The parameters whose ``.grad`` was None at each recorded update, because the loss does not depend on them.
        Frozen parameters are among them if the optimizer has them. Empty without ``updates``."""
        return [name for name, had in self._session.had_gradient.items() if not had]

    @property
    def findings(self) -> list[Finding]:
        """The first non-finite value of each kind (outputs, gradients, updates), in order of appearance."""
        self._session.fetch()
        return list(self._session.findings)

    @property
    def first_nonfinite(self) -> Finding | None:
        """The first of :attr:`findings`, or None: it has ``module``, ``step``, ``kind`` and ``text``."""
        return next(iter(self.findings), None)

    def series(self, kind: str, module: str, statistic: str) -> tuple[list[int], list[float]]:
        """The steps, and in each of them one statistic of one module, a field of :class:`hooklab.tallies.Row`.

        Raises:
            MissingName: (a ``LookupError``) if that module is not watched, or nothing of this kind was recorded.
        """
        module = plain_name(self._options.given, module)
        if module not in self._options.hooked:
            raise MissingName(
                f"{module!r} was not selected for this monitor. {near_names(module, self._options.hooked)}"
            )
        found = [row for row in self.rows if (row.kind, row.module) == (kind, module)]
        if not found:
            raise MissingName(f"nothing was recorded as {kind} of {module!r}. {self._why_nothing(kind, module)}")
        return [row.step for row in found], [getattr(row, statistic) for row in found]

    def plot(self, *statistics: str, kind: str = OUTPUT) -> Any:
        """Draw statistics, steps across and modules down, and where there is an inf or nan, as a matplotlib figure.

        Args:
            *statistics: fields of :class:`hooklab.tallies.Row`, one panel each. Without any: zeros and standard
                deviation of the outputs, and those of the gradients and updates if they were recorded.
            kind: the kind that these statistics belong to.

        Raises:
            RuntimeError: if nothing of that kind was recorded.
        """
        rows = self.rows
        kinds = {row.kind for row in rows}
        usual = [(OUTPUT, "zeros"), (OUTPUT, "std"), ("gradient", "std"), (UPDATE, "ratio")]
        panels = [(kind, one) for one in statistics] or [panel for panel in usual if panel[0] in kinds]
        if not panels or any(panel[0] not in kinds for panel in panels):
            raise RuntimeError(f"nothing was recorded as {kind}. {self._why_nothing(kind)}")
        return draw(rows, panels, list(self._options.hooked))

    def __str__(self) -> str:
        rows, session = self.rows, self._session
        model = type(self._options.model).__name__
        lines = [f"{len(self.steps)} steps of {model} recorded, {len(self._options.hooked)} modules watched"]
        last = [row for row in rows if row.step == session.last_recorded]
        if last:
            wide = max(6, *(len(repr(row.module)) for row in last))
            head = f"  {f'step {last[0].step}':<8}  {'module':<{wide}} {'mean':>10} {'std':>10} {'largest':>10}"
            lines.append(f"{head} {'zeros':>6} {'not finite':>11}")
        for row in last:
            numbers = (
                f"{row.mean:>10.3g} {row.std:>10.3g} {row.largest:>10.3g} {row.zeros:>6.0%} {row.nonfinite:>11.0%}"
            )
            lines.append(f"  {row.kind:<8}  {row.module or repr(''):<{wide}} {numbers}")
        arrived = self._with_gradient()
        notes = {
            "silent (never ran)": self.silent,
            "units that gave only 0": [
                f"{name}: {len(units)} of {len(session.alive[name])}" for name, units in self.dead_units.items()
            ],
            "without a gradient": self.without_gradient,
            "no gradient arrived at the output of": sorted(session.awaited - arrived) if arrived else [],
            "no numbers to read": sorted(session.unreadable),
        }
        lines += [f"  {what}: {', '.join(map(repr, names))}" for what, names in notes.items() if names]
        return "\n".join(lines + [f"  {finding.text}" for finding in self.findings])

    def __repr__(self) -> str:
        return f"<health of {type(self._options.model).__name__}: {len(self.steps)} steps recorded>"

    @property
    def _options(self) -> Monitor:
        return self._session.options

    def _with_gradient(self) -> set[str]:
        return {module for _, kind, module in self._session.calls if kind == "gradient"}

    def _why_nothing(self, kind: str, module: str | None = None) -> str:
        if kind == "gradient" and not self._options.grads:
            return "Open the block with monitor(..., grads=True)."
        if kind == UPDATE and not self._options.updated:
            return "Open the block with monitor(..., updates=optimizer)."
        if kind == "gradient" and module in self._session.awaited and self._with_gradient():
            return (
                "A backward pass ran, and no gradient arrived at this output: the loss does not depend on it, or the "
                "output is a view that the next module changes in place, as nn.ReLU(inplace=True) does."
            )
        called = {OUTPUT: "the model", "gradient": "backward", UPDATE: "optimizer.step"}
        if kind not in called:
            return f"A kind is one of {', '.join(map(repr, called))}."
        return f"Call {called[kind]} inside the block. {self._session.what_was_called()}".rstrip()


# The figure. Only here is matplotlib imported, when it is drawn.

NONFINITE, NOTHING = "#D55E00", "#DDDDDD"  # colours
SMALLEST, LARGEST = 1e-8, 1e8  # the ends of a logarithmic scale; what lies outside is drawn as these are
MOST_NAMES = 30
_TITLES = {
    "zeros": "share of zeros",
    "nonfinite": "share of inf and nan",
    "saturated": "share of saturated values",
    "std": "standard deviation",
    "largest": "largest magnitude",
    "ratio": "|Δw| / |w|",
}
_OF = {OUTPUT: "outputs", "gradient": "gradients of the outputs", UPDATE: "updates of the parameters"}


def draw(rows: Sequence[Row], panels: Sequence[tuple[str, str]], modules: Sequence[str]) -> Any:
    """One panel for each kind and statistic; a module without any such row has no line."""
    from matplotlib import pyplot as plt

    shown = []
    for kind, statistic in panels:
        there = [row for row in rows if row.kind == kind and getattr(row, statistic) is not None]
        shown.append((there, [name for name in modules if any(row.module == name for row in there)]))
    heights = [0.9 + 0.2 * min(max(len(names), 2), MOST_NAMES) for _, names in shown]
    with plt.rc_context({"figure.facecolor": "white", "savefig.facecolor": "white", "font.size": 10}):
        figure, axes = plt.subplots(
            len(panels), 1, figsize=(8, sum(heights)), squeeze=False, layout="constrained", height_ratios=heights
        )
        for (kind, statistic), (there, names), ax in zip(panels, shown, axes[:, 0], strict=True):
            _draw_panel(ax, there, names, statistic)
            ax.set_title(f"{_OF[kind]}: {_TITLES.get(statistic, statistic)}", loc="left", fontsize=11)
        axes[-1, 0].set_xlabel("step")
    return figure


def _draw_panel(ax: Any, rows: Sequence[Row], names: Sequence[str], statistic: str) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    steps = sorted({row.step for row in rows})
    values, broken = ({name: [math.nan] * len(steps) for name in names} for _ in range(2))
    for row in rows:
        values[row.module][steps.index(row.step)] = getattr(row, statistic)
        if row.nonfinite and statistic != "nonfinite":
            broken[row.module][steps.index(row.step)] = 1.0
    norm, label = _scale([one for each in values.values() for one in each if math.isfinite(one)], statistic)
    # zero and infinity have no place on a logarithmic scale; here they lie at its ends
    for each in values.values():
        each[:] = [one if math.isnan(one) else min(max(one, norm.vmin), norm.vmax) for one in each]
    edges = [*steps, steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1)]
    lines = [number - 0.5 for number in range(len(names) + 1)]
    ax.set_facecolor(NOTHING)
    image = ax.pcolormesh(
        edges, lines, list(values.values()), norm=norm, cmap="PuOr" if statistic == "mean" else "cividis"
    )
    if any(1.0 in each for each in broken.values()):
        ax.pcolormesh(edges, lines, list(broken.values()), cmap=ListedColormap([NONFINITE]))
        ax.legend(handles=[Patch(color=NONFINITE, label="inf or nan")], loc="upper left", fontsize=8)
    ax.figure.colorbar(image, ax=ax, label=label)
    ticks = range(0, len(names), math.ceil(len(names) / MOST_NAMES) or 1)
    ax.set_yticks(list(ticks), [names[number] or "(model)" for number in ticks])
    ax.invert_yaxis()


def _scale(finite: list[float], statistic: str) -> tuple[Any, str]:
    from matplotlib.colors import LogNorm, Normalize

    if statistic in ("zeros", "nonfinite", "saturated"):
        return Normalize(0, 1), "share"
    if statistic in ("std", "largest", "ratio"):
        known = [min(max(one, SMALLEST), LARGEST) for one in finite if one > 0] or [1.0]
        low, high = min(known), max(known)
        return LogNorm(low, high if high > low else low * 10), f"{statistic} (log)"
    limit = max((abs(one) for one in finite), default=0.0) or 1.0
    return Normalize(-limit if statistic == "mean" else 0, limit), statistic
