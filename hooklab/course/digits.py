"""A small trained network and its data: `digits()`, `trained_digits_cnn(seed)`, `accuracy(...)`.

The data set comes with scikit-learn, so nothing is downloaded; its file is read without importing scikit-learn, which
would take longer than to train the network. Training takes about a second on one thread. Trained
weights differ in the last digits from one machine to another: lessons print shapes and counts of them, never values.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 64
LEARNING_RATE = 5e-3
TEST_EVERY = 5


class Digits(NamedTuple):
    """Handwritten digits: images of shape (N, 1, 8, 8), float32 from 0 to 1, and labels of shape (N,), int64."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def digits() -> Digits:
    """Return scikit-learn's 1797 digits, 1437 to train on and 360 to test on: each fifth image is for testing.

    Source: https://archive.ics.uci.edu/dataset/80, the test part of the data set.

    Example:
        >>> data = digits()
        >>> data.train_images.shape, data.test_images.shape, data.test_labels[:4].tolist()
        (torch.Size([1437, 1, 8, 8]), torch.Size([360, 1, 8, 8]), [0, 5, 0, 5])
    """
    pixels, labels = raw_digits()
    images = pixels.view(-1, 1, 8, 8) / 16  # the file counts ink from 0 to 16
    is_test = torch.arange(len(labels)) % TEST_EVERY == 0
    return Digits(images[~is_test], labels[~is_test], images[is_test], labels[is_test])


def raw_digits() -> tuple[Tensor, Tensor]:
    """Return the digits as they come: images of shape (1797, 64), float32 from 0 to 16, and labels, int64."""
    images, labels = _loaded()
    return images.clone(), labels.clone()


@functools.cache
def _loaded() -> tuple[Tensor, Tensor]:
    if not (file := _file()).is_file():  # a release that keeps it elsewhere, or none, and then the import says so
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return torch.tensor(bunch.data).float(), torch.tensor(bunch.target)
    rows = torch.tensor(np.loadtxt(file, delimiter=","))  # 64 pixels and a label in each
    return rows[:, :-1].float(), rows[:, -1].long()


def _file() -> Path:
    found = importlib.util.find_spec("sklearn")
    package = Path(found.origin).parent if found and found.origin else Path("sklearn")
    return package / "datasets" / "data" / "digits.csv.gz"


class DigitsCNN(nn.Module):
    """Two convolutions, a pooling and a linear layer. Images of shape (N, 1, 8, 8) give scores of shape (N, 10).

    The submodules, in the order in which they run, and the shapes of their outputs:

    ========  ===============
    conv1     (N, 8, 8, 8)
    relu1     (N, 8, 8, 8)
    conv2     (N, 16, 8, 8)
    relu2     (N, 16, 8, 8)
    pool      (N, 16, 4, 4)
    fc        (N, 10)
    ========  ===============

    Each is used once in a forward pass. No activation works in place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.relu2 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        first = self.relu1(self.conv1(images))
        second = self.relu2(self.conv2(first))
        scores: Tensor = self.fc(self.pool(second).flatten(1))
        return scores


def trained_digits_cnn(seed: int = 0, epochs: int = 8) -> DigitsCNN:
    """Return a new `DigitsCNN` with trained weights, in evaluation mode, with no gradients stored.

    With eight epochs more than nine of ten test digits are read right. The same seed gives the same weights on the same
    machine; a process trains them once. The global random state is left as it was.

    Args:
        seed: of the first weights and of the order of the images.
        epochs: how often each training image is seen; with 0 the network is untrained.

    Example:
        >>> cnn = trained_digits_cnn(epochs=0)
        >>> [name for name, _ in cnn.named_children()]
        ['conv1', 'relu1', 'conv2', 'relu2', 'pool', 'fc']
    """
    weights = _trained_weights(seed, epochs)
    with torch.random.fork_rng(devices=[]):
        model = DigitsCNN()
    model.load_state_dict(weights)
    return model.eval()


@functools.cache
def _trained_weights(seed: int, epochs: int) -> dict[str, Tensor]:
    data = digits()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        model = DigitsCNN()
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        for _ in range(epochs):
            for batch in torch.randperm(len(data.train_labels)).split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(model(data.train_images[batch]), data.train_labels[batch]).backward()
                optimizer.step()
    return model.state_dict()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images whose highest score is at their label, from 0 to 1.

    Args:
        model: gives scores of shape (N, classes) for `images`.
        images: whatever the model takes, N of them.
        labels: shape (N,), the classes as integers.
    """
    with torch.no_grad():
        right: Tensor = model(images).argmax(dim=1) == labels
    return int(right.sum()) / len(labels)
