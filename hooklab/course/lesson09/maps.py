"""Maps of what a network looks at, and their scores against the place of the shape.

A map function is called as f(model, images, labels) and returns (n, 32, 32), no number below zero: how much each pixel
has to do with the score of the image's label. `METHODS` has them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hooklab

Method = Callable[[nn.Module, Tensor, Tensor], Tensor]
PATCH, STRIDE = 8, 4  # of occlusion
TOLERANCE = 2


def own_scores(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return each image's score of its own label, shape (n,)."""
    return model(images).gather(1, labels.unsqueeze(1)).squeeze(1)  # type: ignore[no-any-return]


def grad_cam(model: nn.Module, images: Tensor, labels: Tensor, layer: str = "block3") -> Tensor:
    """Return Grad-CAM of one layer, brought to the size of the images (Selvaraju and others, 2017, equations 1, 2)."""
    return resized(cam(model, model.get_submodule(layer), images, labels))


def cam(model: nn.Module, layer: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the same in the layer's own size, shape (n, height, width): what the page runs while 9.1 is open."""
    kept: list[Tensor] = []
    with torch.enable_grad(), layer.register_forward_hook(lambda module, args, output: kept.append(output)):
        total = own_scores(model, images.detach().requires_grad_(), labels).sum()
    weights = torch.autograd.grad(total, kept[0])[0].mean(dim=(2, 3))
    return torch.einsum("nc,nchw->nhw", weights, kept[0].detach()).relu()


def gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return how strongly each pixel moves the score: the gradient's size, added up over the colours."""
    return input_gradient(model, images, labels).abs().sum(dim=1)


def gradient_times_input(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the size of gradient times pixel, added up over the colours first."""
    return (input_gradient(model, images, labels) * images).sum(dim=1).abs()


def guided_backprop(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient's size if each ReLU passes back only the positive part (Springenberg and others, 2014)."""
    return guided_gradient(model, images, labels).abs().sum(dim=1)


def guided_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the same with its sign, in the shape of the images: what the page runs while 9.2 is open."""
    with ExitStack() as hooks:
        for relu in hooklab.select(model, nn.ReLU).values():
            hooks.enter_context(relu.register_full_backward_hook(_positive_part))
        return input_gradient(model, images, labels)


def _positive_part(module: nn.Module, grad_input: tuple[Tensor, ...], grad_output: object) -> tuple[Tensor, ...]:
    return tuple(one.relu() for one in grad_input)


@torch.no_grad()
def occlusion(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return how much log-probability is lost when a square around the pixel is painted with the image's mean colour.

    The square is 8 pixels wide and moves by 4; a pixel's number is the mean over the squares that hide it.
    """

    def log_probability(shown: Tensor) -> Tensor:
        return model(shown).log_softmax(dim=1).gather(1, labels.unsqueeze(1)).view(-1, 1, 1)  # type: ignore[no-any-return]

    side, mean, full = images.shape[-1], images.mean(dim=(2, 3), keepdim=True), log_probability(images)
    lost, hidden = torch.zeros(len(images), side, side), torch.zeros(side, side)
    starts = range(STRIDE - PATCH, side, STRIDE)
    for top, left in ((top, left) for top in starts for left in starts):
        rows, columns = slice(max(top, 0), top + PATCH), slice(max(left, 0), left + PATCH)
        covered = images.clone(memory_format=torch.channels_last)  # max pooling is several times faster then
        covered[:, :, rows, columns] = mean
        lost[:, rows, columns] += full - log_probability(covered)
        hidden[rows, columns] += 1
    return (lost / hidden).relu()


METHODS: dict[str, Method] = {
    "Grad-CAM": grad_cam,
    "gradient": gradient,
    "gradient × input": gradient_times_input,
    "guided backprop": guided_backprop,
    "occlusion": occlusion,
}


def resized(maps: Tensor, side: int = 32) -> Tensor:
    """Return maps of shape (n, height, width) as (n, side, side), bilinear."""
    return F.interpolate(maps.unsqueeze(1), side, mode="bilinear").squeeze(1)


def points_at(maps: Tensor, masks: Tensor) -> float:
    """Return the pointing game's score: the share of maps whose largest number is on the mask or within two pixels.

    Source: Zhang and others, "Top-down Neural Attention by Excitation Backprop", 2016, section 4.2 (15 pixels there, of
    pictures some hundred pixels wide).

    >>> spot = torch.zeros(1, 32, 32)
    >>> spot[0, 4, 4] = 1.0
    >>> points_at(spot, spot), points_at(spot.roll(2, 1), spot), points_at(spot.roll(3, 1), spot)
    (1.0, 1.0, 0.0)
    """
    row, column = peaks(maps).long().unbind(dim=1)
    hits = _with_tolerance(masks)[torch.arange(len(maps)), row, column]
    return (hits * (maps.amax(dim=(1, 2)) > 0)).mean().item()  # an empty map points nowhere


def peaks(maps: Tensor) -> Tensor:
    """Return row and column of each map's largest number, shape (n, 2); where a square of pixels shares it, its middle.

    >>> square = torch.zeros(1, 32, 32)
    >>> square[0, 4:8, 8:12] = 1.0
    >>> peaks(square)
    tensor([[5.5000, 9.5000]])
    """
    largest = (maps == maps.amax(dim=(1, 2), keepdim=True)).float()
    rows, columns = largest.sum(dim=2), largest.sum(dim=1)
    at = torch.arange(maps.shape[-1], dtype=torch.float32)
    return torch.stack([rows @ at, columns @ at], dim=1) / rows.sum(dim=1, keepdim=True)


def chance(masks: Tensor) -> float:
    """Return how often a point anywhere in the picture would win the pointing game."""
    return _with_tolerance(masks).mean().item()


def _with_tolerance(masks: Tensor) -> Tensor:
    return F.max_pool2d(masks.unsqueeze(1), 2 * TOLERANCE + 1, 1, TOLERANCE).squeeze(1)


def mass_on(maps: Tensor, masks: Tensor) -> float:
    """Return the share of a map's sum that lies on the mask, the mean over all maps; an empty map has 0."""
    inside, total = (maps * masks).sum(dim=(1, 2)), maps.sum(dim=(1, 2))
    return (inside / total.clamp(min=1e-12)).mean().item()


def alike(maps: Tensor, others: Tensor) -> float:
    """Return the mean rank correlation of maps with others, both (n, 32, 32): 1 for the same order of all pixels.

    >>> one = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> round(alike(one, one**3), 2), round(alike(one, -one), 2)
    (1.0, -1.0)
    """
    ranks = [one.flatten(1).argsort(dim=1).argsort(dim=1).float() for one in (maps, others)]
    a, b = (rank - rank.mean(dim=1, keepdim=True) for rank in ranks)
    correlation: Tensor = (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1))
    return correlation.mean().item()


def input_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of each image's own score, with its sign, in the shape of the images."""
    with torch.enable_grad():
        watched = images.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(own_scores(model, watched, labels).sum(), watched)
    return found


@torch.no_grad()
def channels_worth(model: nn.Module, layer: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy lost without each channel of the layer: what the page runs while 9.5 is open."""
    widths: list[int] = []

    def right(hook: Callable[..., Tensor | None]) -> Tensor:
        with layer.register_forward_hook(hook):
            says: Tensor = model(images).argmax(dim=1)
        return (says == labels).float().mean()

    def without(channel: int) -> Callable[..., Tensor]:
        return lambda module, args, output: output.index_fill(1, torch.tensor([channel]), 0.0)

    full = right(lambda module, args, output: widths.append(output.shape[1]))
    return torch.stack([full - right(without(channel)) for channel in range(widths[0])])
