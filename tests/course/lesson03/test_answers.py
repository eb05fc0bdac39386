"""Unusual right answers to lesson 3's exercises, and wrong ones: none is misjudged, and no reason is untrue."""

import contextlib
import copy
import functools
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

import hooklab
from tests.course.exercises.answers import Answers

answers = Answers("3.1", "3.2", "3.3", "3.4", "3.5")
right, wrong = answers.right, answers.wrong


# --- 3.1


@right("3.1")
def writes_into_the_result_that_it_got(model, layer, x):
    seen = []
    with layer.register_forward_hook(lambda module, args, output: seen.append(output.detach().clone())):
        model(x).detach().zero_()
    return seen[0]


@right("3.1")
def by_a_global_hook(model, layer, x):
    found = {}

    def hook(module, args, output):
        found[module] = output.detach()

    handle = torch_module.register_module_forward_hook(hook)
    try:
        model(x)
    finally:
        handle.remove()
    return found[layer]


@right("3.1")
def by_capture(model, layer, x):
    (name,) = [name for name, module in model.named_modules() if module is layer]
    with hooklab.capture(model, name) as seen:
        model(x)
    return seen[name].detach()


@right("3.1")
def with_keyword_arguments(model, layer, x):
    found = [None]

    def hook(module, args, kwargs, output):
        found[0] = output.data

    handle = layer.register_forward_hook(hook, with_kwargs=True, always_call=True)
    model(x)
    handle.remove()
    return found[0]


@right("3.1")
def detached_at_the_end(model, layer, x):
    found = []
    with layer.register_forward_hook(lambda *event: found.append(event[-1])):
        model(x)
    return found.pop().clone().detach()


@right("3.1")
def without_a_graph(model, layer, x):
    found = []
    with torch.no_grad(), layer.register_forward_hook(lambda module, args, output: found.append(output)):
        model(x)
    return found[0].detach()


@right("3.1")
class ByAClass:
    def __new__(cls, model, layer, x):
        self = object.__new__(cls)
        with layer.register_forward_hook(self.hook):
            model.__call__(x)
        return self.kept

    def hook(self, module, args, output):
        self.kept = output.detach()


def kept_by(model, layer, x, run=None, keep=torch.Tensor.detach):
    """A hook around one run, with one thing in it that can be wrong."""
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(keep(output))):
        (run or model)(x)
    return found[0]


@wrong("3.1", "`forward` alone")
def by_forward(model, layer, x):
    return kept_by(model, layer, x, model.forward)


@wrong("3.1", says="switched the model between")
def in_evaluation_mode(model, layer, x):
    model.eval()
    return kept_by(model, layer, x)


@wrong("3.1", says="switched the model between")
def evaluation_mode_for_a_moment(model, layer, x):
    mode = model.training
    model.eval()
    result = kept_by(model, layer, x)
    model.train(mode)
    return result


@wrong("3.1", says="switched the model between")
def in_training_mode(model, layer, x):
    model.train()
    return kept_by(model, layer, x)


@wrong("3.1", "return value of model(x), not the hook's")
def what_the_model_puts_out(model, layer, x):
    return model(x).detach()


@wrong("3.1", "still part of the graph")
def on_the_graph(model, layer, x):
    return kept_by(model, layer, x, keep=lambda output: output)


@wrong("3.1", "still part of the graph")
def a_clone_on_the_graph(model, layer, x):
    return kept_by(model, layer, x, keep=torch.clone)


@wrong("3.1", "You never remove the hook")
def leaves_its_hook(model, layer, x):
    found = []
    layer.register_forward_hook(lambda module, args, output: found.append(output.detach()))
    model(x)
    return found[0]


@wrong("3.1", says="model(x) ran 2 times")
def runs_the_model_twice(model, layer, x):
    model(x)
    return kept_by(model, layer, x)


@wrong("3.1", says="model(x) ran 2 times")
def runs_the_model_again_afterwards(model, layer, x):
    result = kept_by(model, layer, x)
    model(x)
    return result


@wrong("3.1", "accidental return")
def changes_what_goes_on(model, layer, x):
    found = []

    def hook(module, args, output):
        found.append(output.detach())
        return torch.zeros_like(output)

    with layer.register_forward_hook(hook):
        model(x)
    return found[0]


@wrong(
    "3.1",
    likely="A handle's remove()",
    says="your code removed a hook that was already there: a forward hook on module",
)
def sweeps_all_hooks_away(model, layer, x):
    found = []
    layer.register_forward_hook(lambda module, args, output: found.append(output.detach()))
    model(x)
    layer._forward_hooks.clear()
    return found[0]


@wrong("3.1", "an empty or short list")
def runs_a_copy(model, layer, x):
    name = next(name for name, module in model.named_modules() if module is layer)
    twin = copy.deepcopy(model)
    return kept_by(twin, twin.get_submodule(name), x)


@wrong("3.1", "whole list")
def a_list_with_it(model, layer, x):
    return [kept_by(model, layer, x)]


@wrong("3.1", says="what your function returned is not a tensor")
def an_array(model, layer, x):
    return kept_by(model, layer, x).numpy()


@wrong("3.1", says="that is not what 'body.second' put out")
def the_first_row(model, layer, x):
    return kept_by(model, layer, x)[:1]


@wrong("3.1", says="that is not what 'body.second' put out")
def the_second_row_is_the_first(model, layer, x):
    result = kept_by(model, layer, x)
    return result[:1].expand_as(result)


@wrong("3.1", says="that is not what 'body.second' put out")
def rectified(model, layer, x):
    return kept_by(model, layer, x).relu()


@wrong("3.1", "an exception that your hook raises, and your function catche")
def stops_the_model(model, layer, x):
    class Stop(Exception):
        pass

    found = []

    def hook(module, args, output):
        found.append(output.detach())
        raise Stop

    with layer.register_forward_hook(hook), contextlib.suppress(Stop):
        model(x)
    return found[0]


@wrong("3.1", says="model(x) ran 2 times")
def stops_and_runs_again(model, layer, x):
    result = stops_the_model(model, layer, x)
    model(x)
    return result


@wrong("3.1", "an empty or short list")
def registers_too_late(model, layer, x):
    found = []
    model(x)
    with layer.register_forward_hook(lambda module, args, output: found.append(output.detach())):
        pass
    return found[0]


outputs = {}


@wrong("3.1", says="model(x) did not run")
def the_first_output_for_ever(model, layer, x):
    if "it" not in outputs:
        outputs["it"] = kept_by(model, layer, x)
    return outputs["it"]


@wrong("3.1", says="model(x) did not run")
def runs_layer_by_layer(model, layer, x):
    for child in model.children():
        x = child(x)
        if child is layer:
            return x.detach()


@wrong("3.1", says="model(x) ran 3 times")
def one_row_at_a_time(model, layer, x):
    return torch.cat([kept_by(model, layer, row[None]) for row in x])


@wrong("3.1", "`requires_grad_()`")
def asks_for_a_gradient_of_it(model, layer, x):
    return uses_of(model, layer, x)[0].requires_grad_()


@wrong("3.1", says="another dtype")
def in_single_precision(model, layer, x):
    return uses_of(model, layer, x)[0].float()


@wrong("3.1", "The exception gets lost")
def hides_what_the_model_raises(model, layer, x):
    return uses_of(model, layer, x, run=quietly(model))[0]


def quietly(model):
    """The model, run so that nobody hears of an exception."""

    def run(x):
        with contextlib.suppress(Exception):
            model(x)

    return run


def evaluating(model):
    """The model, run in evaluation mode, and in its own one afterwards."""

    def run(x):
        mode = model.training
        model.eval()(x)
        model.train(mode)

    return run


# --- 3.2


@right("3.2")
def by_index_fill(layer, channel):
    return layer.register_forward_hook(lambda m, args, out: out.index_fill(1, torch.tensor([channel]), 0.0))


@right("3.2")
def by_where(layer, channel):
    def hook(module, args, output):
        number = torch.arange(output.shape[1]).view(1, -1, 1, 1)
        return torch.where(number == channel, torch.zeros_like(output), output)

    return layer.register_forward_hook(hook)


@right("3.2")
def by_parts(layer, channel):
    def hook(module, args, output):
        parts = list(output.split(1, dim=1))
        parts[channel] = torch.zeros_like(parts[channel])
        return torch.cat(parts, dim=1)

    return layer.register_forward_hook(hook, prepend=False)


@right("3.2")
def by_a_mask(layer, channel):
    def hook(module, args, output):
        keep = torch.ones(output.size(1), dtype=output.dtype)
        keep[channel] = 0
        return output * keep[None, :, None, None]

    return layer.register_forward_hook(hook)


@right("3.2")
def by_masked_fill(layer, channel):
    def hook(number, module, args, kwargs, output):
        mask = nn.functional.one_hot(torch.tensor(number), output.shape[1]).bool()
        return output.masked_fill(mask.view(-1, 1, 1), 0)

    return layer.register_forward_hook(functools.partial(hook, channel), with_kwargs=True)


@right("3.2")
def by_select_scatter(layer, channel):
    def hook(module, args, output):
        return torch.select_scatter(output, torch.zeros_like(output[:, 0]), dim=1, index=channel)

    return layer.register_forward_hook(hook)


def changed_by(change):
    """An answer whose hook returns change(output, channel)."""

    def switch(layer, channel):
        return layer.register_forward_hook(lambda module, args, output: change(output, channel))

    switch.__name__ = change.__name__
    return switch


@wrong("3.2", "in place")
@changed_by
def in_place(output, channel):
    output[:, channel] = 0
    return output


@wrong("3.2", "in place")
@changed_by
def in_place_without_return(output, channel):
    output[:, channel] = 0


@wrong("3.2", "in place")
@changed_by
def in_place_on_the_data(output, channel):
    output.data[:, channel] = 0


@wrong("3.2", "forgotten return")
@changed_by
def without_return(output, channel):
    changed = output.clone()
    changed[:, channel] = 0


@wrong("3.2", "dimension 0")
@changed_by
def an_image_off(output, channel):
    changed = output.clone()
    changed[channel % len(output)] = 0
    return changed


@wrong("3.2", "dimension 2")
@changed_by
def a_row_off(output, channel):
    changed = output.clone()
    changed[:, :, channel % output.shape[2]] = 0
    return changed


@wrong("3.2", "the other way round")
@changed_by
def all_others_off(output, channel):
    changed = torch.zeros_like(output)
    changed[:, channel] = output[:, channel]
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def from_there_on(output, channel):
    changed = output.clone()
    changed[:, channel:] = 0
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def up_to_there(output, channel):
    changed = output.clone()
    changed[:, : channel + 1] = 0
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def one_too_far(output, channel):
    changed = output.clone()
    changed[:, (channel + 1) % output.shape[1]] = 0
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def only_the_first_image(output, channel):
    changed = output.clone()
    changed[0, channel] = 0
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def only_the_first_pixel(output, channel):
    changed = output.clone()
    changed[:, channel, 0, 0] = 0
    return changed


@wrong("3.2", says="the layer's output has another shape")
@changed_by
def a_channel_more(output, channel):
    return torch.cat([output[:, :channel], torch.zeros_like(output[:, :1]), output[:, channel:]], dim=1)


@wrong("3.2", "channel taken out instead of switched off")
@changed_by
def the_channel_leaves(output, channel):
    return torch.cat([output[:, :channel], output[:, channel + 1 :]], dim=1)


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def its_mean(output, channel):
    changed = output.clone()
    changed[:, channel] = output[:, channel].mean()
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def a_small_number(output, channel):
    changed = output.clone()
    changed[:, channel] *= 1e-3
    return changed


@wrong("3.2", "cut off")
@changed_by
def a_copy_of_the_data(output, channel):
    changed = output.data.clone()
    changed[:, channel] = 0
    return changed


@wrong("3.2", "`requires_grad_()` after a detach() begins a graph of its ow")
@changed_by
def a_new_leaf(output, channel):
    changed = output.detach().clone().requires_grad_()
    changed.data[:, channel] = 0
    return changed


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def negative_ones_as_well(output, channel):
    changed = output.relu()
    changed[:, channel] = 0
    return changed


@wrong("3.2", says="the layer's output is as before")
@changed_by
def zero_is_no_channel(output, channel):
    if channel:
        changed = output.clone()
        changed[:, channel] = 0
        return changed


@wrong("3.2", says="what your hook returned in place of the output is not a tensor")
@changed_by
def in_a_tuple(output, channel):
    changed = output.clone()
    changed[:, channel] = 0
    return (changed,)


@wrong("3.2", says="the other channels have changed")
@changed_by
def made_up_for(output, channel):
    keep = torch.ones(output.shape[1])
    keep[channel] = 0
    return output * keep.view(1, -1, 1, 1) * output.shape[1] / (output.shape[1] - 1)


@wrong("3.2", "`x *= 2`")
def weights_of_zero(layer, channel):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter[channel] = 0
    return layer.register_forward_hook(lambda module, args, output: None)


@wrong("3.2", "Return what register_")
def no_handle(layer, channel):
    by_index_fill(layer, channel)


@wrong("3.2", "removed before the layer ran")
def ends_at_once(layer, channel):
    with by_index_fill(layer, channel) as handle:
        return handle


@wrong("3.2", "a hook that removes itself")
def only_once(layer, channel):
    def hook(module, args, output):
        handle.remove()
        return output.index_fill(1, torch.tensor([channel]), 0.0)

    handle = layer.register_forward_hook(hook)
    return handle


@wrong("3.2", says="the layer's output is as before in training mode")
def only_in_evaluation(layer, channel):
    def hook(module, args, output):
        return output if module.training else output.index_fill(1, torch.tensor([channel]), 0.0)

    return layer.register_forward_hook(hook)


@wrong("3.2", says="in evaluation mode the channel is on again")
def only_in_training(layer, channel):
    def hook(module, args, output):
        return output.index_fill(1, torch.tensor([channel]), 0.0) if module.training else output

    return layer.register_forward_hook(hook)


@wrong("3.2", says="channel 1 is not the one that is off")
def of_what_goes_in(layer, channel):
    def hook(module, args):
        return args[0].index_fill(1, torch.tensor([channel % args[0].shape[1]]), 0.0)

    return layer.register_forward_pre_hook(hook)


@wrong("3.2", says="your hook runs for every module in this process: global forward hook")
def in_every_module(layer, channel):
    def hook(module, args, output):
        return output.index_fill(1, torch.tensor([channel]), 0.0) if output.dim() == 4 else None

    return torch_module.register_module_forward_hook(hook)


@wrong(
    "3.2", likely="A handle's remove()", says="your code removed a hook that was already there: a forward hook on the"
)
def takes_the_place_of_the_others(layer, channel):
    layer._forward_hooks.clear()
    return by_index_fill(layer, channel)


@wrong("3.2", "another kind of hook")
def gradient_alone(layer, channel):
    return layer.register_full_backward_hook(
        lambda m, grad_input, grad_output: tuple(g if g is None else g * 0 for g in grad_input)
    )


@wrong("3.2", says="in the second pass the channel is on again")
def the_first_time_only(layer, channel):
    def hook(module, args, output):
        changed = output.clone()
        changed[:, channel if first.pop() else []] = 0
        first.append(False)
        return changed

    first = [True]
    return layer.register_forward_hook(hook)


@wrong("3.2", says="after handle.remove() another of your hooks is still registered")
def a_second_hook_that_looks(layer, channel):
    layer.register_forward_pre_hook(lambda module, args: None)
    on = torch.arange(layer.weight.shape[0]).ne(channel).float().reshape(-1, 1, 1)
    return layer.register_forward_hook(lambda module, args, output: output * on)


@wrong("3.2", "a second hook, whose handle nobody has")
def two_of_them(layer, channel):
    by_index_fill(layer, channel)
    return by_index_fill(layer, channel)


@wrong("3.2", "You run `forward` once more")
def runs_the_layer_again(layer, channel):
    def hook(module, args, output):
        changed = module.forward(*args).clone()
        changed[:, channel] = 0
        return changed

    return layer.register_forward_hook(hook)


@wrong("3.2", says="channel 1 is not the one that is off")
@changed_by
def its_negative_numbers_stay(output, channel):
    changed = output.clone()
    changed[:, channel] = changed[:, channel].clamp(max=0)
    return changed


@wrong("3.2", says="another dtype")
@changed_by
def always_in_single_precision(output, channel):
    return output.float().index_fill(1, torch.tensor(channel), 0)


@wrong("3.2", says="your code replaced `forward`")
def by_another_forward(layer, channel):
    forward = layer.forward
    layer.forward = lambda x: forward(x).index_fill(1, torch.tensor(channel), 0)
    return layer.register_forward_hook(lambda *event: None)


# --- 3.3


@right("3.3")
def by_a_global_hook_at_each_use(model, module, x):
    uses = []

    def hook(one, args, output):
        if one is module:
            uses.append(output.detach().clone())

    with torch_module.register_module_forward_hook(hook):
        model(x)
    return uses


@right("3.3")
def by_a_counter(model, module, x):
    uses = {}
    handle = module.register_forward_hook(lambda *event: uses.update({len(uses): torch.clone(event[2].data)}))
    try:
        model(x)
    finally:
        handle.remove()
    return [uses[number] for number in range(len(uses))]


@right("3.3")
def by_capture_of_clones(model, module, x):
    (name,) = [name for name, one in model.named_modules() if one is module]
    with hooklab.capture(model, name, clone=True) as seen:
        model(x)
    return [call.output.detach() for call in seen.calls(name)]


@right("3.3")
def copies_without_a_graph(model, module, x):
    def hook(module, args, output):
        with torch.no_grad():
            uses.append(output + 0)

    uses = []
    with module.register_forward_hook(hook):
        model(x)
    return uses


@right("3.3")
def by_deep_copy(model, module, x):
    uses = []
    with ExitStack() as stack:
        stack.enter_context(module.register_forward_hook(lambda m, a, out: uses.append(copy.deepcopy(out.detach()))))
        model(x)
    return uses


@right("3.3")
def by_new_tensors(model, module, x):
    uses = ()

    def hook(module, args, output):
        nonlocal uses
        uses = (*uses, torch.empty_like(output).copy_(output).detach_())

    handle = module.register_forward_hook(hook, prepend=True)
    model(x)
    handle.remove()
    return [*uses]


def uses_of(model, module, x, run=None, keep=lambda output: output.detach().clone()):
    """A hook around one run, with one thing in it that can be wrong."""
    uses = []
    with module.register_forward_hook(lambda module, args, output: uses.append(keep(output))):
        (run or model)(x)
    return uses


@wrong("3.3", "same memory")
def views(model, module, x):
    return uses_of(model, module, x, keep=torch.Tensor.detach)


@wrong("3.3", "same memory")
def copied_at_the_end(model, module, x):
    return [one.detach().clone() for one in uses_of(model, module, x, keep=lambda output: output)]


@wrong("3.3", "still part of the graph")
def clones_on_the_graph(model, module, x):
    return uses_of(model, module, x, keep=torch.clone)


@wrong("3.3", "overwritten")
def only_the_last_use(model, module, x):
    return uses_of(model, module, x)[-1:]


@wrong("3.3", says="1 entry for 3 uses")
def only_the_first_use(model, module, x):
    return uses_of(model, module, x)[:1]


@wrong("3.3", says="2 entries for 3 uses")
def two_uses_at_most(model, module, x):
    return uses_of(model, module, x)[:2]


@wrong("3.3", "inserted in front, or reversed at the end")
def from_last_to_first(model, module, x):
    return uses_of(model, module, x)[::-1]


@wrong("3.3", says="1 entry for 4 uses")
def each_once(model, module, x):
    uses = []
    for one in uses_of(model, module, x):
        if not any(torch.equal(one, other) for other in uses):
            uses.append(one)
    return uses


@wrong("3.3", says="model(x) ran 4 times")
def a_run_for_each_use(model, module, x):
    return [uses_of(model, module, x)[number] for number in range(len(uses_of(model, module, x)))]


@wrong("3.3", "`forward` alone")
def runs_forward(model, module, x):
    return uses_of(model, module, x, model.forward)


@wrong("3.3", "You never remove the hook")
def leaves_the_hook(model, module, x):
    uses = []
    module.register_forward_hook(lambda module, args, output: uses.append(output.detach().clone()))
    model(x)
    return uses


@wrong(
    "3.3",
    likely="A handle's remove()",
    says="your code removed a hook that was already there: a forward hook on module",
)
def takes_the_others_as_well(model, module, x):
    uses = []
    module.register_forward_hook(lambda module, args, output: uses.append(output.detach().clone()))
    model(x)
    module._forward_hooks.clear()
    return uses


all_uses = []


@wrong("3.3", "old entries")
def one_list_for_all_calls(model, module, x):
    with module.register_forward_hook(lambda module, args, output: all_uses.append(output.detach().clone())):
        model(x)
    return all_uses


@wrong("3.3", "accidental return")
def returns_the_copy(model, module, x):
    uses = []

    def hook(module, args, output):
        uses.append(output.detach().clone())
        return uses[-1]

    with module.register_forward_hook(hook):
        model(x)
    return uses


@wrong("3.3", "args instead of output")
def what_goes_in_each_time(model, module, x):
    uses = []
    with module.register_forward_pre_hook(lambda module, args: uses.append(args[0].detach().clone())):
        model(x)
    return uses


@wrong("3.3", "stacked")
def one_tensor_for_all(model, module, x):
    return torch.stack(uses_of(model, module, x))


@wrong("3.3", says="that is not a list of tensors")
def a_dictionary(model, module, x):
    return dict(enumerate(uses_of(model, module, x)))


@wrong("3.3", says="4 entries for 3 uses")
def by_modules_of_that_type(model, module, x):
    uses = []

    def hook(one, args, output):
        if type(one) is type(module):
            uses.append(output.detach().clone())

    with torch_module.register_module_forward_hook(hook):
        model(x)
    return uses


@wrong("3.3", says="your code left the model in evaluation mode")
def in_evaluation_mode_and_left(model, module, x):
    model.eval()
    return uses_of(model, module, x)


@wrong("3.3", says="those are not the module's outputs")
def without_the_negative(model, module, x):
    return [one.clamp(min=0) for one in uses_of(model, module, x)]


@wrong("3.3", says="switched the model between")
def in_another_mode(model, module, x):
    return uses_of(model, module, x, run=evaluating(model))


@wrong("3.3", says="another dtype")
def copies_in_single_precision(model, module, x):
    return uses_of(model, module, x, keep=lambda output: torch.tensor(output.tolist()))


@wrong("3.3", says="those are not the module's outputs")
def only_the_first_row(model, module, x):
    return uses_of(model, module, x, keep=lambda output: output.detach()[:1].clone())


@wrong("3.3", "The exception gets lost")
def hides_an_error_of_the_model(model, module, x):
    return uses_of(model, module, x, run=quietly(model))


@wrong("3.3", "You run `forward` once more")
def runs_the_module_before_it_runs(model, module, x):
    uses = []
    with module.register_forward_pre_hook(lambda m, args: uses.append(m.forward(*args).detach().clone())):
        model(x)
    return uses


@wrong("3.3", "`requires_grad_()`")
def new_leaves(model, module, x):
    return uses_of(model, module, x, keep=lambda output: output.detach().clone().requires_grad_())


@wrong("3.3", "`detach_()`")
def cuts_in_place(model, module, x):
    return uses_of(model, module, x, keep=lambda output: output.detach_().clone())


@wrong("3.3", says="your code replaced `forward` on 'step'")
def wraps_forward(model, module, x):
    uses, forward = [], module.forward
    module.forward = lambda x: uses.append(forward(x)) or uses[-1].clone()
    model(x)
    return [one.detach() for one in uses]


@right("3.3")
def wraps_forward_and_takes_it_off(model, module, x):
    uses, forward = [], module.forward

    def wrapped(x):
        output = forward(x)
        uses.append(output.detach().clone())
        return output

    module.forward = wrapped
    try:
        model(x)
    finally:
        del module.forward
    return uses


# --- 3.4


def every_tensor_detached(part):
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, part)


@right("3.4")
def by_pytree(model, layer, x):
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(every_tensor_detached(output))):
        model(x)
    return found[0]


@right("3.4")
def by_match(model, layer, x):
    def detached(part):
        match part:
            case torch.Tensor():
                return part.detach()
            case tuple():
                return tuple(map(detached, part))
            case list():
                return [*map(detached, part)]
            case dict():
                return dict(zip(part.keys(), map(detached, part.values()), strict=True))
            case _:
                return part

    found = {}
    handle = layer.register_forward_hook(lambda module, args, output: found.update(it=detached(output)))
    try:
        model(x)
    finally:
        handle.remove()
    return found["it"]


@right("3.4")
def detached_after_the_run(model, layer, x):
    found = []

    def hook(module, args, output):
        found.append(pytree.tree_map(lambda one: one, output))

    with layer.register_forward_hook(hook):
        model(x)
    return every_tensor_detached(found[0])


@right("3.4")
def by_flattening(model, layer, x):
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.extend(pytree.tree_flatten(output))):
        model(x)
    leaves, spec = found
    return pytree.tree_unflatten([one.detach() if hasattr(one, "detach") else one for one in leaves], spec)


@right("3.4")
def by_dispatch(model, layer, x):
    @functools.singledispatch
    def detached(part):
        return part

    detached.register(torch.Tensor, torch.Tensor.detach)
    detached.register(dict, lambda part: {key: detached(value) for key, value in part.items()})
    detached.register(list, lambda part: [detached(one) for one in part])
    detached.register(tuple, lambda part: tuple(detached(one) for one in part))

    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(detached(output)), always_call=True):
        model(x)
    return found[0]


@right("3.4")
def by_data(model, layer, x):
    def detached(part):
        if isinstance(part, dict):
            return {key: detached(part[key]) for key in part}
        if isinstance(part, list | tuple):
            parts = [detached(one) for one in part]
            return parts if isinstance(part, list) else tuple(parts)
        return getattr(part, "data", part)

    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(detached(output))):
        model(x)
    return found[-1]


def structured_by(model, layer, x, form, run=None):
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(form(output))):
        (run or model)(x)
    return found[0]


@wrong("3.4", "`forward` alone")
def forward_of_the_model(model, layer, x):
    return structured_by(model, layer, x, every_tensor_detached, model.forward)


@wrong("3.4", says="how many times your function runs the model")
def the_model_twice(model, layer, x):
    model(x)
    return structured_by(model, layer, x, every_tensor_detached)


@wrong("3.4", says="model(x) did not run")
def the_layer_alone(model, layer, x):
    return every_tensor_detached(layer(x))


@wrong("3.4", "still part of the graph")
def as_it_comes(model, layer, x):
    return structured_by(model, layer, x, lambda output: output)


@wrong("3.4", "not deep enough")
def only_the_outermost(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(v.detach() if isinstance(v, torch.Tensor) else v for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "another container")
def tuples_for_lists(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {k: detached(v) for k, v in part.items()}
        if isinstance(part, list | tuple):
            return tuple(detached(v) for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "another container")
def lists_for_tuples(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {k: detached(v) for k, v in part.items()}
        if isinstance(part, list | tuple):
            return [detached(v) for v in part]
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "dictionaries are left as they are")
def without_dictionaries(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, list | tuple):
            return type(part)(detached(v) for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "lost on the way")
def without_what_is_no_tensor(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {k: detached(v) for k, v in part.items() if v is not None}
        if isinstance(part, list | tuple):
            return type(part)(detached(v) for v in part if v is not None)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "what is no tensor stays as it is", "got       3 (Tensor)")
def numbers_become_tensors(model, layer, x):
    def detached(part):
        return part.detach() if isinstance(part, torch.Tensor) else part if part is None else torch.as_tensor(part)

    return structured_by(model, layer, x, lambda output: pytree.tree_map(detached, output))


@wrong("3.4", "another container")
def a_flat_list(model, layer, x):
    return structured_by(model, layer, x, lambda output: pytree.tree_leaves(every_tensor_detached(output)))


@wrong("3.4", "writing into the model's own dictionary or list")
def writes_into_the_dictionary(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            for k in part:
                part[k] = detached(part[k])
            return part
        if isinstance(part, list | tuple):
            return type(part)(detached(v) for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "writing into the model's own dictionary or list", "'hidden': [a tensor, (a tensor,)]")
def writes_into_the_list(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {k: detached(v) for k, v in part.items()}
        if isinstance(part, list):
            part[:] = [detached(v) for v in part]
            return part
        if isinstance(part, tuple):
            return tuple(detached(v) for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "`detach_()`, which cuts the model's own tensor off, in place")
def detaches_in_place(model, layer, x):
    def detach(part):
        return part.detach_() if part.grad_fn is not None else part.detach()

    return structured_by(model, layer, x, lambda out: pytree.tree_map_only(torch.Tensor, detach, out))


@wrong("3.4", "accidental return")
def hands_it_on(model, layer, x):
    found = []

    def hook(module, args, output):
        found.append(every_tensor_detached(output))
        return found[0]

    with layer.register_forward_hook(hook):
        model(x)
    return found[0]


@wrong("3.4", says="what your function returned has other parts")
def keys_in_another_order(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {str(k): detached(v) for k, v in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(detached(v) for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", "You never remove the hook")
def the_hook_stays(model, layer, x):
    found = []
    layer.register_forward_hook(lambda module, args, output: found.append(every_tensor_detached(output)))
    model(x)
    return found[0]


@wrong(
    "3.4",
    likely="A handle's remove()",
    says="your code removed a hook that was already there: a forward hook on module",
)
def all_hooks_go(model, layer, x):
    found = []
    layer.register_forward_hook(lambda module, args, output: found.append(every_tensor_detached(output)))
    model(x)
    layer._forward_hooks.clear()
    return found[0]


@wrong("3.4", "return value of model(x), not what the hook has stored")
def the_models_output(model, layer, x):
    return every_tensor_detached(model(x))


@wrong("3.4", says="your code left the model in evaluation mode")
def in_evaluation_mode_too(model, layer, x):
    model.eval()
    return structured_by(model, layer, x, every_tensor_detached)


@wrong("3.4", "only one part kept")
def first_tensor_of_a_tuple(model, layer, x):
    def first(part):
        while not isinstance(part, torch.Tensor):
            part = next(iter(part.values() if isinstance(part, dict) else part))
        return part.detach()

    return structured_by(model, layer, x, first)


@wrong("3.4", "what is no tensor stays as it is")
def zeros_that_were_falsy(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {k: detached(v) for k, v in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(detached(v) for v in part)
        return part or None

    return structured_by(model, layer, x, detached)


@wrong("3.4", "not deep enough, two levels only")
def two_levels_deep(model, layer, x):
    def detached(part, depth=2):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if depth and isinstance(part, dict):
            return {k: detached(v, depth - 1) for k, v in part.items()}
        if depth and isinstance(part, list | tuple):
            return type(part)(detached(v, depth - 1) for v in part)
        return part

    return structured_by(model, layer, x, detached)


@wrong("3.4", says="switched the model between")
def runs_in_another_mode(model, layer, x):
    return structured_by(model, layer, x, every_tensor_detached, evaluating(model))


@wrong("3.4", says="another dtype")
def everything_in_single_precision(model, layer, x):
    single = functools.partial(pytree.tree_map_only, torch.Tensor, lambda part: part.detach().float())
    return structured_by(model, layer, x, single)


@wrong("3.4", "The exception gets lost")
def nobody_hears_of_an_error(model, layer, x):
    return structured_by(model, layer, x, every_tensor_detached, quietly(model))


@wrong("3.4", "You run `forward` once more")
def runs_the_layer_beforehand(model, layer, x):
    found = []
    with layer.register_forward_pre_hook(lambda m, args: found.append(every_tensor_detached(m.forward(*args)))):
        model(x)
    return found[0]


@wrong("3.4", "`requires_grad_()`")
def leaves_of_their_own(model, layer, x):
    leaf = functools.partial(pytree.tree_map_only, torch.Tensor, lambda part: part.detach().requires_grad_())
    return structured_by(model, layer, x, leaf)


@wrong("3.4", None, "the parameter 'layer.linear.weight' from True to False")
def freezes_the_model(model, layer, x):
    return structured_by(model.requires_grad_(False), layer, x, every_tensor_detached)


@wrong("3.4", "whole list")
def the_list_with_the_output(model, layer, x):
    return [structured_by(model, layer, x, every_tensor_detached)]


# --- 3.5


@right("3.5")
class capturing_by_a_class:  # noqa: N801
    def __init__(self, model, names):
        self.modules = [(name, model.get_submodule(name)) for name in names]
        self.stack = ExitStack()

    def __enter__(self):
        captured = {}
        for name, module in self.modules:
            self.stack.enter_context(
                module.register_forward_hook(lambda m, a, out, name=name: captured.update({name: out.detach()}))
            )
        return captured

    def __exit__(self, *exception):
        self.stack.close()


@right("3.5")
@contextmanager
def capturing_by_a_stack(model, names):
    modules = dict(model.named_modules())
    chosen = [modules[name] for name in names]
    captured = {}

    def keep(name, module, args, output):
        captured[name] = output.detach()

    with ExitStack() as stack:
        for name, module in zip(names, chosen, strict=True):
            stack.enter_context(module.register_forward_hook(functools.partial(keep, name)))
        yield captured


@right("3.5")
@contextmanager
def registers_inside_the_try(model, names):
    captured, handles = {}, []
    try:
        for name in names:

            def hook(module, args, output, key=name):
                captured[key] = output.detach().clone()

            handles += [model.get_submodule(name).register_forward_hook(hook)]
        yield captured
    finally:
        while handles:
            handles.pop().remove()


@right("3.5")
def fails_at_once(model, names):
    missing = set(names) - {name for name, _ in model.named_modules()}
    if missing:
        raise LookupError(f"no module is called {sorted(missing)}")

    @contextmanager
    def capturing():
        captured = {}
        hooks = []
        for name in names:
            hooks.append(model.get_submodule(name).register_forward_hook(lambda m, a, o, n=name: put(captured, n, o)))
        try:
            yield captured
        finally:
            [hook.remove() for hook in hooks]

    def put(captured, name, output):
        captured[name] = output.data

    return capturing()


@right("3.5")
@contextmanager
def by_one_global_hook(model, names):
    name_of = {}
    for name in names:
        name_of.setdefault(model.get_submodule(name), []).append(name)
    captured = {}

    def hook(module, args, output):
        for name in name_of.get(module, ()):
            captured[name] = output.detach()

    with torch_module.register_module_forward_hook(hook):
        yield captured


def capture_with(
    model, names, captured=None, keep=None, find=nn.Module.get_submodule, end=lambda handles, captured: None
):
    """The hooks of a block, registered; with one thing in it that can be wrong."""
    captured = {} if captured is None else captured
    keep = keep or (lambda captured, name, output: captured.update({name: output.detach()}))
    handles = []
    for module, name in [(find(model, name), name) for name in names]:
        handles.append(module.register_forward_hook(lambda m, a, out, name=name: keep(captured, name, out)))
    return captured, handles


@wrong("3.5", "no finally")
@contextmanager
def stays_after_an_error(model, names):
    captured, handles = capture_with(model, names)
    yield captured
    for handle in handles:
        handle.remove()


@wrong("3.5", "You never remove the hook")
@contextmanager
def stays_without_an_error(model, names):
    captured, handles = capture_with(model, names)
    try:
        yield captured
    except BaseException:
        for handle in handles:
            handle.remove()
        raise


@wrong("3.5", "another dictionary")
@contextmanager
def a_copy_is_given(model, names):
    captured, handles = capture_with(model, names)
    try:
        yield dict(captured)
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "emptied at the end", "expected  entries ['body.first', 'head']")
@contextmanager
def emptied_at_the_end(model, names):
    captured, handles = capture_with(model, names)
    try:
        yield captured
    finally:
        captured.clear()
        for handle in handles:
            handle.remove()


@wrong("3.5", says="captured['body.first'] is not what 'body.first' put out in the last")
@contextmanager
def the_first_call_stays(model, names):
    captured, handles = capture_with(
        model, names, keep=lambda c, name, out: c.update({name: c.get(name, out.detach())})
    )
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "still part of the graph")
@contextmanager
def with_the_graph(model, names):
    captured, handles = capture_with(model, names, keep=lambda c, name, out: c.update({name: out}))
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="captured['body.first'] is a list")
@contextmanager
def lists_of_outputs(model, names):
    captured, handles = capture_with(
        model, names, keep=lambda c, name, out: c.setdefault(name, []).append(out.detach())
    )
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "late binding", "expected  entries ['body.first', 'head']")
@contextmanager
def late(model, names):
    captured, handles = {}, []
    for name in names:
        model.get_submodule(name)
    for name in names:
        handles.append(
            model.get_submodule(name).register_forward_hook(lambda m, a, o: captured.update({name: o.detach()}))  # noqa: B023
        )
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "`except Exception`", "after an interrupt in the block")
@contextmanager
def cleans_up_after_errors_alone(model, names):
    captured, handles = capture_with(model, names)
    try:
        yield captured
    except Exception:
        for handle in handles:
            handle.remove()
        raise
    for handle in handles:
        handle.remove()


@wrong("3.5", "skipped in silence")
@contextmanager
def wrong_names_are_left_out(model, names):
    modules = dict(model.named_modules())
    captured, handles = capture_with(model, [name for name in names if name in modules])
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "registered while searching")
@contextmanager
def a_wrong_name_leaves_a_hook(model, names):
    captured, handles = {}, []
    for name in names:
        module = model.get_submodule(name)
        handles.append(module.register_forward_hook(lambda m, a, o, n=name: captured.update({n: o.detach()})))
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="the block ran, and the error came at its end")
@contextmanager
def a_wrong_name_fails_at_the_end(model, names):
    modules = dict(model.named_modules())
    captured, handles = capture_with(model, [name for name in names if name in modules])
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()
        for name in names:
            model.get_submodule(name)


@wrong("3.5", "The exception gets lost")
@contextmanager
def swallows_errors(model, names):
    captured, handles = capture_with(model, names)
    try:
        yield captured
    except Exception:
        pass
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "cleared")
@contextmanager
def all_hooks_go_at_the_end(model, names):
    captured, _ = capture_with(model, names)
    try:
        yield captured
    finally:
        for name in names:
            model.get_submodule(name)._forward_hooks.clear()


@wrong("3.5", "You never remove the hook")
@contextmanager
def only_the_last_handle(model, names):
    captured, handles = capture_with(model, names)
    try:
        yield captured
    finally:
        handles[-1].remove()


@wrong("3.5", "nothing stored under this key when the line ran")
@contextmanager
def only_children(model, names):
    captured, handles = capture_with(model, names, find=lambda model, name: dict(model.named_children())[name])
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="the names are not those asked for")
@contextmanager
def only_the_last_name(model, names):
    captured, handles = capture_with(model, names[-1:])
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="expected  ['body.first', 'head']")
@contextmanager
def short_names(model, names):
    captured, handles = capture_with(
        model, names, keep=lambda c, name, out: c.update({name.rpartition(".")[2]: out.detach()})
    )
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="the names are not those asked for")
@contextmanager
def under_their_modules(model, names):
    captured, handles = capture_with(
        model, names, keep=lambda c, name, out: c.update({model.get_submodule(name): out.detach()})
    )
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "accidental return")
@contextmanager
def detached_in_the_model_as_well(model, names):
    captured, handles = {}, []
    for name in names:

        def hook(module, args, output, name=name):
            captured[name] = output.detach()
            return captured[name]

        handles.append(model.get_submodule(name).register_forward_hook(hook))
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


everything = {}


@wrong("3.5", "old entries")
@contextmanager
def one_dictionary_for_all(model, names):
    captured, handles = capture_with(model, names, captured=everything)
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="captured['body.first'] is not what 'body.first' put out in the last")
@contextmanager
def only_the_first_call(model, names):
    captured, handles = {}, []
    for name in names:

        def hook(module, args, output, name=name, number=len(handles)):  # noqa: B008
            captured[name] = output.detach()
            handles[number].remove()

        handles.append(model.get_submodule(name).register_forward_hook(hook))
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "the dictionary itself was returned", says="cannot stand after `with`")
def a_function_that_runs_once(model, names):
    captured, handles = capture_with(model, names)
    for handle in handles:
        handle.remove()
    return captured


@wrong("3.5", says="your code left the model in evaluation mode")
@contextmanager
def in_evaluation_mode_for_the_block(model, names):
    captured, handles = capture_with(model, names)
    model.eval()
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def with_hooks(around=contextlib.nullcontext, keep=None):
    """An answer to 3.5, right but for what is given."""

    @contextmanager
    def capturing(model, names):
        captured = {}
        handles = capture_with(model, names, captured, keep)[1]
        try:
            with around():
                yield captured
        finally:
            for handle in handles:
                handle.remove()

    return capturing


def named(name, answer):
    answer.__name__ = name
    return answer


wrong("3.5", "torch.no_grad() around the yield")(named("without_a_graph", with_hooks(around=torch.no_grad)))
wrong("3.5", says="another dtype")(
    named("floats", with_hooks(keep=lambda captured, name, output: captured.update({name: output.detach().float()})))
)
wrong("3.5", "`requires_grad_()`")(
    named("asks", with_hooks(keep=lambda c, name, output: c.update({name: output.detach().requires_grad_()})))
)


@wrong("3.5", says="your code changed the list that it was given")
@contextmanager
def takes_names_out_of_the_list(model, names):
    with with_hooks()(model, list(names)) as captured:
        names.clear()
        yield captured


@wrong("3.5", "names and modules do not fit: 'body.first' put that out")
@contextmanager
def in_the_order_of_the_model(model, names):
    for name in names:
        model.get_submodule(name)
    in_order = [name for name, _ in model.named_modules() if name in names]
    captured = {}
    handles = capture_with(
        model, names, captured, find=lambda model, name: model.get_submodule(in_order[names.index(name)])
    )[1]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", "filled at the end of the block")
@contextmanager
def filled_when_all_is_over(model, names):
    captured = {}
    with with_hooks()(model, names) as seen:
        try:
            yield captured
        finally:
            captured.update(seen)


@wrong("3.5", "An `except` block raises")
@contextmanager
def raises_another_exception(model, names):
    with with_hooks()(model, names) as captured:
        try:
            yield captured
        except Exception as error:
            raise RuntimeError("the block failed") from error


@wrong("3.5", says="your code replaced `forward` on 'body.first'")
@contextmanager
def by_other_forwards(model, names):
    captured = {}
    for name, module in [(name, model.get_submodule(name)) for name in names]:

        def forward(x, name=name, old=module.forward):
            output = old(x)
            captured[name] = output.detach()
            return output

        module.forward = forward
    yield captured


def drops_none(part):
    if isinstance(part, torch.Tensor):
        return part.detach()
    if isinstance(part, dict):
        return {key: drops_none(one) for key, one in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(drops_none(one) for one in part if one is not None)
    return part


@wrong("3.4", "lost on the way: keep None and numbers too")
def without_none_in_a_row(model, layer, x):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(drops_none(output))):
        model(x)
    return kept[0]


@wrong("3.4", says="is no tuple, but: str")
def as_words(model, layer, x):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(str(output))):
        model(x)
    return kept[0]


test_right, test_wrong = answers.tests()
