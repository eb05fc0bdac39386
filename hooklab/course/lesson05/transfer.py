"""Two domains, and a network that is given the labels of one: `Network`, `train`, and what can be read of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

POINTS = 150  # in each domain
STEPS = 400


def two_domains(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return points of shape (300, 2), their classes and their domains, both of shape (300,) with values 0.0 and 1.0.

    Class 1 lies above class 0, and to its right. Domain 1 is domain 0, moved to the right: what tells the classes apart
    in domain 0 alone may be wrong in domain 1, and height is right in both.
    """
    generator = torch.Generator().manual_seed(seed)
    classes = (torch.arange(POINTS) % 2).float()
    centres = (2 * classes - 1).unsqueeze(1).expand(-1, 2)
    moved = torch.tensor([2.5, 0.0])
    domains = [centres + 0.3 * torch.randn(POINTS, 2, generator=generator) + place * moved for place in (0, 1)]
    return torch.cat(domains), classes.repeat(2), torch.arange(2).repeat_interleave(POINTS).float()


class Network(nn.Module):
    """Three parts: `features`, two numbers for each point; `classes` and `domains`, a guess from these two numbers."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.features = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
            self.classes = nn.Linear(2, 1)
            self.domains = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor, blur: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Return the guesses of class and domain, each of shape (n,); `blur` is added to what `domains` is given."""
        features = self.features(x)
        return self.classes(features).squeeze(1), self.domains(features + blur).squeeze(1)


def train(network: Network, seed: int = 0) -> Network:
    """Train on the domains of all points and the classes of domain 0; return the network.

    Two who work against each other turn in circles easily. So: no momentum, steps that get smaller, a domain part that
    learns faster and forgets a little, and features that it sees a little blurred.
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
    """Return the share of domain 1, whose labels nobody has given away, that the network puts into the right class."""
    x, classes, domains = two_domains(seed)
    right = (network(x)[0] > 0) == (classes == 1)
    return int(right[domains == 1].sum()) / POINTS


def domain_readable(values: Tensor, domains: Tensor) -> float:
    """Return the share of points whose domain is that of most of their five nearest others: 0.5 is guessing.

    Args:
        values: shape (n, 2); each column is brought to the same spread first.
        domains: shape (n,), 0.0 or 1.0.
    """
    values = (values - values.mean(dim=0)) / values.std(dim=0)
    distances = torch.cdist(values, values).fill_diagonal_(float("inf"))
    nearest = distances.topk(5, largest=False).indices
    majority = domains[nearest].mean(dim=1) > 0.5
    return int((majority == (domains == 1)).sum()) / len(domains)
