"""Reading what :func:`hooklab.monitor` wrote down: :class:`Health`."""

from __future__ import annotations

import csv
import math
import os
from typing import TYPE_CHECKING, Any

from hooklab.findings import Finding
from hooklab.selecting import MissingName, near_names
from hooklab.tallies import KINDS, OUTPUT, UPDATE, Row

if TYPE_CHECKING:
    from hooklab.monitoring import Monitor
    from hooklab.watching import MonitorSession


class Health:
    """What a ``with monitor(...)`` block gives. It can be read inside the block and after it, and holds numbers only.

    ``print`` shows the last recorded step as a table, with what else is worth knowing.
    """

    def __init__(self, session: MonitorSession) -> None:
        self._session = session

    @property
    def rows(self) -> list[Row]:
        """One :class:`hooklab.tallies.Row` for each step, kind and module, in the order in which they first came."""
        self._session.fetch()
        return [tally.row(*key) for key, tally in self._session.tallies.items() if tally.total.values]

    @property
    def steps(self) -> list[int]:
        """The steps that were recorded."""
        return list(self._session.steps)

    @property
    def silent(self) -> list[str]:
        """The selected modules that did not run in any recorded step."""
        ran = {module for _, kind, module in self._session.tallies if kind == OUTPUT}
        return [name for name in self._options.hooked if name not in ran]

    @property
    def without_gradient(self) -> list[str]:
        """The parameters whose ``.grad`` was None at each recorded update: nothing that the loss depends on used them.
        A frozen parameter is among them if the optimizer has it. Empty without ``updates``."""
        return [name for name, had in self._session.had_gradient.items() if not had]

    @property
    def findings(self) -> list[Finding]:
        """The first non-finite value of each kind (outputs, gradients, updates), in the order of coming."""
        self._session.fetch()
        return list(self._session.findings)

    @property
    def first_nonfinite(self) -> Finding | None:
        """The first of all, or None: ``finding.module``, ``finding.step``, ``finding.kind``, ``finding.text``."""
        return next(iter(self.findings), None)

    def series(self, kind: str, module: str, statistic: str) -> tuple[list[int], list[float]]:
        """The steps, and one statistic of one module in each of them.

        Args:
            kind: ``"output"``, ``"gradient"`` or ``"update"``.
            module: a name that was selected.
            statistic: a field of :class:`hooklab.tallies.Row`, such as ``"std"`` or ``"zeros"``.

        Raises:
            MissingName: (a ``LookupError``) if that module was not selected, or there is nothing of this kind.
            ValueError: for a kind or statistic that is none.
        """
        require(kind, statistic)
        if module not in self._options.hooked:
            raise MissingName(
                f"{module!r} was not selected for this monitor. {near_names(module, self._options.names.values())}"
            )
        found = [row for row in self.rows if (row.kind, row.module) == (kind, module)]
        if not found:
            raise MissingName(f"nothing was recorded as {kind} of {module!r}. {self._why_nothing(kind)}")
        return [row.step for row in found], [getattr(row, statistic) for row in found]

    def to_csv(self, file: str | os.PathLike[str]) -> None:
        """Write the rows as comma-separated values, with a line of names; what has no meaning is left empty."""
        with open(file, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([Row._fields, *self.rows])

    def frame(self) -> Any:
        """The rows as a ``pandas.DataFrame``, with nan where a statistic has no meaning; needs pandas."""
        import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]

        rows = [[math.nan if one is None else one for one in row] for row in self.rows]  # None is no number
        return pd.DataFrame(rows, columns=Row._fields)

    def plot(self, *statistics: str, kind: str = OUTPUT) -> Any:
        """A picture of statistics, steps across and modules down, and where there is an inf or nan.

        Args:
            *statistics: fields of :class:`hooklab.tallies.Row`, one picture each. Without any, what is usually looked
                at first: zeros and standard deviation of the outputs, and of the gradients and updates if they
                were recorded.
            kind: of these statistics.

        Returns:
            A ``matplotlib`` figure, made by pyplot. Needs matplotlib.

        Raises:
            ValueError: for a kind or statistic that is none.
            RuntimeError: if nothing of that kind was recorded.
        """
        from hooklab.health_figure import draw  # imports matplotlib

        rows = self.rows
        kinds = {row.kind for row in rows}
        usual = [(OUTPUT, "zeros"), (OUTPUT, "std"), ("gradient", "std"), (UPDATE, "ratio")]
        panels = [(kind, one) for one in statistics] or [panel for panel in usual if panel[0] in kinds]
        for panel in panels:
            require(*panel)
        if not panels or any(panel[0] not in kinds for panel in panels):
            raise RuntimeError(f"nothing was recorded as {kind}. {self._why_nothing(kind)}")
        return draw(rows, panels, list(self._options.hooked))

    def __str__(self) -> str:
        rows = self.rows
        model = type(self._options.model).__name__
        lines = [f"{len(self.steps)} steps of {model} recorded, {len(self._options.hooked)} modules watched"]
        last = [row for row in rows if row.step == self._session.last_recorded]
        if last:
            wide = max(6, *(len(repr(row.module)) for row in last))
            lines.append(
                f"  {f'step {last[0].step}':<8}  {'module':<{wide}} {'mean':>10} {'std':>10} {'largest':>10} "
                f"{'zeros':>6} {'not finite':>11}"
            )
            lines += [
                f"  {row.kind:<8}  {row.module or repr(''):<{wide}} {row.mean:>10.3g} {row.std:>10.3g} "
                f"{row.largest:>10.3g} {row.zeros:>6.0%} {row.nonfinite:>11.0%}"
                for row in last
            ]
        notes = {
            "silent (never ran)": self.silent,
            "without a gradient": self.without_gradient,
            "no numbers to read": sorted(self._session.unreadable),
        }
        lines += [f"  {what}: {', '.join(map(repr, names))}" for what, names in notes.items() if names]
        lines += [f"  {finding.text}" for finding in self.findings]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<health of {type(self._options.model).__name__}: {len(self.steps)} steps recorded>"

    @property
    def _options(self) -> Monitor:
        return self._session.options

    def _why_nothing(self, kind: str) -> str:
        if kind == "gradient" and not self._options.grads:
            return "Open the block with monitor(..., grads=True)."
        if kind == UPDATE and not self._options.optimizers:
            return "Open the block with monitor(..., updates=optimizer)."
        called = {OUTPUT: "the model", "gradient": "backward", UPDATE: "optimizer.step"}[kind]
        return f"Call {called} inside the block. {self._session.what_was_called()}".rstrip()


def require(kind: str, statistic: str) -> None:
    """Raise ValueError unless these are a kind and a statistic."""
    if kind not in KINDS:
        raise ValueError(f"kind is {', '.join(map(repr, KINDS))}; not {kind!r}.")
    statistics = Row._fields[3:]
    if statistic not in statistics:
        raise ValueError(f"a statistic is one of {', '.join(map(repr, statistics))}; not {statistic!r}.")
