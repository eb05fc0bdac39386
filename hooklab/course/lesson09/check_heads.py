"""The check of exercise 9.3: the induction score of every head, from patterns that forward hooks see."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.misconceptions import named_by
from hooklab.course.exercises.trial import Trial
from hooklab.course.lesson09.judging import Program, World, judge, with_gradients


class _Attention(nn.Module):
    """Gives out patterns that depend on the tokens: shape (n, heads, to, from), rows with sum 1, later places too."""

    def __init__(self, heads: int, seed: int) -> None:
        super().__init__()
        self.pattern, self.heads, self.seed = nn.Identity(), heads, seed

    def forward(self, tokens: Tensor) -> Tensor:
        n, length = tokens.shape
        generator = torch.Generator().manual_seed(self.seed + int(tokens.sum()))
        scores = 2 * torch.randn(n, self.heads, length, length, generator=generator)
        pattern: Tensor = self.pattern(scores.softmax(dim=-1))
        return pattern.sum(dim=(1, 2))


class _Reader(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Attention(heads, seed) for seed in range(3))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scale * torch.stack([block(tokens) for block in self.blocks]).sum(dim=0)


def _world(name: str, heads: int, length: int, period: int, *blocks: int) -> World:
    def make() -> tuple[nn.Module, list[str], Tensor, int]:
        part = torch.stack(
            [torch.randperm(9, generator=torch.Generator().manual_seed(row))[:period] for row in range(4)]
        )
        names = [f"blocks.{block}.pattern" for block in blocks]
        return with_gradients(_Reader(heads)), names, part[:, torch.arange(length) % period], period

    return World(name, make)


WORLDS = [
    _world("two modules with three heads, period 3", 3, 8, 3, 0, 2),
    _world("three modules in another order than the model's, period 5", 2, 11, 5, 2, 0, 1),
    _world("one module with one head, period 4", 1, 9, 4, 1),
]


def _patterns(model: nn.Module, chosen: list[str], tokens: Tensor) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    for name in chosen:
        module = model.get_submodule(name)
        module.register_forward_hook(lambda module, args, output, name=name: seen.update({name: output}))
    model(tokens)
    return seen


def _program(
    back: Program, start: Program = lambda period: period, combine: Program | None = None, names: Program = list
) -> Program:
    """Return a program that reads the attention from t to t - back(period), for t from start(period) on."""

    def run(model: nn.Module, chosen: list[str], tokens: Tensor, period: int) -> Tensor:
        seen = _patterns(model, chosen, tokens)
        t = torch.arange(start(period), tokens.shape[1])
        read = [seen[name][:, :, t, t - back(period)] for name in names(chosen)]
        return torch.stack([combine(one) if combine else one.mean(dim=(0, 2)) for one in read])

    return run


def _answer(period: int) -> int:
    return period - 1


def _of_patterns(score: Program) -> Program:
    """Return a program that makes a score of (pattern, t, source)."""

    def run(model: nn.Module, chosen: list[str], tokens: Tensor, period: int) -> Tensor:
        seen = _patterns(model, chosen, tokens)
        t = torch.arange(period, tokens.shape[1])
        return torch.stack([score(seen[name], t, t - period + 1) for name in chosen])

    return run


def _without_the_last(model: nn.Module, chosen: list[str], tokens: Tensor, period: int) -> Tensor:
    return RIGHT(model, chosen, tokens[:, :-1], period)  # type: ignore[no-any-return]


RIGHT = _program(_answer)
GUESSES: dict[str, Program] = {
    "the earlier copy itself: one place too far left; the answer is the token after it": _program(
        lambda period: period
    ),
    "one place too far right: t - period + 1 is the token after the earlier copy": _program(lambda period: period - 2),
    "the token before: this is the score of a previous-token head": _program(lambda period: 1),
    "too early: a token has an earlier copy from position `period` on": _program(_answer, lambda period: period - 1),
    "too late: the first token with an earlier copy stands at position `period`": _program(
        _answer, lambda period: period + 1
    ),
    "to and from are swapped: a pattern is (n, heads, to, from)": _of_patterns(
        lambda pattern, t, source: pattern[:, :, source, t].mean(dim=(0, 2))
    ),
    "the last token left out: it belongs to the sequence, and so does its position": _without_the_last,
    "the first sequence only: the mean goes over all of them": _program(
        _answer, combine=lambda one: one[0].mean(dim=1)
    ),
    "the last position only: the mean goes over all t": _program(
        _answer, combine=lambda one: one[:, :, -1].mean(dim=0)
    ),
    "the sum in the place of the mean": _program(_answer, combine=lambda one: one.sum(dim=(0, 2))),
    "the sum over t in the place of the mean": _program(_answer, combine=lambda one: one.sum(dim=2).mean(dim=0)),
    "the largest in the place of the mean": _program(_answer, combine=lambda one: one.amax(dim=(0, 2))),
    "how often the head looks most there, in the place of how much it looks": _of_patterns(
        lambda pattern, t, source: (pattern[:, :, t].argmax(dim=-1) == source).float().mean(dim=(0, 2))
    ),
    "one module for all names: a function made in a loop looks its variable up when it runs (lesson 2)": _program(
        _answer, names=lambda chosen: [max(chosen)] * len(chosen)
    ),
    "another order: the rows come in the order of `names`, not in that of the model": _program(_answer, names=sorted),
}
WORDS = {
    "not iterable": "one name or one pattern, where there are several: go through `names`",
    "'tuple' object has no attribute": "a tuple: `args` always is one; the pattern is the module's output",
    "raised KeyError": "nothing stored under this name when the line ran: has the model run, with the hooks on it?",
    "list index out of range": "an empty or short list: has the model run, with the hooks on it?",
    "index -1 is out of bounds": "too early: before position `period` no token has an earlier copy",
}


@exercise("9.3", "The induction score of every head")
@named_by(WORDS)
def induction_score_of_every_head(trial: Trial) -> str:
    judge(trial, WORLDS, RIGHT, GUESSES, "your table of scores")
    return "right for three periods, any number of heads, and the names in any order"
