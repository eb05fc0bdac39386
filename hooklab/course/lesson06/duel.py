"""beside_torch: random programs of hooks, run with a class of the reader's and with torch's, log against log."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from hooklab.course.lesson06.programs import GROUPS, Program, random_programs
from hooklab.course.lesson06.running import run


@dataclass(frozen=True)
class Match:
    """A program, and what each of the two wrote into its log, line by line."""

    program: Program
    yours: list[str]
    torchs: list[str]
    errors: Sequence[Exception] = ()  # your class's errors, without those of the program itself

    @property
    def is_same(self) -> bool:
        """Whether both logs are the same."""
        return self.yours == self.torchs

    @property
    def place(self) -> int:
        """The number of the first line in which they differ."""
        both = [one == other for one, other in zip(self.yours, self.torchs, strict=False)]
        return both.index(False) if False in both else len(both)

    def line(self, log: list[str]) -> str:
        """Return a log's line at that place."""
        return log[self.place] if self.place < len(log) else "(nothing more)"

    def __str__(self) -> str:
        lines = [line if line.startswith(">>>") else f"both    {line}" for line in self.yours[: self.place]]
        if not self.is_same:
            lines += [f"yours   {self.line(self.yours)}", f"torch   {self.line(self.torchs)}"]
            lines += [f"        ({error})" for error in self.errors[:1]]
        return "\n".join([*self.program.made, *lines])


class Duel:
    """The matches of one class. Printing it says how many logs are torch's, for each group of programs."""

    def __init__(self, name: str, matches: Sequence[Match], unfinished: str = "") -> None:
        self.name, self.matches, self.unfinished = name, matches, unfinished

    def of(self, group: str) -> list[Match]:
        """Return the matches of one group of programs."""
        return [match for match in self.matches if match.program.group == group]

    @property
    def differences(self) -> list[Match]:
        """The matches whose logs differ, those of the shortest programs first."""
        found = [match for match in self.matches if not match.is_same]
        return sorted(found, key=lambda match: 3 * len(match.program.hooks) + match.place)

    def first_difference(self) -> str:
        """Return the shortest program whose logs differ, with both logs up to the line in which they do."""
        if self.unfinished or not self.differences:
            return f"{self.name}: {self.unfinished or 'no difference was found.'}"
        return str(self.differences[0])

    def __str__(self) -> str:
        if self.unfinished:
            return f"{self.name}: {self.unfinished}"
        counts = {group: [match.is_same for match in self.of(group)] for group in GROUPS}
        lines = [
            f"   {group:<12}{sum(same):>3} of {len(same)} logs are torch's" for group, same in counts.items() if same
        ]
        return "\n".join([f"{self.name}:", *lines])


def beside_torch(module_class: type, groups: Sequence[str] | None = None, each: int = 36, seed: int = 0) -> Duel:
    """Run random programs with `module_class` as the base of their module, and with `nn.Module`; compare the logs.

    Args:
        module_class: has `register_forward_pre_hook`, `register_forward_hook`, `register_full_backward_hook`, and
            a `__call__` that runs `self.forward`.
        groups: which groups of programs to run, of GROUPS; by default all.
        each: the number of programs of each group.
        seed: of the random programs.

    Example:
        >>> print(beside_torch(nn.Module, ["look"], each=5))
        Module:
           look          5 of 5 logs are torch's
    """
    matches = []
    for program in random_programs(each, seed, groups):
        try:
            yours = run(module_class, program)
        except NotImplementedError as error:
            where = list(traceback.walk_tb(error.__traceback__))[-1][0].f_code.co_qualname
            return Duel(module_class.__name__, [], f"{where} is not written yet. Write it, and run this cell again.")
        matches.append(Match(program, yours.log, run(nn.Module, program).log, yours.errors))
    return Duel(module_class.__name__, matches)
