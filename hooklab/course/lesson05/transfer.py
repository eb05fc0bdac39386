"""Two domains, and a network that gets labels for one of them: `Network`, `train`, and how well it does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

POINTS = 150  # in each domain
STEPS = 400
MOVED = torch.tensor([2.5, 0.0])  # from domain 0 to domain 1: to the right, at the same height


def two_domains(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return points of shape (300, 2), their classes and their domains, both of shape (300,) with values 0.0 and 1.0.

    Class 1 is above class 0, and to its right. Domain 1 is domain 0, moved to the right. So a rule that separates the
    classes of domain 0 may fail in domain 1, and the height works in both.
    """
    generator = torch.Generator().manual_seed(seed)
    classes = (torch.arange(POINTS) % 2).float()
    centres = (2 * classes - 1).unsqueeze(1).expand(-1, 2)
    domains = [centres + 0.3 * torch.randn(POINTS, 2, generator=generator) + place * MOVED for place in (0, 1)]
    return torch.cat(domains), classes.repeat(2), torch.arange(2).repeat_interleave(POINTS).float()


class Network(nn.Module):
    """Three parts: `features` computes two numbers for each point; `classes` and `domains` predict from them."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.features = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
            self.classes = nn.Linear(2, 1)
            self.domains = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor, blur: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Return logits for class and domain, each of shape (n,); `blur` is added to the input of `domains`."""
        features = self.features(x)
        return self.classes(features).squeeze(1), self.domains(features + blur).squeeze(1)


def scale_input_gradient(layer: nn.Module, factor: float) -> RemovableHandle:
    """Multiply the gradient that the layer passes to its inputs: what the page runs while exercise 5.2 is open."""

    def scale(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        return tuple(None if grad is None else factor * grad for grad in grad_input)

    return layer.register_full_backward_hook(scale)


def train(network: Network, seed: int = 0) -> Network:
    """Train on the domains of all points and the classes of domain 0; return the network.

    With the hook, `features` and `domains` work against each other, which can make both oscillate. So the optimizer
    has no momentum and decreasing steps, and `domains` gets a larger learning rate, weight decay and noisy features.
    """
    x, classes, domains = two_domains(seed)
    optimizer = torch.optim.Adam(
        [
            {"params": [*network.features.parameters(), *network.classes.parameters()], "lr": 0.01},
            {"params": network.domains.parameters(), "lr": 0.03, "weight_decay": 0.01},
        ],
        betas=(0.0, 0.99),
    )
    smaller = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    generator = torch.Generator().manual_seed(seed)
    labelled = domains == 0
    for _ in range(STEPS):
        guessed_class, guessed_domain = network(x, 0.3 * torch.randn(x.shape, generator=generator))
        loss = F.binary_cross_entropy_with_logits(guessed_class[labelled], classes[labelled])
        loss = loss + F.binary_cross_entropy_with_logits(guessed_domain, domains)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smaller.step()
    return network


@torch.no_grad()
def classes_right(network: Network, seed: int = 0) -> float:
    """Return the share of the points of domain 1 that the network puts into the right class."""
    x, classes, domains = two_domains(seed)
    right = (network(x)[0] > 0) == (classes == 1)
    return int(right[domains == 1].sum()) / POINTS


@torch.no_grad()
def unmoved(network: Network, seed: int = 0) -> float:
    """Return the share of the points of domain 0 that keep their class when they're moved right, to domain 1."""
    x, _, domains = two_domains(seed)
    answers = [network(x[domains == 0] + moved)[0] > 0 for moved in (torch.zeros(2), MOVED)]
    return int((answers[0] == answers[1]).sum()) / POINTS


def domain_readable(values: Tensor, domains: Tensor) -> float:
    """Return the share of points with mostly neighbours of their own domain among their five nearest; 0.5 is chance.

    Args:
        values: shape (n, 2); each column is brought to the same spread first.
        domains: shape (n,), 0.0 or 1.0.
    """
    values = (values - values.mean(dim=0)) / values.std(dim=0)
    distances = torch.cdist(values, values).fill_diagonal_(float("inf"))
    nearest = distances.topk(5, largest=False).indices
    majority = domains[nearest].mean(dim=1) > 0.5
    return int((majority == (domains == 1)).sum()) / len(domains)
