"""The check of exercise 3.2: one channel switched off, by returning a new output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooklab.course.exercises.exercise import exercise
from hooklab.course.exercises.expectations import expect_handle, is_used_up
from hooklab.course.exercises.forward import linear, misconception_named, run_with_hooks, whole_numbers
from hooklab.course.exercises.trial import NotYet, Trial, expect_dtype, expect_tensor, same, tensor_text
from hooklab.course.exercises.varying import runs_of


@exercise("3.2", "Switch a channel off")
@misconception_named()
def switch_a_channel_off(trial: Trial) -> str:
    for seed, (channels, channel) in enumerate(((4, 1), (3, 2), (3, 0))):
        dtype = torch.float64 if seed == 1 else torch.float32
        layer = _convolution(channels, seed).to(dtype)
        x = whole_numbers(seed, 5, 2, 6, 6).to(dtype)
        x[::2] *= -1000  # each channel has numbers of both signs
        x.requires_grad_()
        before = layer(x).detach()
        wanted = before.clone()
        wanted[:, channel] = 0
        handle = trial.call(layer, channel, may_hook=True)
        if trial.faults:  # it has written into the weights
            raise trial.faults[0]
        with runs_of(layer) as runs:
            now = run_with_hooks(trial, layer, x)
        if same(now, before):
            raise _as_before(trial, layer, x, channel, handle, first=seed == 0)
        _expect_channel_off(now, before, channel)
        if not same(layer.made, before):
            raise NotYet(
                "your hook wrote into the layer's own output",
                expected="a new tensor, returned; what an earlier hook has captured stays as it was",
                got=f"the tensor that the layer made has a channel {channel} of zeros",
                likely="in place: `output[:, channel] = 0` changes a tensor that others hold and backward may need",
            )
        expect_dtype(now, "the new output", dtype)
        _expect_gradient(trial, now, x, wanted, layer)
        runs.expect_no_more(1)
        _expect_off_again(trial, layer, whole_numbers(seed + 20, 3, 2, 4, 4).to(dtype), channel, handle)
        layer.eval()
        if same(run_with_hooks(trial, layer, x), before):
            raise NotYet("in evaluation mode the channel is on again", expected=f"channel {channel} is zero")
        expect_handle(handle, "register_forward_hook")
        hooks = len(layer._forward_hooks)
        trial.run(handle.remove)
        if not same(layer(x), before):
            raise NotYet(
                "after handle.remove() the channel is still off",
                expected="the layer's usual output",
                likely="a second hook, whose handle nobody has"
                if len(layer._forward_hooks) < hooks
                else "another hook's handle",
            )
        trial.expect_none_left()
    return "one channel is zero, values and gradients of all others are as before, and remove() brings it back"


class _Convolution(nn.Conv2d):
    """Keeps the tensor that it made last, without copying it."""

    made: Tensor

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        self.made = output
        return output


def _convolution(channels: int, seed: int) -> _Convolution:
    layer = _Convolution(2, channels, kernel_size=1)
    numbers = linear(2, channels, seed)
    with torch.no_grad():
        layer.weight.copy_(numbers.weight.reshape(channels, 2, 1, 1))
        layer.bias.copy_(numbers.bias * 100)  # type: ignore[union-attr]  # no output is zero by itself
    return layer


def _as_before(trial: Trial, layer: _Convolution, x: Tensor, channel: int, handle: Any, first: bool) -> NotYet:
    """What to say when the hook has changed nothing, in training mode."""
    if not layer._forward_hooks:
        likely = "another kind of hook"
        if not isinstance(handle, RemovableHandle):
            likely = "registered nowhere"
        elif is_used_up(handle):
            likely = "removed before the layer ran: the caller removes the hook, not you"
        return NotYet(
            "no forward hook is on the layer",
            expected="register_forward_hook on the layer that you were given",
            likely=likely,
        )
    layer.eval()
    only_in_evaluation = not same(run_with_hooks(trial, layer, x), layer.made)
    likely = "forgotten return: a new tensor that the hook does not return is lost"
    return NotYet(
        "the layer's output is as before" + (" in training mode" if only_in_evaluation else ""),
        expected=f"channel {channel} is zero",
        got="your hook ran, and nothing has changed",
        likely=likely if first and not only_in_evaluation else None,
    )


def _expect_off_again(trial: Trial, layer: _Convolution, x: Tensor, channel: int, handle: Any) -> None:
    """A second pass, with another batch: other numbers, another size."""
    now = run_with_hooks(trial, layer, x)
    if same(now, layer.made):
        raise NotYet(
            "in the second pass the channel is on again",
            expected=f"channel {channel} stays zero until the caller removes the handle",
            likely="a hook that removes itself" if is_used_up(handle) else None,
        )
    wanted = layer.made.clone()
    wanted[:, channel] = 0
    if not same(now, wanted):
        raise NotYet(
            "the second pass, with another batch, gives other numbers than its own",
            expected=f"the second batch's output, with zeros in channel {channel}",
            likely="kept from the first pass: the new output must be made from `output` each time",
        )


def _expect_channel_off(now: Any, before: Tensor, channel: int) -> None:
    shape = tuple(before.shape)
    now = expect_tensor(now, "what your hook returned in place of the output")
    if tuple(now.shape) != shape:
        raise NotYet(
            "the layer's output has another shape",
            expected=f"shape {shape}, with zeros in channel {channel}",
            got=f"shape {tuple(now.shape)}",
            likely="channel taken out instead of switched off: the next layer needs all of them"
            if now.dim() == 4 and now.shape[1] < shape[1]
            else None,
        )
    others = [number for number in range(shape[1]) if number != channel]
    zero = [number for number in range(shape[1]) if not now.detach()[:, number].any()]
    shown = {"expected": f"zeros in channel {channel} only", "got": f"zeros in channels {zero}"}
    if zero == others:
        raise NotYet("all channels are off but the one", **shown, likely="the other way round: a mask negated")
    if len(zero) == shape[1]:
        raise NotYet("every channel is off", **shown, likely="whole tensor: index the channel, in dimension 1")
    for dimension, what in ((0, "sample"), (2, "row"), (3, "column")):
        if not now.detach().select(dimension, channel).any():
            raise NotYet(
                f"{what} {channel} is off, not channel {channel}",
                **shown,
                likely=f"dimension {dimension}: in (batch, channels, height, width), the channels are dimension 1",
            )
    if zero != [channel]:
        raise NotYet(f"channel {channel} is not the one that is off", **shown)
    if not same(now.detach()[:, others], before[:, others]):
        raise NotYet(
            "the other channels have changed",
            expected="the same numbers as without your hook",
            got=f"{tensor_text(now[0, others[0], 0, :3])} in place of {tensor_text(before[0, others[0], 0, :3])}",
        )


def _expect_gradient(trial: Trial, now: Tensor, x: Tensor, wanted: Tensor, layer: nn.Conv2d) -> None:
    if not now.requires_grad:
        raise NotYet(
            "no gradient can flow through the new output",
            expected="a tensor with the layer's graph behind it",
            got="requires_grad is False",
            likely="cut off: detach(), .data or torch.no_grad() in the hook; all up to this layer would stop learning",
        )

    def backward() -> Any:
        return torch.autograd.grad(now.sum(), x, allow_unused=True)

    (got,) = trial.run(backward)
    if got is None:
        raise NotYet(
            "no gradient can flow through the new output",
            expected="a tensor with the layer's graph behind it",
            got="a new leaf: it requires grad, and there is nothing behind it",
            likely="`requires_grad_()` after a detach() begins a graph of its own; clone the live output instead",
        )
    on = (wanted != 0).any(dim=(0, 2, 3)).to(x.dtype)
    right = torch.einsum("oi,o->i", layer.weight.detach()[:, :, 0, 0], on)
    if not same(got[0, :, 0, 0], right):
        raise NotYet(
            "the gradient that comes through is not that of the other channels",
            expected=tensor_text(right),
            got=tensor_text(got[0, :, 0, 0]),
        )
