"""Questions to the copier of lesson 9: what its heads look at, what they are worth, where the answer is carried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

import hooklab
from hooklab.course.lesson09.copying import HEADS, LAYERS, Copier, Sequences, accuracy, right, sequences

Head = tuple[int, int]  # layer, head
Patch = Callable[[nn.Module, str, Tensor, Tensor, int], Tensor]
ALL_HEADS: tuple[Head, ...] = tuple((layer, head) for layer in range(LAYERS) for head in range(HEADS))
PERIOD, LAST = 12, 22  # of the sequences in which activations are patched: the last position asks for token 11


@torch.no_grad()
def patterns(model: Copier, tokens: Tensor) -> Tensor:
    """Return what all heads attend to: shape (layers, n, heads, to, from)."""
    with hooklab.capture(model, "layers.*.pattern") as seen:
        model(tokens)
        return torch.stack([seen[f"layers.{layer}.pattern"] for layer in range(LAYERS)])


def scores(model: Copier, back: int, made: Sequences) -> Tensor:
    """Return the mean attention that each head sends `back` places back, from all positions after the first copy.

    Args:
        model: the copier.
        back: 1 for the token before; the period less one for the token after the earlier copy.
        made: sequences; for the latter, all of one period.

    Returns:
        Shape (layers, heads).
    """
    at = torch.arange(back + 1, made.inputs.shape[1])
    return patterns(model, made.inputs)[..., at, at - back].mean(dim=(1, 3))


@torch.no_grad()
def induction_scores(model: nn.Module, names: list[str], tokens: Tensor, period: int) -> Tensor:
    """Return each head's attention on the token after the earlier copy: what the page runs while 9.3 is open."""
    at = torch.arange(period, tokens.shape[1])
    with hooklab.capture(model, *names) as seen:
        model(tokens)
        return torch.stack([seen[name][:, :, at, at - period + 1].mean(dim=(0, 2)) for name in names])


@contextmanager
def without(model: Copier, heads: Collection[Head]) -> Iterator[None]:
    """Switch heads off inside the block: their attention is zero everywhere, so they add nothing."""

    def edited(layer: int) -> hooklab.Edit:
        off = [head for one, head in heads if one == layer]
        keep = torch.tensor([head not in off for head in range(HEADS)]).float().view(-1, 1, 1)
        return hooklab.edit(model, lambda pattern, call: pattern * keep, f"layers.{layer}.pattern")

    with ExitStack() as stack:
        for layer in range(LAYERS):
            stack.enter_context(edited(layer))
        yield


def accuracy_without(model: Copier, heads: Collection[Head], made: Sequences) -> float:
    """Return the accuracy with these heads switched off."""
    with without(model, heads):
        return accuracy(model, made)


def corrupted(made: Sequences, position: int) -> Tensor:
    """Return the inputs with one token replaced by one that its sequence doesn't contain."""
    tokens = made.inputs.clone()
    is_free = torch.ones(len(tokens), 16).scatter(1, tokens, 0.0)
    tokens[:, position] = is_free.argmax(dim=1)
    return tokens


@torch.no_grad()
def carried(model: Copier, made: Sequences, position: int, patch: Patch | None = None) -> Tensor:
    """Return where the last answer is carried: patch the clean run into the corrupted one, place by place.

    Args:
        model: the copier.
        made: sequences of period 12.
        position: whose token is replaced in the corrupted run.
        patch: does what :func:`patched` does, which is used without it.

    Returns:
        Shape (layers + 1, 23): of the last answers that are wrong in the corrupted run, the share that is right when
        the residual stream after the embedding and after each layer is patched at each position.
    """
    places = ["embed", *(f"layers.{layer}" for layer in range(LAYERS))]
    broken, answers = corrupted(made, position), made.tokens[:, -1]
    is_lost = model(broken)[:, -1].argmax(dim=-1) != answers
    found = torch.zeros(len(places), broken.shape[1])
    for row, place in enumerate(places):
        for column in range(broken.shape[1]):
            output = (patch or patched)(model, place, made.inputs, broken, column)
            is_back = output[:, -1].argmax(dim=-1) == answers
            found[row, column] = is_back[is_lost].float().mean()
    return found


@torch.no_grad()
def patched(model: nn.Module, name: str, clean: Tensor, corrupted: Tensor, position: int) -> Tensor:
    """Run on `corrupted`, with one position of one module's output from `clean`: used while 9.4 is open."""
    with hooklab.capture(model, name, clone=True) as seen:
        model(clean)
        values: Tensor = seen[name]
    at = torch.arange(values.shape[1]).view(1, -1, 1) == position
    with hooklab.edit(model, lambda output, call: torch.where(at, values, output), name):
        output: Tensor = model(corrupted)
    return output


@torch.no_grad()
def lens(model: Copier, made: Sequences) -> list[float]:
    """Return how often the answer can be read off the residual stream, after embed and after each layer."""
    places = ["embed", *(f"layers.{layer}" for layer in range(LAYERS))]
    with hooklab.capture(model, *places) as seen:
        model(made.inputs)
        return [right(model.unembed(model.norm(seen[place])), made) for place in places]


@torch.no_grad()
def steering(model: Copier, made: Sequences, token: int, doses: Collection[float], seed: int = 0) -> dict[str, Tensor]:
    """Return how often the model says `token`, by dose, when a direction is added after the last layer.

    Args:
        model: the copier.
        made: sequences; where the right answer is `token` anyway is not counted.
        token: what the model should say.
        doses: by how much the direction is multiplied.
        seed: of the random direction.

    Returns:
        "towards the token": from all places to those where the token is the answer, on average; "random": a random
        direction of the same length. Each has shape (len(doses),).
    """
    place = f"layers.{LAYERS - 1}"
    is_answer = (made.tokens[:, 1:] == token) & made.known
    with hooklab.capture(model, place) as seen:
        model(made.inputs)
        values: Tensor = seen[place]
    towards = values[is_answer].mean(dim=0) - values[made.known].mean(dim=0)
    random = torch.randn(len(towards), generator=torch.Generator().manual_seed(seed))
    directions = {"towards the token": towards, "random": random / random.norm() * towards.norm()}
    asked = made.known & ~is_answer

    def said(added: Tensor) -> Tensor:
        with hooklab.edit(model, lambda output, call: output + added, place):
            return (model(made.inputs).argmax(dim=-1)[asked] == token).float().mean()  # type: ignore[no-any-return]

    found = {}
    for name, direction in directions.items():
        found[name] = torch.stack([said(dose * direction) for dose in doses])
    return found


def for_patching(count: int = 60, seed: int = 100) -> Sequences:
    """Return sequences of period 12."""
    return sequences(count, seed, PERIOD)
