"""Unusual right answers to lesson 3's exercises, and wrong ones that no misconception covers."""

import copy
import functools
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

import hooklab
from solutions.misconceptions import lesson03 as parts
from tests.course.exercises.answers import Answers

answers = Answers("3.1", "3.2", "3.3", "3.4", "3.5")
right, wrong = answers.right, answers.wrong


# --- 3.1


right("3.1")(parts.seeing(lambda args, output: output.detach().clone(), run=lambda model, x: model(x).detach().zero_()))


@right("3.1")
def by_capture(model, layer, x):
    (name,) = [name for name, module in model.named_modules() if module is layer]
    with hooklab.capture(model, name) as seen:
        model(x)
    return seen[name].detach()


@wrong("3.1", "The model that your function received isn't called")
def runs_a_copy(model, layer, x):
    name = next(name for name, module in model.named_modules() if module is layer)
    twin = copy.deepcopy(model)
    return parts.seeing()(twin, twin.get_submodule(name), x)


outputs_by_model = {}


@wrong("3.1", "Values of one call turn up in another one")
def the_first_output_for_ever(model, layer, x):
    return outputs_by_model.setdefault(model, parts.seeing()(model, layer, x))


# --- 3.2


@right("3.2")
def by_index_fill(layer, channel):
    return layer.register_forward_hook(lambda m, args, out: out.index_fill(1, torch.tensor([channel]), 0.0))


@right("3.2")
def by_masked_fill(layer, channel):
    def hook(number, module, args, kwargs, output):
        mask = nn.functional.one_hot(torch.tensor(number), output.shape[1]).bool()
        return output.masked_fill(mask.view(-1, 1, 1), 0)

    return layer.register_forward_hook(functools.partial(hook, channel), with_kwargs=True)


@wrong("3.2", "Your hook changes the output in the first pass only")
def the_first_time_only(layer, channel):
    channels = [channel]
    return layer.register_forward_hook(
        lambda module, args, output: output.index_fill(1, torch.tensor(channels.pop()), 0) if channels else None
    )


# --- 3.3


@right("3.3")
def by_a_counter(model, module, x):
    uses = {}
    handle = module.register_forward_hook(lambda *event: uses.update({len(uses): torch.clone(event[2].data)}))
    try:
        model(x)
    finally:
        handle.remove()
    return tuple(uses[number] for number in range(len(uses)))


@right("3.3")
def by_capture_of_clones(model, module, x):
    (name,) = [name for name, one in model.named_modules() if one is module]
    with hooklab.capture(model, name, clone=True) as seen:
        model(x)
    return [call.output.detach() for call in seen.calls(name)]


cleared_in_each_call = []


@wrong("3.3", "Values of one call turn up in another one")
def a_global_list_that_is_cleared(model, module, x):
    cleared_in_each_call[:] = parts.uses()(model, module, x)
    return cleared_in_each_call


@wrong("3.3", "You run the layer, or its `forward`, once more")
def runs_the_module_before_it_runs(model, module, x):
    uses = []
    with module.register_forward_pre_hook(lambda m, args: uses.append(m.forward(*args).detach().clone())):
        model(x)
    return uses


@wrong("3.3", "Values of one call turn up in another one")
def a_list_as_a_default_argument(model, module, x, uses=[]):  # noqa: B006
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)
    return uses


# --- 3.4


def by_match(part):
    match part:
        case torch.Tensor():
            return part.detach()
        case tuple() | list():
            return type(part)(map(by_match, part))
        case dict():
            return dict(zip(part.keys(), map(by_match, part.values()), strict=True))
        case _:
            return part


def every_second_tensor(part):
    numbers = iter(range(100))
    return parts.walking(lambda one: one if next(numbers) % 2 else one.detach())(part)


right("3.4")(parts.structured(by_match))
right("3.4")(parts.structured(functools.partial(pytree.tree_map_only, torch.Tensor, lambda tensor: tensor.data)))
wrong("3.4", "Some tensors are detached and others aren't")(parts.structured(every_second_tensor))
wrong("3.4", "Something that isn't a tensor gets lost or changes")(
    parts.structured(parts.walking(rest=lambda part: str(part) if isinstance(part, int) else part))
)


# --- 3.5


@right("3.5")
@contextmanager
def by_one_global_hook(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}

    def hook(module, args, output):
        captured.update({name: output.detach() for name, one in modules.items() if one is module})

    with torch_module.register_module_forward_hook(hook):
        yield captured


@right("3.5")
def fails_at_once(model, names):
    missing = set(names) - set(dict(model.named_modules()))
    if missing:
        raise LookupError(f"no module is called {sorted(missing)}")
    return by_one_global_hook(model, names)


@wrong("3.5", "Your hooks are on the model, but what they receive doesn't get into the dictionary")
@contextmanager
def placeholders_and_a_copy(model, names):
    with by_one_global_hook(model, names):
        yield dict.fromkeys(names)


@wrong("3.5", "An `except` block raises a new exception")
@contextmanager
def raises_another_exception(model, names):
    with by_one_global_hook(model, names) as captured:
        try:
            yield captured
        except Exception as error:
            raise RuntimeError("the block failed") from error


test_right, test_wrong = answers.tests()
